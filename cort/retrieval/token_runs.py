"""Runs of searches by the tokens of queries (late interaction)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from cort.formats.shards import Tokens
from cort.models.truncation import log_truncation
from cort.retrieval.rankings import Index, rank
from cort.retrieval.search_options import SearchOptions
from cort.retrieval.search_runs import write_rankings
from cort.runtime.devices import lease

if TYPE_CHECKING:
    from cort.retrieval.token_queries import TokenQueries


log = logging.getLogger(__name__)


def search_tokens(options: SearchOptions, threads: int, encoder: TokenQueries, search: Index, queries: Tokens) -> None:
    """Encode the queries on a leased device, search the passages, or their index, and write a run."""
    from cort.models.transformer import choose_device

    log_truncation(log, str(queries.path), queries.lengths, encoder.truncated_to(queries))
    with lease() as leased:
        device = choose_device(threads, leased)
        encoder.place(device)
        rankings = rank(search, encoder.encode(queries, np.arange(len(queries))), options.reach)
        write_rankings(options, rankings, len(queries), f"on {device}", min(options.reach, len(encoder.index)))
