"""Compare an IVF-PQ index with exact search: with --model by late interaction, without it of an encoder's vectors.

Times do not include the encoding of queries.

Reads:  a re-ranker folder, a token cache of the queries, token vectors of all passages, or embedding shards of
        both; the index, qrels.parquet
Writes: audit.json (see cort/retrieval/audits.py)
"""

from __future__ import annotations

from cort.formats.shards import Tokens
from cort.models.tokenizer import fingerprint
from cort.retrieval.auditing import audit_index, exact_search, sample_queries
from cort.retrieval.rankings import Index
from cort.retrieval.search_options import AuditOptions, IvfPqOptions
from cort.retrieval.vectors import open_vectors
from cort.runtime.devices import lease


class Options(IvfPqOptions, AuditOptions):
    """Options of this stage."""


def stage(options: Options) -> None:
    """Search exactly and with the index, and write how these differ."""
    from cort.models.transformer import choose_device
    from cort.retrieval.exact import StoredVectors
    from cort.retrieval.ivfpq import one_thread_each, open_ivfpq
    from cort.retrieval.token_queries import TokenQueries

    options.check_candidates(options.depths[-1])
    exact: Index
    if options.model is None:
        passages = open_vectors(options.passages)
        queries = passages.open_queries([options.queries])
        index = open_ivfpq(options.index, StoredVectors(passages), options.candidates)
        exact, batches, qrels = exact_search(options, passages, queries)
    else:
        encoder = TokenQueries(options.model, options.passages, options.precision)
        tokens = Tokens(options.queries, fingerprint(options.model))
        index = open_ivfpq(options.index, encoder.index, options.candidates)
        rows, qrels = sample_queries(options, tokens.ids.to_pylist(), tokens.path)
        with lease() as leased:
            encoder.place(choose_device(options.threads, leased))
            batches = [*encoder.encode(tokens, rows)]
        encoder.index.device = "cpu"
        exact = encoder.index
    with one_thread_each():
        audit_index(options, options.kind, index, index.meta.passages, exact, batches, qrels, options.candidates)
