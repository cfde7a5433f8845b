"""The kinds of graph index: an entry here, a class that opens and searches it, and a stage that builds it.

The workflow reads this module as well: it imports no library of indexes or vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cort.system.errors import input_error


@dataclass(frozen=True)
class GraphKind:
    """A kind of graph index, and the width of its searches.

    :ivar files: what the library writes into the folder of an index.
    :ivar settings: what an index is built with, as its meta.json says.
    :ivar parameter: name of the width.
    :ivar default: width of a search for which none is given.
    :ivar counts: whether the width is the number of results that a search keeps, so the depth at least; otherwise it is
        a number above -1.
    """

    files: tuple[str, ...]
    settings: tuple[str, ...]
    parameter: str
    default: float
    counts: bool

    def allows(self, width: float, depth: int) -> bool:
        """Tell whether a search of this width can find so many results."""
        return width >= depth or not self.counts

    def check(self, option: str, widths: Sequence[float], depth: int) -> list[float]:
        """Return the widths that `option` gives, as numbers of their kind.

        :raises InputError: names the first one that no search can have, or the depth that none of them allows.
        """
        expected = "a whole number from 1" if self.counts else "a number above -1"
        for width in widths:
            if not (float(width).is_integer() and width >= 1 if self.counts else -1 < width < float("inf")):
                raise input_error(option, f"{self.parameter} {width:g}", expected, "fix the value")
        if not self.allows(max(widths), depth):
            found = f"{self.parameter} {max(widths):g}" + " at most" * (len(widths) > 1)
            raise input_error(option, found, f"{depth} (the depth) or more", "raise it or lower the depth")
        return [int(width) if self.counts else width for width in widths]


GRAPHS: Mapping[str, GraphKind] = {
    "onng": GraphKind(
        files=("grp", "obj", "prf", "robj", "tre"),
        settings=("edges", "outgoing", "incoming", "distance"),
        parameter="epsilon",
        default=0.1,
        counts=False,
    ),
    "hnsw": GraphKind(
        files=("graph.hnsw",),
        settings=("M", "ef_construction", "space"),
        parameter="ef",
        default=1000,
        counts=True,
    ),
}
