"""Write into docs/reproduction.md what each table of a paper takes, by the plan's estimates, as if nothing were here.

Usage: python -m scripts.estimates
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from cort.config.load import load
from workflow.estimates import estimate, hours
from workflow.forecast import GB, files_to_fetch, from_hub
from workflow.snakemake_api import plan

PAGE = Path("docs/reproduction.md")
BEGIN, END = "<!-- python -m scripts.estimates -->\n\n```text\n", "```\n"
HEADINGS = ("table", "fetch,GB", "disk,GB", "1-GPU,h", "4-GPUs,h", "models")
OWN = ("config/msmarco.yaml",)


def configs() -> list[str]:
    """List the configs of the tables, and that of all."""
    return [*map(str, sorted(Path("config/tables").glob("*/*.yaml"))), *OWN]


def name_of(config: str) -> str:
    """Name a table as TABLE of make does."""
    return config.removeprefix("config/").removeprefix("tables/").removesuffix(".yaml")


def row_of(config: str) -> list[str]:
    """Estimate all jobs of an experiment, those that are done, too."""
    experiment = load(config)
    jobs, _ = plan(["--cores", "all", "--configfile", config])
    files = {file for job in jobs for file in job.outputs}
    models = list(dict.fromkeys(from_hub(experiment, files)))
    fetched = sum(one.size for one in [*models, *files_to_fetch(experiment, jobs)])
    found = estimate(experiment, jobs)
    names = [one.path.rpartition("--")[2] for one in models]
    walls = [hours(seconds) for seconds in found.wall.values()]
    return [
        name_of(config),
        f"{fetched / GB:.1f}",
        f"{found.disk / GB:.0f}",
        *walls,
        ",".join(names) or "-",
    ]


def lines_of(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Write a table with aligned columns."""
    *widths, _ = (max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True))
    for name, *numbers, models in (HEADINGS, *rows):
        cells = [name.ljust(widths[0]), *map(str.rjust, numbers, widths[1:])]
        yield f"{'  '.join(cells)}  {models}\n"


def main() -> None:
    """Replace the table of the page."""
    # Models of this machine's cache are fetched elsewhere.
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HF_HUB_CACHE"] = folder
        table = "".join(lines_of([row_of(config) for config in configs()]))
    before, rest = PAGE.read_text("utf-8").split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{table}{END}{rest.partition(END)[2]}", "utf-8")


if __name__ == "__main__":
    main()
