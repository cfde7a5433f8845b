"""Approximate search in graph indexes, for systems of a manifest. A new kind is a line here and one in `contents`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cort import hnsw, onng
from cort.formats.audits import audited_width
from cort.formats.records import Ranking
from cort.online.manifest import System
from cort.retrieval.graph import Graph, to_ranking
from cort.system.errors import input_error

OPEN: Mapping[str, Callable[[Path], Graph]] = {"onng": onng.open_index, "hnsw": hnsw.open_index}


@dataclass(frozen=True)
class GraphSearch:
    """A graph index and how widely a system searches it; one vector after the other.

    :ivar width: epsilon of an ONNG, ef of an HNSW index.
    """

    graph: Graph
    width: float

    def search(self, vectors: npt.NDArray[np.float32], depth: int) -> list[Ranking]:
        """Rank passages for each vector, as the stages `retrieve_onng` and `retrieve_hnsw` do."""
        return [to_ranking("", self.graph.ids, self.graph.search(one, self.width, depth)) for one in vectors]


def open_graph(system: System, opened: dict[tuple[str, str], Graph], model: str) -> GraphSearch:
    """Open the index of a system, and find out the width of its searches.

    :param opened: by kind and encoder; systems that search one index share it.
    :param model: fingerprint of the encoder whose vectors the index must hold.
    :raises InputError: the vectors of another model, or an audit that does not reach the recall.
    """
    kind, folder = str(system["kind"]), Path(system["index"])
    key = kind, str(system["encoder"])
    if key not in opened:
        opened[key] = OPEN[kind](folder)
    found = opened[key].meta.model
    if found != model:
        expected, fix = f"model {model}", "the encoder changed since: run `snakemake` again"
        raise input_error(folder, f"vectors of model {found}", expected, fix)
    return GraphSearch(opened[key], _width(system, model))


def _width(system: Mapping[str, Any], model: str) -> float:
    if "width" in system:
        return float(system["width"])
    return audited_width(system["audit"], str(system["kind"]), model, float(system["recall"]))
