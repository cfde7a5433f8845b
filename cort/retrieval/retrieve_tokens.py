"""Exact retrieval by late interaction: the passages whose tokens match those of the query best (ColBERT).

A score is that of the re-ranker for the same pair, up to the half precision of passage vectors.

Reads:  a re-ranker folder, a token cache of the queries, token vectors of all passages
Writes: run.trec
"""

from __future__ import annotations

import os

from cort.formats.shards import Tokens
from cort.models.tokenizer import fingerprint
from cort.retrieval.search_options import SearchOptions, TokenOptions
from cort.retrieval.token_runs import search_tokens
from cort.runtime.sections import Threads


class Options(TokenOptions, SearchOptions):
    """Options of this stage."""

    threads: Threads = len(os.sched_getaffinity(0))


def stage(options: Options) -> None:
    """Score all passages and write a run."""
    from cort.retrieval.token_queries import TokenQueries

    encoder = TokenQueries(options.model, options.passages, options.precision)
    queries = Tokens(options.queries, fingerprint(options.model))
    search_tokens(options, options.threads, encoder, encoder.index, queries)
