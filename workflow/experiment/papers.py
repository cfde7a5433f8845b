"""The files of published numbers (`papers`) of an experiment, as `cort.reporting.reproduction` reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cort.reporting.reproduction.paper import find_mistakes, read_paper
from workflow.experiment.checks import ConfigError


def names_of_files(path: str | Path) -> dict[str, list[str]]:
    """List the names of a checked paper's tables and figures, by section."""
    paper = read_paper(path)
    return {"tables": [one.name for one in paper.tables], "figures": [one.name for one in paper.figures]}


def check_papers(paths: Sequence[str]) -> None:
    """Check all files of an experiment; two of one name would be compared in the same files.

    :raises ConfigError: with a line per mistake, in any of them.
    """
    names = [Path(path).stem for path in paths]
    lines = [
        f"papers: found the name {name} {names.count(name)} times, expected each once; rename a file"
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    lines += [line for path in dict.fromkeys(paths) for line in find_mistakes(path)]
    if lines:
        raise ConfigError("\n".join(lines))
