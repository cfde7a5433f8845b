"""Approximate search in graph indexes. A new kind is a class here, a line in `OPEN`, and one in `contents.GRAPHS`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from cort.errors import input_error
from cort.records import Ranking


class Graph(Protocol):
    """What a kind of graph index can do."""

    #: of the encoder whose vectors it holds
    model: str

    def search(self, vectors: npt.NDArray[np.float32], depth: int, settings: Mapping[str, Any]) -> list[Ranking]:
        """Rank passages for each vector; `settings` are the system's."""
        ...


class Onng:
    """An ONNG index; it holds Python's lock while it searches, one vector after the other."""

    def __init__(self, folder: Path) -> None:
        from cort.onng import open_index

        self._index, self._ids, meta = open_index(folder)
        self.model = meta.model

    def search(self, vectors: npt.NDArray[np.float32], depth: int, settings: Mapping[str, Any]) -> list[Ranking]:
        """Rank as the stage `retrieve_onng` does."""
        from cort.retrieve_onng import search_blocks, to_ranking

        found = search_blocks(self._index, [vectors], float(settings["epsilon"]), depth, 1)
        return [to_ranking("", self._ids, one) for one in found]


OPEN = {"onng": Onng}


def open_graph(kind: str, folder: Path, model: str) -> Graph:
    """Open an index whose vectors are those of the encoder with the fingerprint `model`."""
    graph = OPEN[kind](folder)
    if graph.model != model:
        found = f"vectors of model {graph.model}"
        raise input_error(folder, found, f"model {model}", "the encoder changed since: run `snakemake` again")
    return graph
