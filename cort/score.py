"""Score query-passage pairs with a re-ranker; a pair that several systems or depths need is scored only once.

Reads a re-ranker folder, token caches, and candidate runs or triples; writes scores.parquet. From the scores of runs,
`rerank` makes runs of any depth; encoders learn from the scores of triples. With a folder of checkpoints, finished
blocks are kept there until all pairs are scored, so that an interrupted call resumes after the last one.

Usage: python -m cort.score --model rerankers/small/best --candidates bm25.trec cort+bm25.trec --depth 1000
              --queries queries.test.arrow --passages passages.arrow --output scores.parquet
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cort.formats import tables
from cort.formats.blocks import FinishedBlocks
from cort.formats.runs import Run, read_run
from cort.formats.tokens import Tokens
from cort.models.tokenizer import fingerprint
from cort.models.truncation import log_truncation, passage_limit, query_limit
from cort.retrieval.options import check_positive
from cort.settings import models
from cort.settings.fields import Precision
from cort.system import cli
from cort.system.devices import lease
from cort.system.errors import input_error, shorten
from cort.system.options import optional, options_class, required, thread_count
from cort.system.progress import Counter

if TYPE_CHECKING:
    import torch

    from cort.models.rerankers import PairsToScore, Reranker

log = logging.getLogger(__name__)

# Pairs sorted by length together. Not a setting, because padding changes the last bits of the scores.
BLOCK = 8_192


def distinct_pairs(runs: Iterable[Run], depth: int) -> pa.Table:
    """Collect the distinct pairs within the top `depth` of the runs, sorted by query and document id."""
    parts = []
    for run in runs:
        kept = np.flatnonzero(run.ranks() <= depth)
        queries = pa.array(run.query_ids, "string").take(run.query_numbers()[kept])
        parts.append(pa.table({"query_id": queries, "doc_id": run.doc_ids.take(kept)}))
    return _distinct(parts)


def pairs_of_triples(triples: pa.Table) -> pa.Table:
    """Collect the distinct pairs of a query with its positive or negative, sorted by query and document id."""
    names = ["query_id", "doc_id"]
    parts = [triples.select(["query_id", column]).rename_columns(names) for column in ("positive", "negative")]
    return _distinct(parts)


def _distinct(parts: list[pa.Table]) -> pa.Table:
    pairs = pa.concat_tables(parts).group_by(["query_id", "doc_id"], use_threads=False).aggregate([])
    return pairs.sort_by([("query_id", "ascending"), ("doc_id", "ascending")])


def make_scorer(
    model: Reranker, pairs: PairsToScore, table: pa.Table, source: str, device: torch.device, precision: str
) -> Callable[[int], pa.RecordBatch]:
    """Look up all pairs; return a function that scores the block from a row on.

    :param source: of the pairs, for messages, as is the `precision`.
    :raises InputError: for unknown ids, and NaN or infinite scores.
    """
    import torch

    queries = pairs.queries.rows_of(table["query_id"], source)
    passages = pairs.passages.rows_of(table["doc_id"], source)
    settings, template, lengths = pairs.settings, pairs.template, pairs.queries.lengths
    log_truncation(log, "queries", lengths[np.unique(queries)], query_limit(settings, template))
    limit = passage_limit(settings, template, lengths[queries])
    log_truncation(log, "passages of the pairs", pairs.passages.lengths[passages], limit)

    def score_block(start: int) -> pa.RecordBatch:
        part = slice(start, start + BLOCK)
        with torch.inference_mode():
            scores = pairs.score(model, queries[part], passages[part], device).float().cpu().numpy()  # (block,)
        rows = table.slice(start, BLOCK)
        for row in np.flatnonzero(~np.isfinite(scores)).tolist():
            query_id, doc_id = (shorten(rows[name][row].as_py()) for name in ("query_id", "doc_id"))
            found = f"the score {scores[row]} in {precision}, of query {query_id} and document {doc_id}"
            raise input_error(source, found, "a finite number", "use precision fp32 or train the re-ranker again")
        return rows.append_column("score", pa.array(scores)).combine_chunks().to_batches()[0]

    return score_block


@options_class
class Options:
    """Options of this stage."""

    model: str = required("FOLDER")
    candidates: tuple[str, ...] = optional((), "runs whose results to score", "TREC")
    triples: str | None = optional(None, "instead of candidates, triples to train an encoder with", "PARQUET")
    depth: int = optional(models.Reranker.depth, "candidates per query and run")
    queries: str = required("ARROW", "token cache")
    passages: str = required("ARROW", "token cache")
    precision: Precision = optional(models.Reranker.precision)
    threads: int = thread_count()
    checkpoints: str | None = optional(None, "keep finished blocks here until all pairs are scored", "FOLDER")
    output: str = required("PARQUET")


def stage(options: Options) -> None:
    """Score all pairs and write the scores."""
    from cort.models.rerankers import load_reranker
    from cort.models.transformer import choose_device, identity, resume

    if bool(options.candidates) == bool(options.triples):
        found = "both" if options.triples else "neither"
        raise input_error("--candidates, --triples", found, "one of them", "name the runs, or the triples")
    check_positive(options, "depth")
    model, template = load_reranker(options.model)
    tokenizer = fingerprint(options.model)
    pairs = model.pairs(Tokens(options.queries, tokenizer), Tokens(options.passages, tokenizer), template)
    if options.triples:
        table, source = pairs_of_triples(tables.read_table(options.triples, tables.TRIPLES)), options.triples
        log.info("%d different pairs of triples", table.num_rows)
    else:
        table = distinct_pairs((read_run(path) for path in options.candidates), options.depth)
        log.info("%d different pairs of %d runs at depth %d", table.num_rows, len(options.candidates), options.depth)
        source = ", ".join(options.candidates)
    with lease() as leased, tables.open_writer(options.output, tables.SCORES) as writer:
        device = choose_device(options.threads, leased)
        decisive = {"precision": options.precision, "device": device.type, "depth": options.depth}
        files = [options.triples] if options.triples else sorted(options.candidates)
        identify = partial(identity, "cort.score", decisive, [*files, options.queries, options.passages], options.model)
        finished = FinishedBlocks(options.checkpoints, identify)
        model.place(device, options.precision)
        score_block = make_scorer(model, pairs, table, source, device, options.precision)
        numbered = list(enumerate(range(0, table.num_rows, BLOCK)))
        with Counter(table.num_rows, "pairs") as counter:
            resume(model, finished, device, counter)
            for block in finished.each(numbered, score_block, counter):
                writer.write_batch(block)
    finished.remove(number for number, _ in numbered)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
