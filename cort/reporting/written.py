"""The files that a report writes, by chapter: read where rules are declared, so without what draws and tabulates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cort.config.experiment import Experiment
from cort.reporting.results import files_of


class Written(NamedTuple):
    """Files of a chapter.

    :ivar reads: kind of the results of which it writes files; without such in the experiment, it writes none.
    :ivar tables: names of the tables that are files, too.
    :ivar figure: its name, if there is one.
    """

    reads: str
    tables: tuple[str, ...] = ()
    figure: str = ""

    def names(self) -> Iterator[str]:
        """Paths of the files in the folder of the report."""
        yield from (f"tables/{name}.{ending}" for name in self.tables for ending in ("csv", "tex"))
        if self.figure:
            yield f"figures/{self.figure}.svg"


#: of the chapters that write files
WRITTEN = {
    "answer": Written("measures", figure="recall"),
    "systems": Written("measures", ("systems",)),
    "verdicts": Written("comparisons", ("comparisons", "lists")),
    "costs": Written("measures", ("costs",), "costs"),
    "overlap": Written("overlaps", ("overlap",)),
    "judged": Written("measures", ("judged",)),
    "depths": Written("depths", figure="depths"),
    "audits": Written("audits", ("audits",), "audits"),
    "training": Written("curves", figure="training"),
    "latency": Written("latencies", ("latency",)),
    "stages": Written("benchmarks", ("stages",)),
}


def files_of_report(experiment: Experiment) -> list[str]:
    """List the tables and figures that a report writes, in its folder."""
    files = files_of(experiment)
    kinds = (own for own in WRITTEN.values() if own.reads not in files or files[own.reads])
    return [name for own in kinds for name in own.names()]
