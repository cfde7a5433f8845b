"""Exact retrieval by late interaction: the passages whose tokens match those of the query best (ColBERT).

A score is that of the re-ranker for the same pair, up to the half precision of passage vectors.

Reads:  a re-ranker folder, a token cache of the queries, token vectors of all passages
Writes: run.trec
"""

from __future__ import annotations

from cort.formats.shards import Tokens
from cort.models.tokenizer import fingerprint
from cort.retrieval.search_options import TokenOptions, VectorSearchOptions


class Options(TokenOptions, VectorSearchOptions):
    """Options of this stage."""


def stage(options: Options) -> None:
    """Score all passages and write a run."""
    from cort.retrieval.token_queries import TokenQueries, search_tokens

    encoder = TokenQueries(options.model, options.passages, options.precision)
    queries = Tokens(options.queries, fingerprint(options.model))
    search_tokens(options, encoder, encoder.index, queries)
