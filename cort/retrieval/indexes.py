"""Kinds of approximate index: the files of each, and the width of its searches.

The workflow imports this module, too, so it imports no library of indexes or vectors.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cort.config.systems import HnswSearch, IvfPqSearch, OnngSearch
from cort.runtime.sections import default_of

META_FILE, IDS_FILE = "meta.json", "ids.arrow"
FIX = "delete the index and build it again"
# Recall of exact search that an audit's choice must reach, by default.
RECALL = 0.99


@dataclass(frozen=True)
class IndexKind:
    """A kind of approximate index.

    :ivar files: in the folder of an index, beside meta.json.
    :ivar parameter: name of the width of a search.
    :ivar default: width of a search if none is given; an integer if all widths are.
    :ivar above: every width is larger.
    :ivar counts: whether the width is the number of results that a search keeps, and so at least the depth.
    """

    files: tuple[str, ...]
    parameter: str
    default: float
    above: float = 0
    counts: bool = False

    @property
    def audited(self) -> str:
        """Key for the widths under `audit` in the config."""
        return f"{self.parameter.removesuffix('s')}s"

    def typed(self, width: float) -> float:
        """Return a width as a number of the type of all widths."""
        return type(self.default)(width)

    def allows(self, width: float, depth: int) -> bool:
        """Whether a search of this width can find `depth` results."""
        return width >= depth if self.counts else width > self.above


INDEXES: Mapping[str, IndexKind] = {
    "onng": IndexKind(
        ("grp", "obj", "prf", "robj", "tre", IDS_FILE), "epsilon", float(default_of(OnngSearch, "epsilon")), above=-1
    ),
    "hnsw": IndexKind(("graph.hnsw", IDS_FILE), "ef", int(default_of(HnswSearch, "ef")), counts=True),
    "ivfpq": IndexKind(("lists.faiss",), "probes", int(default_of(IvfPqSearch, "probes"))),
}
#: the kinds for the vectors of an encoder alone
GRAPHS = ("onng", "hnsw")


def load_faiss() -> Any:
    """Import faiss without its messages about builds for other processors."""
    logging.getLogger("faiss.loader").setLevel(logging.WARNING)
    import faiss

    return faiss
