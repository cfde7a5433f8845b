"""Queries of a late-interaction model, for the token vectors that it made of all passages."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from cort.config.fields import PrecisionOrAuto
from cort.formats.shards import TOKEN_VECTORS, Tokens, precision_of_queries
from cort.models.late_interaction import load_late_interaction, origin_of
from cort.models.transformer import choose_device
from cort.models.truncation import log_truncation
from cort.retrieval.max_similarity import QueryVectors, TokenIndex
from cort.retrieval.rankings import QUERIES_AT_ONCE, Index, Rows, rank
from cort.retrieval.search_options import VectorSearchOptions
from cort.retrieval.search_runs import write_rankings
from cort.retrieval.vectors import open_vectors
from cort.runtime.devices import lease
from cort.runtime.errors import input_error

log = logging.getLogger(__name__)


class TokenQueries:
    """A model for queries, and exact search over the passages.

    :param precision: of passages whose files do not say it.
    """

    def __init__(self, folder: str | Path, passages: Sequence[str | Path], precision: PrecisionOrAuto) -> None:
        self.model = load_late_interaction(folder, precision)
        vectors = open_vectors(passages, TOKEN_VECTORS, **asdict(origin_of(folder, self.model)))
        self._precision = precision_of_queries(vectors.precision, precision)
        self.index = TokenIndex(vectors)

    def place(self, device: torch.device) -> None:
        """Encode queries, and search, on a device."""
        self.model.place(device, self._precision)
        self._device, self.index.device = device, device.type

    def truncated_to(self, queries: Tokens) -> int:
        """Return how many tokens of a query the model reads."""
        texts = self.model.texts(queries, "query")
        return texts.max_length - texts.template.extra

    def encode(self, queries: Tokens, rows: Rows) -> Iterator[tuple[list[str], list[QueryVectors]]]:
        """Encode the queries in these rows in batches; yield ids and vectors of each batch.

        :raises InputError: for NaN or infinite values.
        """
        texts = self.model.texts(queries, "query")
        # The size of a batch changes results, because padding changes the last bits.
        for start in range(0, len(rows), QUERIES_AT_ONCE):
            batch = rows[start : start + QUERIES_AT_ONCE]
            tokens = texts.vectors(self.model, batch, self._device)
            if not (np.isfinite(tokens.vectors).all() and np.isfinite(tokens.weights).all()):
                raise input_error(queries.path, "a query with NaN or infinite values", "finite values", "train again")
            ends = np.cumsum(tokens.counts)[:-1]
            pairs = zip(np.split(tokens.vectors, ends), np.split(tokens.weights, ends), strict=True)
            vectors = [QueryVectors(*map(np.ascontiguousarray, pair)) for pair in pairs]
            yield queries.ids.take(batch).to_pylist(), vectors


def search_tokens(options: VectorSearchOptions, encoder: TokenQueries, search: Index, queries: Tokens) -> None:
    """Encode the queries on a leased device, search the passages, or their index, and write a run."""
    log_truncation(log, str(queries.path), queries.lengths, encoder.truncated_to(queries))
    with lease() as leased:
        device = choose_device(options.threads, leased)
        encoder.place(device)
        rankings = rank(search, encoder.encode(queries, np.arange(len(queries))), options.reach)
        write_rankings(options, rankings, len(queries), f"on {device}", min(options.reach, len(encoder.index)))
