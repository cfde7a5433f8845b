"""Exact retrieval by late interaction: for each query the passages whose tokens match its tokens best (ColBERT).

The result depends neither on the shards nor on the device (see `cort/retrieval/max_similarity.py`); a score is that
of the re-ranker for the same pair, but for the half precision of the passages' vectors.

Reads:  a re-ranker folder, a token cache of the queries, and what `encode_tokens` wrote of all passages
Writes: run.trec
Usage:  python -m cort.retrieve_tokens --model rerankers/late/best --queries queries.test.arrow
            --passages 1-of-2.arrow 2-of-2.arrow --depth 1000 --threads 4 --tag NAME --output run.trec
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
from cort.models.settings import Precision
from cort.models.tokenizer import fingerprint
from cort.models.truncation import log_truncation
from cort.retrieval.options import RunOptions, check_positive
from cort.system import cli
from cort.system.devices import lease
from cort.system.options import optional, required, thread_count
from cort.system.progress import track

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Options(RunOptions):
    """Options of this stage."""

    model: str = required("FOLDER", "a re-ranker of the kind late_interaction")
    queries: str = required("ARROW", "token cache")
    passages: tuple[str, ...] = required("ARROW", "shards of token vectors, all of them")
    precision: Precision = optional("fp32", "of the transformer")
    threads: int = thread_count(len(os.sched_getaffinity(0)))


def stage(options: Options) -> None:
    """Open the shards, encode the queries, retrieve, write."""
    from cort.models.late_interaction import QUERY, load_token_encoder, origin_of
    from cort.models.transformer import choose_device
    from cort.retrieval.max_similarity import TokenIndex
    from cort.retrieval.token_runs import retrieve

    check_positive(options, "depth")
    model, template = load_token_encoder(options.model)
    shards = open_token_shards(options.passages, origin_of(options.model, model.settings))
    queries = Tokens(options.queries, fingerprint(options.model))
    log_truncation(log, options.queries, queries.lengths, model.settings.query_length - template.extra)
    with lease() as leased:
        device = choose_device(options.threads, leased)
        model.place(device, options.precision)
        texts = model.texts(queries, template, QUERY)
        index = TokenIndex(shards, model.settings.similarity, device.type)
        started = time.perf_counter()
        rankings = retrieve(index, lambda rows: texts.vectors(model, rows, device), queries, options.depth)
        lines = write_run(options.output, track(rankings, len(queries), "queries"), options.tag)
        milliseconds = (time.perf_counter() - started) * 1000 / max(len(queries), 1)
    log.info("%d queries on %s, %d results, %.2f ms per query", len(queries), device, lines, milliseconds)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
