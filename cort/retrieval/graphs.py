"""Kinds of approximate index: each has an entry here, a class that searches it, and a command that builds it.

The workflow imports this module, too, so it imports no library of indexes or vectors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cort.runtime.errors import input_error
from cort.settings.systems import HnswSearch, IvfPqSearch, OnngSearch

#: how to install the library for indexes of token vectors
INSTALL_FAISS = "`pip install faiss-cpu==1.15.1`"


@dataclass(frozen=True)
class IndexKind:
    """A kind of approximate index, and the width of its searches.

    :ivar files: what the library writes into the folder of an index.
    :ivar settings: settings of a build, as in meta.json.
    :ivar parameter: name of the width.
    :ivar default: width of a search if none is given.
    :ivar whole: whether the width is a positive integer; otherwise it is a number above -1.
    :ivar counts: whether the width is the number of results that a search keeps, and so at least the depth.
    """

    files: tuple[str, ...]
    settings: tuple[str, ...]
    parameter: str
    default: float
    whole: bool
    counts: bool = False

    @property
    def audited(self) -> str:
        """Key for the widths under `audit` in the config."""
        return f"{self.parameter.removesuffix('s')}s"

    def allows(self, width: float, depth: int) -> bool:
        """Whether a search of this width can find `depth` results."""
        return width >= depth or not self.counts

    def check(self, option: str, widths: Sequence[float], depth: int) -> list[float]:
        """Return the widths given by `option`, as numbers of their type.

        :raises InputError: for the first invalid width, or a depth that none of them allows.
        """
        expected = "an integer from 1" if self.whole else "a number above -1"
        for width in widths:
            if not (float(width).is_integer() and width >= 1 if self.whole else -1 < width < float("inf")):
                raise input_error(option, f"{self.parameter} {width:g}", expected, "fix the value")
        if not self.allows(max(widths), depth):
            found = f"{self.parameter} {max(widths):g}" + " at most" * (len(widths) > 1)
            raise input_error(option, found, f"{depth} (the depth) or more", "raise it or lower the depth")
        return [int(width) if self.whole else width for width in widths]


#: for the vectors of an encoder
GRAPHS: Mapping[str, IndexKind] = {
    "onng": IndexKind(
        files=("grp", "obj", "prf", "robj", "tre"),
        settings=("edges", "outgoing", "incoming", "distance"),
        parameter="epsilon",
        default=float(OnngSearch.epsilon),
        whole=False,
    ),
    "hnsw": IndexKind(
        files=("graph.hnsw",),
        settings=("M", "ef_construction", "space"),
        parameter="ef",
        default=float(HnswSearch.ef),
        whole=True,
        counts=True,
    ),
}
#: for token vectors, for late interaction
TOKEN_INDEXES: Mapping[str, IndexKind] = {
    "ivfpq": IndexKind(
        files=("lists.faiss",),
        settings=("lists", "bytes_per_vector", "sample", "seed"),
        parameter="probes",
        default=float(IvfPqSearch.probes),
        whole=True,
    ),
}
INDEXES: Mapping[str, IndexKind] = {**GRAPHS, **TOKEN_INDEXES}
# Recall of exact search that an audit's choice must reach, by default.
RECALL = 0.99
