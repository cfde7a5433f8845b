"""The neural parts of systems: queries to vectors, vectors to the nearest passages, candidates to scores."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from cort.config import paths
from cort.config.collection import Endpoint
from cort.config.models import Served, Service
from cort.config.systems import Reduced
from cort.formats.records import Ranking
from cort.formats.shards import Tokens, precision_of_queries, read_precision
from cort.models.cross_encoder import Pairs
from cort.models.encoder import load_encoder
from cort.models.layout import model_fingerprint
from cort.models.precision import settle
from cort.models.rerankers import load_reranker
from cort.models.sparse_encoder import load_sparse_encoder
from cort.models.tokenizer import fingerprint
from cort.online.light import Model, TokenIds, Tokenizer, model_of, with_vectors
from cort.online.served import ServedEncoder, ServedReranker
from cort.retrieval.exact import StoredVectors
from cort.retrieval.graph_search import open_index
from cort.retrieval.impacts import MOST_TERMS, as_text, impacts_of
from cort.retrieval.index_meta import refuse_others
from cort.retrieval.ivfpq import IvfPqSearch, open_ivfpq
from cort.retrieval.lucene import BY_IMPACTS, LuceneProcess
from cort.retrieval.max_similarity import QueryVectors, TokenIndex
from cort.retrieval.rankings import Index, IndexSearch, rank
from cort.retrieval.reduction import open_exact
from cort.retrieval.token_queries import TokenQueries
from cort.retrieval.vectors import open_vectors
from cort.runtime.memory import memory_limit
from cort.systems.base import System
from cort.systems.live import Retriever, WidthFor
from cort.systems.results import Results

Vectors = npt.NDArray[np.float32]
#: tokens and their impacts
Impacts: TypeAlias = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]
# Vectors are held in memory if they take at most memory / PART_OF_MEMORY.
PART_OF_MEMORY = 4


def encoder_of(results: Results, name: str, device: torch.device) -> QueryEncoder | ServedEncoder:
    """Open an encoder of an experiment."""
    if isinstance(service := results.encoders[name], Service):
        return ServedEncoder(service, results.vectors("encoders", name))
    return QueryEncoder(with_vectors(results, "encoders", name), device)


class Loaded:
    """A model on a device, and its tokenizer."""

    def __init__(self, model: Model, device: torch.device, load: Callable[..., Any]) -> None:
        self.tokenize, self.device = Tokenizer(model.folder, model.cleaning), device
        self.model = load(model.folder, model.precision)


class QueryEncoder(Loaded):
    """An encoder for queries, and the vectors of the passages.

    Vectors are those of the stage `encode` except for the last bits, which depend on padding.
    """

    def __init__(self, model: Model, device: torch.device) -> None:
        super().__init__(model, device, load_encoder)
        self.fingerprint = model_fingerprint(model.folder)
        self.vectors = open_vectors(model.files, model=self.fingerprint)
        self.model.place(device, precision_of_queries(self.vectors.precision, model.precision))

    def encode(self, tokens: Sequence[TokenIds]) -> Vectors:
        """Compute vectors of shape (texts, e), rounded as those of the passages are stored."""
        texts = self.model.texts(Tokens.of_texts(tokens), "query")
        vectors = texts.vectors(self.model, np.arange(len(tokens)), self.device)  # (texts, e)
        return self.vectors.rounded(vectors)


class SparseQueryEncoder(Loaded):
    """A sparse encoder for queries.

    Impacts are those of the stage `encode`, unless the last bits, which depend on padding, decide how one is rounded.
    """

    def __init__(self, model: Model, device: torch.device) -> None:
        super().__init__(model, device, load_sparse_encoder)
        self.model.place(device, precision_of_queries(read_precision(model.files[0]), model.precision))

    def encode(self, tokens: Sequence[TokenIds]) -> list[Impacts]:
        """Compute the impacts of some queries."""
        texts = self.model.texts(Tokens.of_texts(tokens), "query")
        with torch.inference_mode():
            weights = texts.encode(self.model, np.arange(len(tokens)), self.device).cpu().numpy()
        return [impacts_of(row, MOST_TERMS) for row in weights]


class TokenEncoder:
    """A late-interaction model for queries, and the token vectors of all passages, mapped from their files.

    Vectors are those of the stage `retrieve_tokens` except for the last bits, which depend on padding.
    """

    def __init__(self, model: Model, device: torch.device) -> None:
        self.tokenize, self.device = Tokenizer(model.folder, model.cleaning), device
        self._queries = TokenQueries(model.folder, model.files, model.precision)
        self._queries.place(device)
        self.model, self.index = self._queries.model, self._queries.index

    def encode(self, tokens: Sequence[TokenIds]) -> list[QueryVectors]:
        """Compute the token vectors of some queries."""
        batches = self._queries.encode(Tokens.of_texts(tokens), np.arange(len(tokens)))
        return [query for _, queries in batches for query in queries]


class Reranker(Loaded):
    """A re-ranker, and the token ids of all passages, mapped from their cache."""

    def __init__(self, model: Model, device: torch.device) -> None:
        super().__init__(model, device, load_reranker)
        self._passages = Tokens(model.files[0], fingerprint(model.folder))
        self.model.place(device, settle(model.precision, device))

    def pairs(self, text: str) -> Pairs:
        """Pair a query, as row 0, with all passages."""
        pairs: Pairs = self.model.pairs(Tokens.of_texts(self.tokenize([text])), self._passages)
        return pairs

    def score(self, text: str, rows: Sequence[int]) -> npt.NDArray[np.float64]:
        """Score the passages in some rows of the collection for a query."""
        if not len(rows):
            return np.empty(0)
        with torch.inference_mode():
            logits = self.pairs(text).score(self.model, np.zeros(len(rows), np.int64), np.asarray(rows), self.device)
        return logits.float().cpu().numpy().astype(np.float64)  # (rows,)


@dataclass(frozen=True)
class VectorSearch:
    """A search of all passages, or of an approximate index of a given width, with the results of its stage."""

    index: Index

    def search(self, vectors: Any, depth: int) -> list[Ranking]:
        """Rank passages for the vector or the token vectors of each query."""
        return list(rank(self.index, [([""] * len(vectors), vectors)], depth))


@dataclass(frozen=True)
class ImpactSearch:
    """Lucene's index of impacts, with the results of the stage `retrieve_impacts`."""

    lucene: LuceneProcess

    def search(self, vectors: Sequence[Impacts], depth: int) -> list[Ranking]:
        """Rank passages for the impacts of each query."""
        texts = [as_text(tokens.tolist(), impacts.tolist()) for tokens, impacts in vectors]
        return self.lucene.search(texts, BY_IMPACTS, depth)


Opened = TypeVar("Opened")


class OnDemand(dict[str, Opened]):
    """What a function opens by name, once each."""

    def __init__(self, open_one: Callable[[str], Opened]) -> None:
        super().__init__()
        self._open = open_one

    def __missing__(self, name: str) -> Opened:
        self[name] = self._open(name)
        return self[name]


@dataclass(frozen=True)
class Models:
    """Retrievers by name of the system, re-rankers by name of the model; each is opened when it is first needed."""

    retrievers: Mapping[str, Retriever]
    rerankers: Mapping[str, Reranker | ServedReranker]


class Opening:
    """Opens models and indexes; systems share them where they can.

    :raises InputError: if files belong to another model, or an audit does not reach its recall.
    """

    def __init__(
        self, results: Results, devices: Sequence[str], threads: int, lucene: Mapping[str, LuceneProcess]
    ) -> None:
        self._lucene = lucene
        self._results, self._device, self._threads = results, torch.device(devices[0]), threads
        self._encoder = cache(lambda name: encoder_of(results, name, self._device))
        memory_mb = memory_limit() // PART_OF_MEMORY >> 20
        self._exact = cache(
            lambda name, reduced: open_exact(
                self._encoder(name).vectors, reduced, devices, threads, memory_mb, one_by_one=True
            )
        )
        self._graph = cache(open_index)
        self._stored = cache(lambda name: StoredVectors(self._encoder(name).vectors))
        self._ivfpq = cache(partial(open_ivfpq, candidates=0))
        self._token_encoder = cache(lambda name: TokenEncoder(with_vectors(results, "rerankers", name), self._device))
        self._sparse = cache(lambda name: SparseQueryEncoder(with_vectors(results, "encoders", name), self._device))
        self.reranker = cache(self._open_reranker)

    def _open_reranker(self, name: str) -> Reranker | ServedReranker:
        if isinstance(service := self._results.rerankers[name], Served):
            limits = self._results.root.endpoint or Endpoint()
            return ServedReranker(service.endpoint, limits, Path(self._results.at(paths.PASSAGES)))
        files = [self._results.tokens("rerankers", name, "passages")]
        return Reranker(model_of(self._results, "rerankers", name, files), self._device)

    def exact(self, encoder: str, reduced: Reduced) -> Retriever:
        """Open an encoder and its vectors of all passages, or smaller ones."""
        return Retriever(self._encoder(encoder), VectorSearch(self._exact(encoder, reduced)))

    def sparse(self, encoder: str) -> Retriever:
        """Open a sparse encoder."""
        return Retriever(self._sparse(encoder), ImpactSearch(self._lucene[encoder]))

    def graph(self, encoder: str, kind: str, folder: Path, width_for: WidthFor) -> Retriever:
        """Open an encoder and a graph."""
        opened, graph = self._encoder(encoder), self._graph(kind, folder)
        refuse_others(folder, graph.meta, opened.vectors)
        return Retriever(opened, VectorSearch(IndexSearch(graph, width_for(opened.fingerprint))))

    def tokens(self, token_encoder: str) -> Retriever:
        """Open a late-interaction model and the token vectors of all passages."""
        encoder = self._token_encoder(token_encoder)
        return Retriever(encoder, VectorSearch(encoder.index))

    def ivfpq(self, name: str, folder: Path, width_for: WidthFor, candidates: int) -> Retriever:
        """Open an encoder or late-interaction model and its IVF-PQ index, which gives `candidates` for each vector."""
        encoder: QueryEncoder | ServedEncoder | TokenEncoder
        passages: StoredVectors | TokenIndex
        if name in self._results.encoders:
            encoder, passages = self._encoder(name), self._stored(name)
        else:
            encoder = self._token_encoder(name)
            passages = encoder.index
        index = replace(self._ivfpq(folder, passages), candidates=candidates)
        return Retriever(encoder, VectorSearch(IvfPqSearch(index, width_for(index.meta.model), self._threads)))


def open_models(
    results: Results,
    opened: Mapping[str, System],
    devices: Sequence[str],
    threads: int,
    lucene: Mapping[str, LuceneProcess],
) -> Models:
    """Return the encoders, vectors, indexes and re-rankers of systems, loaded when they are first needed.

    `opened` and `lucene` may get further systems and indexes later.

    :raises InputError: when it is needed, for what belongs to another model, or an audit that misses its recall.
    """
    # Before tokenizers start threads.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true" if threads > 1 else "false")
    torch.set_num_threads(threads)
    opening = Opening(results, devices, threads, lucene)

    def retriever(name: str) -> Retriever:
        found = opened[name].retriever(opening)
        if found is None:
            raise KeyError(name)
        return found

    return Models(OnDemand(retriever), OnDemand(opening.reranker))
