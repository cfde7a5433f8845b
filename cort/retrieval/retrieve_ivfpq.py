"""Retrieval of candidates from an IVF-PQ index, which are scored exactly from the vectors of all passages.

The index returns the `candidates` nearest vectors in the nearest lists; the width is the number of these lists
(probes). With --model, it does so for each token of a query (ColBERT, end to end). Passages get the same scores as
from `retrieve tokens` or, without --model, `retrieve exact`.

Reads:  a re-ranker folder, a token cache of the queries, token vectors of all passages, or embedding shards of
        both; the index; with --audit, what `audit` wrote
Writes: run.trec
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cort.formats.shards import Tokens
from cort.models.tokenizer import fingerprint
from cort.retrieval.search_options import IvfPqOptions
from cort.retrieval.search_runs import search_vectors
from cort.retrieval.vectors import open_vectors
from cort.retrieval.width import WidthOptions, choose_width

if TYPE_CHECKING:
    from cort.retrieval.ivfpq import IvfPqSearch, Scoring


log = logging.getLogger(__name__)


class Options(IvfPqOptions, WidthOptions):
    """Options of this stage."""


def stage(options: Options) -> None:
    """Score the candidates that the index finds, and write a run."""
    from cort.retrieval.exact import StoredVectors
    from cort.retrieval.ivfpq import IvfPqSearch, open_ivfpq
    from cort.retrieval.token_queries import TokenQueries, search_tokens

    options.check_candidates(options.reach)

    def open_search(passages: Scoring) -> IvfPqSearch:
        index = open_ivfpq(options.index, passages, options.candidates)
        probes = choose_width(options, options.kind, index.meta.model)
        log.info("probes %d, candidates %d", probes, options.candidates)
        return IvfPqSearch(index, probes, options.threads)

    if options.model is None:
        passages = open_vectors(options.passages)
        vectors, search = passages.open_queries([options.queries]), open_search(StoredVectors(passages))
        search_vectors(options, search, vectors, "through the index", len(passages))
        return
    encoder = TokenQueries(options.model, options.passages, options.precision)
    search, queries = open_search(encoder.index), Tokens(options.queries, fingerprint(options.model))
    search_tokens(options, encoder, search, queries)
