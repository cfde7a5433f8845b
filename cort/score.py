"""Score query-passage pairs with a re-ranker; a pair that several systems or depths need is scored only once.

Reads a re-ranker folder, token caches, and candidate runs or triples; writes scores.parquet. From the scores of runs,
`rerank` makes runs of any depth; encoders learn from the scores of triples. With a folder of checkpoints, an
interrupted call resumes after the last finished block. With a file of known scores, pairs of the same texts and model
that it, or another one beside it, has are not scored again.

Usage: python -m cort.score --model rerankers/small/best --candidates bm25.trec cort+bm25.trec --depths 1000 20
              --queries queries.test.arrow --passages passages.arrow --output scores.parquet
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cort.config.fields import Cutoff
from cort.formats import tables
from cort.formats.records import Integers
from cort.formats.runs import read_run
from cort.formats.shards import Tokens
from cort.models.known_scores import KnownScores, keys_of
from cort.models.layout import identity
from cort.models.shards import Job, ModelOptions, compute_shard, refuse_others, table_writer
from cort.models.tokenizer import fingerprint
from cort.models.truncation import Limits, log_truncation, read_limits
from cort.retrieval.candidates import BY_IDS, check_depths, distinct_pairs, pairs_of_triples
from cort.runtime import cli
from cort.runtime.errors import input_error
from cort.runtime.sections import ArrowFile, Maybe, ParquetFile, Several, TrecFile

if TYPE_CHECKING:
    from torch import Tensor

    from cort.models.cross_encoder import Pairs
    from cort.models.rerankers import Reranker

log = logging.getLogger(__name__)

# Pairs of a block; on GPUs, blocks change the last bits of the scores.
BLOCK = 8_192


def look_up(pairs: Pairs, limits: Limits, table: pa.Table, source: str) -> tuple[Integers, Integers]:
    """Return the rows of the queries and passages of all pairs, from the file `source`.

    :raises InputError: for unknown ids.
    """
    queries = pairs.queries.rows_of(table["query_id"], source)
    passages = pairs.passages.rows_of(table["doc_id"], source)
    lengths, others = pairs.queries.lengths, pairs.passages.lengths[passages]
    if limits.shared:
        log_truncation(log, "queries of the pairs", lengths[queries], limits.of_queries(others))
    else:
        log_truncation(log, "queries", lengths[np.unique(queries)], limits.query)
    log_truncation(log, "passages of the pairs", others, limits.of_passages(lengths[queries]))
    return queries, passages


class Scoring:
    """Scores pairs in the order in which their model takes them, except those that earlier jobs scored.

    :param table: distinct pairs by query and document id, from the file `source`; `places` are rows of their texts.
    """

    def __init__(
        self,
        options: Options,
        model: Reranker,
        pairs: Pairs,
        table: pa.Table,
        source: str,
        places: tuple[Integers, Integers],
    ) -> None:
        order = pairs.order(*places)
        self.places = places[0][order], places[1][order]
        self._options, self._model, self._pairs, self._source = options, model, pairs, source
        self._table = table.take(order)
        self._known = KnownScores(options.output_known, keys_of(pairs.queries, pairs.passages, self.places))
        self._score: Callable[[Integers, Integers], Tensor] | None = None

    def compute(self, job: Job, rows: Integers) -> pa.RecordBatch:
        """Score consecutive rows.

        :raises InputError: for NaN or infinite scores.
        """
        import torch

        from cort.models.transformer import name_of

        if self._score is None:
            settings = {"device": name_of(job.device), "precision": job.precision}
            self._scores = self._known.find(partial(identity, "cort.score", settings, (), self._options.model))
            self._score = self._pairs.scorer(self._model, job.device)
            job.counter.reach(job.counter.count + int(np.isfinite(self._scores[rows[0] :]).sum()))
        scores = self._scores[rows]  # (rows,)
        if len(new := rows[np.isnan(scores)]):
            with torch.inference_mode():
                scores[np.isnan(scores)] = self._score(*(place[new] for place in self.places)).float().cpu().numpy()
            if self._pairs.shared:
                job.counter.advance(len(new))
        part = self._table.slice(int(rows[0]), len(rows))
        ids = pc.binary_join_element_wise(part["query_id"], part["doc_id"], " ")
        found = f"in {job.precision} a score that is no finite number"
        refuse_others(np.isfinite(scores), ids, self._source, found, what="query and document")
        return part.append_column("score", pa.array(scores)).combine_chunks().to_batches()[0]

    def write(self, batches: Iterator[pa.RecordBatch], count: int, precision: str) -> None:
        """Write scores by query and document id, and keep them for later jobs."""
        scores = pa.Table.from_batches(batches, tables.SCORES)
        parts = scores.sort_by(BY_IDS).to_batches(BLOCK)
        table_writer(self._options.output, tables.SCORES)(iter(parts), count, precision)
        if self._score:
            self._known.keep(scores["score"].to_numpy())


class Options(ModelOptions):
    """Options of this stage."""

    candidates: Several[TrecFile] = ()
    """Runs whose results to score."""
    triples: Maybe[ParquetFile] = None
    """Instead of candidates, triples to train an encoder with."""
    depths: Several[Cutoff] = ()
    """Candidates per query, of each run."""
    queries: ArrowFile
    """Token cache."""
    passages: ArrowFile
    """Token cache."""
    output_known: Maybe[ArrowFile] = None
    """Scores for later jobs; those in its folder are not computed again."""


def stage(options: Options) -> None:
    """Score all pairs and write the scores."""
    from cort.models.rerankers import load_reranker

    if bool(options.candidates) == bool(options.triples):
        found = "both" if options.triples else "neither"
        raise input_error("--candidates, --triples", found, "one of them", "name the runs, or the triples")
    check_depths(options.candidates, options.depths)
    model, limits = load_reranker(options.model, options.precision), read_limits(options.model)
    assert limits is not None  # noqa: S101 - only base models have none
    tokenizer = fingerprint(options.model)
    pairs = model.pairs(Tokens(options.queries, tokenizer), Tokens(options.passages, tokenizer))
    if options.triples:
        table, source = pairs_of_triples(tables.read_table(options.triples, tables.TRIPLES)), options.triples
    else:
        source = ", ".join(options.candidates)
        table = distinct_pairs(map(read_run, options.candidates), options.depths)
    log.info("%d different pairs in %s", table.num_rows, source)
    places = look_up(pairs, limits, table, source)
    scoring = Scoring(options, model, pairs, table, source, places)
    lengths = pairs.lengths(*scoring.places)
    compute_shard("cort.score", options, model, lengths, BLOCK, scoring.compute, scoring.write, "pairs", pairs.shared)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
