"""Approximate search in graph indexes. A new kind is a line in `OPEN`, and one in `contents.GRAPHS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cort import graphs, hnsw, onng
from cort.errors import input_error
from cort.formats.audits import audited_width
from cort.online.contents import GRAPHS, System
from cort.records import Ranking

OPEN: Mapping[str, Callable[[Path], graphs.Graph]] = {"onng": onng.open_index, "hnsw": hnsw.open_index}


class GraphSearch:
    """An open graph index; it holds Python's lock while it searches, one vector after the other."""

    def __init__(self, kind: str, folder: Path, model: str) -> None:
        """Open the index of a kind.

        :param model: fingerprint of the encoder, whose vectors it must hold.
        """
        self._kind, self._graph = kind, OPEN[kind](folder)
        if self._graph.meta.model != model:
            found = f"vectors of model {self._graph.meta.model}"
            raise input_error(folder, found, f"model {model}", "the encoder changed since: run `snakemake` again")
        self._audited: dict[tuple[Path, float], float] = {}

    def search(self, vectors: npt.NDArray[np.float32], depth: int, system: System) -> list[Ranking]:
        """Rank passages for each vector, as wide as the system says."""
        width = self._width(system)
        found = (self._graph.search(vector, width, depth) for vector in vectors)
        return [graphs.to_ranking("", self._graph.ids, one) for one in found]

    def _width(self, system: System) -> float:
        if "audit" not in system:
            return float(system[GRAPHS[self._kind]])
        key = Path(system["audit"]), float(system["recall"])
        if key not in self._audited:
            self._audited[key] = audited_width(key[0], self._kind, self._graph.meta.model, key[1])
        return self._audited[key]
