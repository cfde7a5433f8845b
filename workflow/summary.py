"""Print the results of an experiment: means of all systems by split, a verdict for each pair, addresses of its pages.

Usage: python -m workflow.summary [--configfile config/pydocs.yaml] [--inspection]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from cort.config import paths
from cort.config.experiment import Experiment
from cort.config.load import ConfigError, load
from cort.evaluation.inspection import Finding
from cort.evaluation.measures import Measures
from cort.formats.artifacts import read_artifact
from cort.reporting.costs import shares_of_memory
from cort.reporting.format import fixed, named, verdict_lines
from cort.reporting.found import Found
from cort.reporting.results import by_split, names_of_measures
from cort.runtime.errors import InputError
from workflow.command_line import new_parser
from workflow.inputs import explorers


def main(argv: list[str] | None = None) -> int:
    """Print the results of all splits; 1 if the config or a file is broken."""
    parser = new_parser("summary", __doc__)
    parser.add_argument("--inspection", action="store_true", help="only what is odd in the data")
    args = parser.parse_args(argv)
    try:
        experiment = load(args.configfile)
        if args.inspection:
            findings = read_artifact(experiment.at(paths.INSPECTION), list[Finding])
            rows = [f"{'warning: ' * finding.warns}{finding.text}\n" for finding in findings]
            sys.stdout.write("".join([*rows, f"{experiment.at(paths.INSPECTED_IDS)}\n"]))
            return 0
        sys.stdout.write("".join(f"{line}\n" for line in lines(experiment)))
    except (ConfigError, InputError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def lines(experiment: Experiment) -> list[str]:
    """Write the results that there are.

    :raises InputError: if one of their files is broken.
    """
    found = Found(experiment, partial=True)
    shares = shares_of_memory(experiment, found.sizes)
    texts = [line for split, block in by_split(found.measures).items() for line in means(split, block).splitlines()]
    texts += [line for comparison in found.comparisons for line in verdict_lines(comparison, shares)]
    texts += experiment.remarks()
    texts += [
        f"{split}: no judgements; the report shows the overlap of the systems" for split in experiment.unjudged_splits
    ]
    pages = [experiment.at(paths.REPORT) + "index.html", *explorers(experiment)]
    return [*texts, *(Path(page).absolute().as_uri() for page in pages if Path(page).exists())]


def means(split: str, measures: Sequence[Measures]) -> str:
    """Write the means of a split, a line per system."""
    names = names_of_measures(measures)
    rows = [[split, *map(named, names)]]
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
