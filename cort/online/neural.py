"""The neural parts of systems: queries to vectors, vectors to the nearest passages, candidates to scores."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import torch

from cort.formats.embeddings import STORAGE, Shard, open_shards
from cort.formats.records import Ranking
from cort.formats.tokens import Tokens
from cort.models.encoder import load_encoder, texts_of
from cort.models.rerankers import PairsToScore, load_reranker
from cort.models.tokenizer import fingerprint
from cort.models.transformer import model_fingerprint
from cort.online.manifest import REMEDY, Manifest, Model, System
from cort.online.token_vectors import TokenCandidates, TokenSearch
from cort.online.tokenizer import TokenIds, Tokenizer
from cort.retrieval.audits import width_of
from cort.retrieval.exact import ExactIndex
from cort.retrieval.graph_search import Graph, open_index, to_ranking
from cort.retrieval.graphs import GRAPHS, TOKEN_INDEXES
from cort.retrieval.ivfpq import IvfPqSearch, open_ivfpq
from cort.system.errors import input_error
from cort.system.memory import memory_limit

Vectors = npt.NDArray[np.float32]
# Vectors are held in memory if they take one of so many parts of it.
PART_OF_MEMORY = 4


class QueryEncoder:
    """An encoder for queries, and the shards of the passages' vectors.

    Vectors are those of the stage `encode` but for their last bits, as padding changes these: texts meet others of
    other lengths there.
    """

    def __init__(self, model: Model, device: torch.device) -> None:
        self.tokenize = Tokenizer(model.model, model.cleaning)
        self.model, self.template = load_encoder(model.model)
        self.model.place(device, model.precision)
        self.device = device
        self.fingerprint = model_fingerprint(model.model)
        self.shards = open_shards(model.files, self.fingerprint)

    def encode(self, tokens: Sequence[TokenIds]) -> Vectors:
        """Vectors of shape (texts, e), rounded as those of the passages are stored."""
        texts = texts_of(Tokens.of_texts(tokens), self.template, self.model.settings, "query")
        vectors = texts.vectors(self.model, np.arange(len(tokens)), self.device)  # (texts, e)
        stored = vectors.cpu().numpy().astype(STORAGE[self.shards[0].storage].to_pandas_dtype())
        return np.asarray(stored, dtype=np.float32)


class ExactSearch:
    """The vectors of all passages, open on devices that work side by side; results are those of the stage `retrieve`.

    They are held in memory if they take no more than a part of it, else their files are mapped.
    """

    def __init__(self, shards: Sequence[Shard], devices: Sequence[str], threads: int) -> None:
        self._shards, self._threads = shards, threads
        self.place(devices)

    def place(self, devices: Sequence[str]) -> None:
        """Move the vectors to other devices."""
        memory_mb = memory_limit() // PART_OF_MEMORY >> 20
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


class Reranker:
    """A re-ranker, and the token ids of all passages, mapped from their cache."""

    def __init__(self, model: Model, device: torch.device) -> None:
        self._passages = Tokens(model.files[0], fingerprint(model.model))
        self.model, self._template = load_reranker(model.model)
        self.model.place(device, model.precision)
        self.tokenize = Tokenizer(model.model, model.cleaning)
        self.device = device

    def pairs(self, text: str) -> PairsToScore:
        """Pairs of a query, its row being 0, and any passages."""
        return self.model.pairs(Tokens.of_texts(self.tokenize([text])), self._passages, self._template)

    def score(self, text: str, rows: Sequence[int]) -> npt.NDArray[np.float64]:
        """Score the passages of some rows of the collection for a query."""
        if not len(rows):
            return np.empty(0)
        pairs = self.pairs(text)
        with torch.inference_mode():
            logits = pairs.score(self.model, np.zeros(len(rows), np.int64), np.asarray(rows), self.device)
        return logits.float().cpu().numpy().astype(np.float64)  # (rows,)


Opened = tuple[
    dict[str, QueryEncoder],
    dict[str, ExactSearch],
    dict[str, GraphSearch],
    dict[str, Reranker],
    dict[str, TokenSearch],
    dict[str, TokenCandidates],
]


def open_models(manifest: Manifest, needed: Mapping[str, System], devices: Sequence[str], threads: int) -> Opened:
    """Load encoders, vectors, graphs and re-rankers of the systems that are needed, as `searcher.Models` has them.

    :raises InputError: files of another model, or an audit that does not reach the recall.
    """
    # Before tokenizers start threads.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true" if threads > 1 else "false")
    torch.set_num_threads(threads)
    device = torch.device(devices[0])
    systems = needed.values()
    keys = ("encoder", "reranker", "token_encoder")
    named = {key: {one[key]: None for one in systems if key in one} for key in keys}
    encoders = {name: QueryEncoder(manifest.encoders[name], device) for name in named["encoder"]}
    exact = {one["encoder"]: encoders[one["encoder"]].shards for one in systems if one["kind"] == "exact"}
    open_once = cache(open_index)

    def open_graph(system: System) -> GraphSearch:
        kind, model = system["kind"], encoders[system["encoder"]].fingerprint
        # Systems that search one index share it.
        graph = open_once(kind, system["index"])
        if graph.meta.model != model:
            fix = f"the encoder changed since: {REMEDY}"
            raise input_error(system["index"], f"vectors of model {graph.meta.model}", f"model {model}", fix)
        if graph.meta.dimension != (wanted := encoders[system["encoder"]].shards[0].dimension):
            found = f"vectors of {graph.meta.dimension} dimensions"
            raise input_error(system["index"], found, f"{wanted} as of its encoder", REMEDY)
        return GraphSearch(graph, width_of(system, model))

    searches = {name: ExactSearch(shards, devices, threads) for name, shards in exact.items()}
    rerankers = {name: Reranker(manifest.rerankers[name], device) for name in named["reranker"]}
    tokens = {name: TokenSearch(manifest.token_encoders[name], device) for name in named["token_encoder"]}
    open_tokens_once = cache(lambda folder, name: open_ivfpq(folder, tokens[name].shards, tokens[name].index))

    def open_candidates(system: System) -> TokenCandidates:
        index = open_tokens_once(system["index"], system["token_encoder"])
        probes = int(width_of(system, index.meta.model))
        return TokenCandidates(IvfPqSearch(index, probes, system["per_token"], threads))

    graphs = {name: open_graph(system) for name, system in needed.items() if system["kind"] in GRAPHS}
    candidates = {name: open_candidates(system) for name, system in needed.items() if system["kind"] in TOKEN_INDEXES}
    return encoders, searches, graphs, rerankers, tokens, candidates
