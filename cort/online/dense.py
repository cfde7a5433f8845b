"""Queries to vectors, and vectors to the passages nearest to them, by exact search or through a graph index."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from cort.formats.embeddings import STORAGE, Shard
from cort.formats.records import Ranking
from cort.formats.tokens import Tokens
from cort.models.encoder import load_encoder, texts_of
from cort.models.transformer import model_fingerprint
from cort.online.manifest import System
from cort.online.tokens import TokenIds, Tokenizer
from cort.retrieval.audits import audited_width
from cort.retrieval.exact import ExactIndex
from cort.retrieval.graph_search import Graph, open_index, to_ranking
from cort.system.errors import input_error

Vectors = npt.NDArray[np.float32]
# Vectors are held in memory if they take one of so many parts of it.
PART_OF_MEMORY = 4


class QueryEncoder:
    """An encoder and its tokenizer, for texts of queries; the vectors are those of the stage `encode`.

    They differ in their last bits, as padding does: texts meet others of other lengths there.
    """

    def __init__(self, folder: Path, form: str, precision: str, device: torch.device) -> None:
        """Load the model folder.

        :param form: form of the texts (`cort.formats.cleaning`).
        :param precision: of the transformer's products.
        """
        self.fingerprint = model_fingerprint(folder)
        self.device = device
        self._model, self._template = load_encoder(folder)
        self._model.place(device, precision)
        self._settings = self._model.settings
        self._tokenizer = Tokenizer(folder, form)

    def tokenize(self, texts: Sequence[str]) -> list[TokenIds]:
        """Token ids of each text, without special tokens."""
        return self._tokenizer(texts)

    def encode(self, tokens: Sequence[TokenIds], storage: str) -> Vectors:
        """Vectors of shape (texts, e), rounded as they are stored.

        :param storage: number format of the passages' vectors, "fp32" or "fp16".
        """
        texts = texts_of(Tokens.of_texts(tokens), self._template, self._settings, "query")
        vectors = texts.vectors(self._model, np.arange(len(tokens)), self.device)  # (texts, e)
        stored = vectors.cpu().numpy().astype(STORAGE[storage].to_pandas_dtype())
        return np.asarray(stored, dtype=np.float32)


class ExactSearch:
    """The vectors of all passages, open on some devices; results are those of the stage `retrieve`."""

    def __init__(self, shards: Sequence[Shard], devices: Sequence[str], threads: int) -> None:
        """Hold the vectors in memory if they take no more than a part of it, else map their files.

        :param devices: torch's names; they work side by side.
        """
        self._shards, self._threads = shards, threads
        self.place(devices)

    def place(self, devices: Sequence[str]) -> None:
        """Move the vectors to other devices."""
        memory_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // PART_OF_MEMORY >> 20
        self._index = ExactIndex(self._shards, devices, self._threads, memory_mb, one_by_one=True)

    def search(self, vectors: Vectors, depth: int) -> list[Ranking]:
        """Rank all passages for each vector."""
        found = self._index.search(vectors, depth)
        return [Ranking("", self._index.ids(places), scores) for scores, places in found]


@dataclass(frozen=True)
class GraphSearch:
    """A graph index and how widely a system searches it (epsilon of an ONNG, ef of an HNSW index)."""

    graph: Graph
    width: float

    def search(self, vectors: Vectors, depth: int) -> list[Ranking]:
        """Rank passages for each vector, one after the other, as the stage `retrieve_graph` does."""
        return [to_ranking("", self.graph.ids, self.graph.search(one, self.width, depth)) for one in vectors]


def open_graph(system: System, opened: dict[tuple[str, str], Graph], model: str) -> GraphSearch:
    """Open the index of a system, and find out the width of its searches.

    :param opened: by kind and encoder; systems that search one index share it.
    :param model: fingerprint of the encoder whose vectors the index must hold.
    :raises InputError: the vectors of another model, or an audit that does not reach the recall.
    """
    kind, folder = system["kind"], system["index"]
    key = kind, system["encoder"]
    if key not in opened:
        opened[key] = open_index(kind, folder)
    found = opened[key].meta.model
    if found != model:
        expected, fix = f"model {model}", "the encoder changed since: run `snakemake` again"
        raise input_error(folder, f"vectors of model {found}", expected, fix)
    if "width" in system:
        return GraphSearch(opened[key], float(system["width"]))
    return GraphSearch(opened[key], audited_width(system["audit"], kind, model, float(system["recall"])))
