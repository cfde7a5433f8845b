"""Training examples drawn from judgements and rankings: shared by `triples` (CoRT) and `pairs` (re-ranker).

Per query: its judged positives, and the documents that rankers put on the ranks asked for, judged positives excluded.
All in columns: MS MARCO's training queries have fifty million results.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats import tables
from cort.formats.ids import positions
from cort.formats.runs import Run, read_run
from cort.system.errors import input_error
from cort.system.files import write_text
from cort.system.options import optional, required

log = logging.getLogger(__name__)

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """Options that `triples` and `pairs` share; a re-ranker's first rank is another."""

    qrels: str = required("PARQUET")
    run: tuple[str, ...] = required("TREC", "where negatives come from: one run, or several together")
    relevance_level: int = optional(1, "lowest grade that counts as positive")
    first_rank: int = optional(8)
    last_rank: int = optional(100)
    minimum_results: int = optional(10)
    maximum_queries: int = optional(0, "draw this many queries at random; 0: all")
    epochs: int = optional(10)
    seed: int = optional(42)
    output: str = required("PARQUET")
    output_counts: str = required("JSON")


def write_epochs(
    options: SamplingOptions, schema: pa.Schema, examples: str, sample_epoch: Callable[[pa.RecordBatch, int], pa.Table]
) -> None:
    """Sample `examples` of all epochs from the pools the options ask for, and write them; log and write the counts."""
    pools, rows = read_pools(options), 0
    with tables.open_writer(options.output, schema) as writer:
        for epoch in range(options.epochs):
            table = sample_epoch(pools, epoch)
            writer.write_table(table)
            rows += table.num_rows
    log.info("wrote %d %s of %d epochs", rows, examples, options.epochs)


def read_pools(options: SamplingOptions) -> pa.RecordBatch:
    """Build the pools the options ask for, as `build_pools` does; log and write the counts."""
    if options.first_rank < 1:
        raise input_error("--first-rank", str(options.first_rank), "1 or more", "ranks count from 1")
    qrels = tables.read_table(options.qrels, tables.QRELS)
    results = join_runs([read_run(path) for path in options.run], options.first_rank, options.last_rank)
    pools, counts = build_pools(qrels, options.relevance_level, results, options.minimum_results)
    pools = limit_pools(pools, options.maximum_queries, options.seed)
    counts["dropped: more than maximum_queries"] = counts.pop("queries kept") - len(pools)
    counts["queries kept"] = len(pools)
    for name, count in counts.items():
        log.info("%s: %d", name, count)
    if not len(pools):
        fix = "check that run and qrels belong together, or widen the ranks"
        raise input_error(", ".join(options.run), f"no query to train on ({counts})", "at least one", fix)
    write_text(options.output_counts, json.dumps(counts, indent=2) + "\n")
    return pools


@dataclass(frozen=True)
class Results:
    """What rankers put on the ranks asked for, by query: row i is of query ``queries[i]``.

    Of each query, `sizes` counts the results of its longest ranking.
    """

    query_ids: pa.Array
    sizes: Positions
    queries: Positions
    doc_ids: pa.Array
    ranks: Positions


def join_runs(runs: Sequence[Run], first_rank: int, last_rank: int) -> Results:
    """Collect the results on some ranks, from 1, both inclusive; a document that several runs have, at its best rank.

    Queries are in the order of the first run that has them, their results in the order of rank and run.
    """
    query_ids = pa.array(dict.fromkeys(query_id for run in runs for query_id in run.query_ids), pa.string())
    sizes, parts = np.zeros(len(query_ids), np.int64), []
    for run in runs:
        numbers, ranks = positions(pa.array(run.query_ids, pa.string()), query_ids), run.ranks()
        np.maximum.at(sizes, numbers, np.diff(run.offsets))
        kept = np.flatnonzero((ranks >= first_rank) & (ranks <= last_rank))
        parts.append((numbers[run.query_numbers()[kept]], run.doc_ids.take(pa.array(kept)), ranks[kept]))
    queries, ranks = (np.concatenate([part[column] for part in parts]) for column in (0, 2))
    doc_ids = pa.concat_arrays([part[1] for part in parts])
    if len(runs) > 1:
        # Stable, so that of one document at one rank the first run's comes first, and only the first is kept.
        order = np.lexsort((ranks, queries))
        documents = pc.dictionary_encode(doc_ids).indices.to_numpy()[order]
        _, first = np.unique(queries[order] * (len(doc_ids) + 1) + documents, return_index=True)
        order = order[np.sort(first)]
        queries, doc_ids, ranks = queries[order], doc_ids.take(pa.array(order)), ranks[order]
    return Results(query_ids, sizes, queries, doc_ids, ranks)


def build_pools(
    qrels: pa.Table, relevance_level: int, results: Results, minimum_results: int
) -> tuple[pa.RecordBatch, dict[str, int]]:
    """Collect what examples are drawn from, in the order of the queries, and count what each filter dropped.

    Rows are of one query each: `query_id`, the lists `positives` and `negatives`, and `ranks` of the negatives in their
    ranking. Queries whose longest ranking is shorter than `minimum_results` are dropped.
    """
    relevant = qrels.filter(pc.greater_equal(qrels["relevance"], relevance_level)).combine_chunks()
    query_ids, queries = results.query_ids, results.queries
    asked = positions(relevant["query_id"], query_ids)
    without_results = pc.count_distinct(relevant["query_id"].filter(pa.array(asked < 0))).as_py()
    judged = np.bincount(asked[asked >= 0], minlength=len(query_ids))
    long_enough = results.sizes >= minimum_results

    inside = (judged > 0)[queries] & long_enough[queries]
    excluded = inside & _are_judged(queries, results.doc_ids, asked, relevant["doc_id"])
    negatives = np.flatnonzero(inside & ~excluded)
    left = np.bincount(queries[negatives], minlength=len(query_ids))

    kept = np.flatnonzero(left)
    counts = {
        "queries in the ranking": len(query_ids),
        "dropped: no judged positive": int((judged == 0).sum()),
        "dropped: ranking too short": int(((judged > 0) & ~long_enough).sum()),
        "dropped: no negative left on these ranks": int(((judged > 0) & long_enough & (left == 0)).sum()),
        "judged positives excluded from the negatives": int(excluded.sum()),
        "queries kept": len(kept),
        "queries without results": without_results,
    }
    # Stable, so that the positives of a query stay in the order of their file.
    wanted = asked >= 0
    wanted[wanted] = left[asked[wanted]] > 0
    by_query = np.argsort(asked, kind="stable")
    by_query = by_query[wanted[by_query]]
    columns = {
        "query_id": query_ids.take(pa.array(kept)),
        "positives": _lists(judged[kept], relevant["doc_id"].combine_chunks().take(pa.array(by_query))),
        "negatives": _lists(left[kept], results.doc_ids.take(pa.array(negatives))),
        "ranks": _lists(left[kept], pa.array(results.ranks[negatives], pa.int32())),
    }
    return pa.record_batch(columns), counts


def limit_pools(pools: pa.RecordBatch, maximum: int, seed: int) -> pa.RecordBatch:
    """Keep at most `maximum` pools drawn at random, in their order; 0 keeps all."""
    if not 0 < maximum < len(pools):
        return pools
    drawn = np.random.default_rng(seed).choice(len(pools), size=maximum, replace=False)
    return pools.take(pa.array(np.sort(drawn)))


def shuffle(pools: pa.RecordBatch, seed: int, epoch: int) -> tuple[Positions, np.random.Generator]:
    """Positions of the pools in the random order of one epoch, and the generator to draw its examples from."""
    generator = np.random.default_rng([seed, epoch])
    return generator.permutation(len(pools)), generator


def draw(lists: pa.ListArray, some: Positions, generator: np.random.Generator) -> Positions:
    """Draw one value from each of some lists, none of them empty; positions in ``lists.values``."""
    offsets = lists.offsets.to_numpy().astype(np.int64)
    drawn: Positions = offsets[some] + generator.integers(0, np.diff(offsets)[some])
    return drawn


def draw_distinct(lists: pa.ListArray, some: Positions, count: int, generator: np.random.Generator) -> Positions:
    """Draw `count` different values from each of some lists; shape (lists, count), -1 where a list has no more."""
    offsets = lists.offsets.to_numpy().astype(np.int64)
    sizes = np.diff(offsets)[some]
    drawn = np.full((len(some), count), -1)
    for column in range(count):
        rest = np.maximum(sizes - column, 1)
        place = generator.integers(0, rest)
        # The place is one among those not yet drawn: step over the others, from the lowest on.
        for taken in np.sort(drawn[:, :column], axis=1).T:
            place += place >= taken
        drawn[:, column] = np.where(column < sizes, place, np.iinfo(np.int64).max)
    inside = drawn < sizes[:, None]
    return np.where(inside, drawn + offsets[some][:, None], -1)


def _are_judged(
    queries: Positions, doc_ids: pa.Array, judged_queries: Positions, judged_documents: pa.ChunkedArray
) -> npt.NDArray[np.bool_]:
    """Whether each (query, document) is among the judged ones."""
    encoded = pc.dictionary_encode(doc_ids)
    documents = positions(judged_documents, encoded.dictionary)
    known = (judged_queries >= 0) & (documents >= 0)
    pairs = judged_queries[known] * len(encoded.dictionary) + documents[known]
    return np.isin(queries * len(encoded.dictionary) + encoded.indices.to_numpy(), pairs)


def _lists(sizes: Positions, values: pa.Array) -> pa.ListArray:
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)
