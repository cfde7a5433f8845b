"""Measure what the workflow itself costs: the dry run of a large finished experiment, and the time around a job.

The experiment is marked as built in a temporary copy, with empty files for results. Medians of several runs.

Usage: python -m scripts.bench.workflow [--shards 64] [--systems 30] [--jobs 40] [--repeats 5]
"""

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from scripts.bench.common import Row, parse, print_table
from scripts.sandbox import TINY, copy_with_tiny, mark_as_built, timed

# A stage without work: what remains is Snakemake, a shell and the start of Python.
EMPTY_STAGE = 'import sys\n\nopen(sys.argv[sys.argv.index("--output") + 1], "w").close()\n'


def write_config(folder: Path, config: dict[str, Any], more: dict[str, Any]) -> Path:
    """Write a config with more systems; its path."""
    path = folder / "more.yaml"
    text = yaml.safe_dump(config | {"systems": config["systems"] | more}, sort_keys=False)
    path.write_text(text, encoding="utf-8")
    return path


def measure_dry_run(folder: Path, tiny: dict[str, Any], shards: int, systems: int, repeats: int) -> Row:
    """Median seconds of the dry run of a finished experiment."""
    numbers = range(len(tiny["systems"]), systems)
    more = {f"onng-{number}": {"retrieve": "encoder", "onng": {"epsilon": number / 100}} for number in numbers}
    call = (write_config(folder, tiny | {"dataset": "large"}, more), "--set-scatter", f"encode={shards}")
    jobs = mark_as_built(folder, *call)
    runs = [timed(folder, "--dry-run", "--configfile", *call) for _ in range(repeats)]
    if any("Nothing to be done" not in said for _, said in runs):
        sys.exit(runs[0][1])
    seconds = statistics.median(seconds for seconds, _ in runs)
    return f"dry run of {jobs} finished jobs, {shards} shards, {systems} systems", f"{seconds:.2f} s"


def measure_job(folder: Path, tiny: dict[str, Any], jobs: int, repeats: int) -> Row:
    """Median seconds per job without work on two cores, above a call that has nothing to do."""
    mark_as_built(folder, folder / TINY)
    names = [f"empty-{number}" for number in range(jobs)]
    path = write_config(folder, tiny, {name: {"interleave": ["bm25", "cort"]} for name in names})
    (folder / "cort" / "fuse.py").write_text(EMPTY_STAGE, encoding="utf-8")
    targets = [f"results/tiny/runs/test/{name}.trec" for name in names]
    call = ("--cores", 2, "--configfile", path, "--", *targets)
    found = []
    for _ in range(repeats):
        for target in targets:
            (folder / target).unlink(missing_ok=True)
        busy, _ = timed(folder, *call)
        idle, _ = timed(folder, *call)
        found.append((busy - idle) / jobs)
    return f"time per job without work, {jobs} jobs on 2 cores", f"{statistics.median(found):.2f} s"


def main() -> None:
    """Measure and print."""
    args = parse(__doc__, shards=64, systems=30, jobs=40, repeats=5)
    with tempfile.TemporaryDirectory() as name:
        folder = copy_with_tiny(Path(name))
        tiny = yaml.safe_load((folder / TINY).read_text(encoding="utf-8"))
        dry_run = measure_dry_run(folder, tiny, args.shards, args.systems, args.repeats)
        print_table([dry_run, measure_job(folder, tiny, args.jobs, args.repeats)])


if __name__ == "__main__":
    main()
