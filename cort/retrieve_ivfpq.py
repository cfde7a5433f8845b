"""Retrieval by late interaction from an IVF-PQ index: candidates from the index, scored exactly (ColBERT, end to end).

For each token of a query the index gives the `candidates` nearest vectors in the `probes` nearest lists; more of either
find more and take longer. The passages of all these are scored as `retrieve_tokens` scores all passages, so that one
that is found has the same score. With --audit, probes are the fewest there with at least the --recall of exact
retrieval at the audit's depth.

Reads:  a re-ranker folder, a token cache of the queries, what `encode_tokens` wrote of all passages, the folder that
        `ivfpq` wrote of that; with --audit, what `audit_tokens` found
Writes: run.trec
Usage:  python -m cort.retrieve_ivfpq --model rerankers/late/best --queries queries.test.arrow
            --passages 1-of-2.arrow 2-of-2.arrow --index ivfpq --width 32 --candidates 1024 --depth 1000 --threads 4
            --tag NAME --output run.trec
"""

from __future__ import annotations

import logging
import os
import sys
import time
from dataclasses import dataclass

from cort.formats.runs import write_run
from cort.formats.token_embeddings import open_token_shards
from cort.formats.tokens import Tokens
from cort.models.tokenizer import fingerprint
from cort.models.truncation import log_truncation
from cort.retrieval.audits import audited_width
from cort.retrieval.graphs import TOKEN_INDEXES
from cort.retrieval.options import IvfPqOptions, RunOptions, check_positive, refuse_without_effect
from cort.system import cli
from cort.system.devices import lease
from cort.system.errors import input_error
from cort.system.options import optional, required, thread_count
from cort.system.progress import track

log = logging.getLogger(__name__)

KIND = TOKEN_INDEXES["ivfpq"]


@dataclass(frozen=True, kw_only=True)
class Options(IvfPqOptions, RunOptions):
    """Options of this stage."""

    model: str = required("FOLDER", "a re-ranker of the kind late_interaction")
    queries: str = required("ARROW", "token cache")
    width: float | None = optional(None, f"{KIND.parameter} (default {KIND.default})", "N")
    audit: str | None = optional(None, "takes the place of --width: what `audit_tokens` wrote", "JSON")
    recall: float = optional(0.99, "with --audit: of exact retrieval", "R")
    threads: int = thread_count(len(os.sched_getaffinity(0)))


def stage(options: Options) -> None:
    """Open shards and index, encode the queries, search, write."""
    from cort.models.late_interaction import QUERY, load_token_encoder, origin_of
    from cort.models.transformer import choose_device
    from cort.retrieval.ivfpq import IvfPqSearch, open_ivfpq
    from cort.retrieval.max_similarity import TokenIndex
    from cort.retrieval.token_runs import retrieve

    check_positive(options, "depth", "candidates")
    if not 0 < options.recall <= 1:
        raise input_error("--recall", f"{options.recall:g}", "more than 0, at most 1", "fix the option")
    refuse_without_effect(options, *(("beside --audit", "width") if options.audit else ("without --audit", "recall")))
    model, template = load_token_encoder(options.model)
    origin = origin_of(options.model, model.settings)
    shards = open_token_shards(options.passages, origin)
    index = open_ivfpq(options.index, shards, TokenIndex(shards, model.settings.similarity))
    width = KIND.default if options.width is None else options.width
    if options.audit is not None:
        width = audited_width(options.audit, options.kind, origin.model, options.recall)
    (probes,) = KIND.check("--width", [width], options.depth)
    queries = Tokens(options.queries, fingerprint(options.model))
    log_truncation(log, options.queries, queries.lengths, model.settings.query_length - template.extra)
    search = IvfPqSearch(index, int(probes), options.candidates, options.threads)
    with lease() as leased:
        device = choose_device(options.threads, leased)
        model.place(device, options.precision)
        texts = model.texts(queries, template, QUERY)
        started = time.perf_counter()
        rankings = retrieve(search, lambda rows: texts.vectors(model, rows, device), queries, options.depth)
        lines = write_run(options.output, track(rankings, len(queries), "queries"), options.tag)
        milliseconds = (time.perf_counter() - started) * 1000 / max(len(queries), 1)
    words = (len(queries), lines, milliseconds, probes, options.candidates)
    log.info("%d queries, %d results, %.2f ms per query at probes %d, candidates %d", *words)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
