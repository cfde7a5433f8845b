"""Print the results of an experiment: means of all systems by split, a verdict for each pair, addresses of its pages.

Usage: python -m workflow.summary [--configfile config/pydocs.yaml] [--inspection]
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from cort.evaluation.comparisons import Comparisons, verdict_lines
from cort.evaluation.inspection import Finding
from cort.evaluation.measures import Measures
from cort.experiment.checks import ConfigError, load
from cort.formats.artifacts import read_artifact
from cort.reporting.inputs import read_measures, titled
from cort.reporting.labels import fixed, measure_label
from cort.reporting.tables import by_split, names_of_measures
from cort.runtime.errors import InputError
from cort.settings import paths
from workflow.command_line import new_parser
from workflow.inputs import comparisons, explorers, files_per_run


def main(argv: list[str] | None = None) -> int:
    """Print the results of all splits; 1 if the config or a file is broken."""
    parser = new_parser("summary", __doc__)
    parser.add_argument("--inspection", action="store_true", help="only what is odd in the data")
    args = parser.parse_args(argv)
    try:
        experiment = load(args.configfile)
        if args.inspection:
            findings = read_artifact(experiment.at(paths.INSPECTION), list[Finding])
            lines = [f"{'warning: ' * finding.warns}{finding.text}\n" for finding in findings]
            sys.stdout.write("".join([*lines, f"{experiment.at(paths.INSPECTED_IDS)}\n"]))
            return 0
        files = [path for path in comparisons(experiment) if Path(path).exists()]
        compared = titled(experiment, (read_artifact(path, Comparisons) for path in files))
        measured = filter(os.path.exists, files_per_run(experiment, paths.MEASURES))
        measures = titled(experiment, read_measures([*measured]))
    except (ConfigError, InputError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for split, block in by_split(measures).items():
        sys.stdout.write(means(split, block))
    for comparison in compared:
        sys.stdout.write("".join(f"{line}\n" for line in verdict_lines(comparison)))
    sys.stdout.write("".join(f"{line}\n" for line in experiment.remarks()))
    for split in experiment.unjudged_splits:
        sys.stdout.write(f"{split}: no judgements; the report shows the overlap of the systems\n")
    pages = [experiment.at(paths.REPORT) + "index.html", *explorers(experiment)]
    sys.stdout.write("".join(f"{Path(page).absolute().as_uri()}\n" for page in pages if Path(page).exists()))
    return 0


def means(split: str, measures: Sequence[Measures]) -> str:
    """Write the means of a split, a line per system."""
    names = names_of_measures(measures)
    rows = [[split, *map(measure_label, names)]]
    rows += [[system.system, *(fixed(system.mean.get(name)) for name in names)] for system in measures]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            f"{cell:{'>' if number else '<'}{width}}"
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "".join(f"{line}\n" for line in [*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
