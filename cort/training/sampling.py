"""Training examples drawn from judgements and rankings, for `triples` (encoders) and `pairs` (re-rankers).

Each query has a pool of positives, which are judged relevant, and of negatives, which are within a range of ranks but
not judged relevant. Data are in columns, because MS MARCO's training queries have fifty million results.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cort.config.collection import AnySplit
from cort.config.fields import Seed
from cort.config.models import Triples
from cort.formats import tables
from cort.formats.artifacts import write_artifact
from cort.formats.ids import concatenated, joined, positions
from cort.formats.records import Integers, offsets_of
from cort.formats.runs import Run, read_run
from cort.runtime.errors import input_error
from cort.runtime.sections import JsonFile, ParquetFile, Several, TrecFile, same_as
from cort.training.draws import DrawOptions

log = logging.getLogger(__name__)


class SamplingOptions(DrawOptions):
    """Options that `triples` and `pairs` share; `pairs` has another default of `first_rank`."""

    qrels: ParquetFile
    run: Several[TrecFile]
    """Where negatives come from: one run, or several together; each whole, or what `negatives` kept of it."""
    relevance_level: int = same_as(AnySplit, "relevance_level")
    minimum_results: int = same_as(Triples, "minimum_results")
    maximum_queries: int = same_as(Triples, "maximum_queries")
    seed: int = same_as(Seed, "seed")
    output: ParquetFile
    output_counts: JsonFile


def write_epochs(
    options: SamplingOptions,
    schema: pa.Schema,
    examples: str,
    sample_epoch: Callable[[pa.RecordBatch, int, dict[str, int]], pa.Table],
    least: int = 1,
) -> None:
    """Sample and write the examples of all epochs; log and write the counts.

    :param examples: what the log calls them.
    :param sample_epoch: called with the pools, an epoch, and the counts, to which it may add.
    :param least: negatives of a pool.
    """
    (pools, counts), rows = read_pools(options, least), 0
    with tables.open_writer(options.output, schema) as writer:
        for epoch in range(options.epochs):
            table = sample_epoch(pools, epoch, counts)
            writer.write_table(table)
            rows += table.num_rows
        write_artifact(options.output_counts, counts)
    for name, count in counts.items():
        log.info("%s: %d", name, count)
    log.info("wrote %d %s of %d epochs", rows, examples, options.epochs)


def read_pools(options: SamplingOptions, least: int) -> tuple[pa.RecordBatch, dict[str, int]]:
    """Read the files and build pools; return what `build_pools` returns."""
    qrels = tables.read_table(options.qrels, tables.QRELS)
    results = join_runs([read_run(path, gaps=True) for path in options.run], options.first_rank, options.last_rank)
    pools, counts = build_pools(qrels, options.relevance_level, results, options.minimum_results, least)
    pools = limit_pools(pools, options.maximum_queries, options.seed)
    counts["dropped: more than maximum_queries"] = counts.pop("queries kept") - len(pools)
    counts["queries kept"] = len(pools)
    if not len(pools):
        fix = "check that run and qrels belong together, or widen the ranks"
        raise input_error(", ".join(options.run), f"no query to train on ({counts})", "at least one", fix)
    return pools, counts


@dataclass(frozen=True)
class Results:
    """Results within a range of ranks, sorted by query: row i belongs to query ``queries[i]``.

    `sizes` has the length of each query's longest ranking.
    """

    query_ids: pa.Array
    sizes: Integers
    queries: Integers
    doc_ids: pa.Array
    ranks: Integers


def join_runs(runs: Sequence[Run], first_rank: int, last_rank: int) -> Results:
    """Collect the results between two ranks, both inclusive; a document in several runs gets its best rank.

    Queries are in the order in which they first occur, their results by rank and run.
    """
    query_ids = pa.array(dict.fromkeys(query_id for run in runs for query_id in run.query_ids), pa.string())
    sizes, parts = np.zeros(len(query_ids), np.int64), []
    for run in runs:
        numbers, ranks = positions(pa.array(run.query_ids, pa.string()), query_ids), run.ranks()
        np.maximum.at(sizes, numbers, ranks[run.offsets[1:] - 1])
        kept = np.flatnonzero((ranks >= first_rank) & (ranks <= last_rank))
        parts.append((numbers[run.query_numbers()[kept]], run.doc_ids.take(pa.array(kept)), ranks[kept]))
    queries, ranks = (np.concatenate([part[column] for part in parts]) for column in (0, 2))
    doc_ids = concatenated([part[1] for part in parts])
    if len(runs) > 1:
        # The sort is stable: for the same document and rank, the result of the first run is kept.
        order = np.lexsort((ranks, queries))
        documents = pc.dictionary_encode(doc_ids).indices.to_numpy()[order]
        _, first = np.unique(queries[order] * (len(doc_ids) + 1) + documents, return_index=True)
        order = order[np.sort(first)]
        queries, doc_ids, ranks = queries[order], doc_ids.take(pa.array(order)), ranks[order]
    return Results(query_ids, sizes, queries, doc_ids, ranks)


def build_pools(
    qrels: pa.Table, relevance_level: int, results: Results, minimum_results: int, least: int = 1
) -> tuple[pa.RecordBatch, dict[str, int]]:
    """Build a pool per query, and count what each filter drops.

    Columns: `query_id`, the lists `positives` and `negatives`, `ranks` of the negatives, and the positives among the
    results, `retrieved`. Queries whose longest ranking is shorter than `minimum_results` are dropped.
    """
    relevant = qrels.filter(pc.greater_equal(qrels["relevance"], relevance_level))
    query_ids, queries = results.query_ids, results.queries
    judged_queries = positions(relevant["query_id"], query_ids)
    without_results = pc.count_distinct(relevant["query_id"].filter(pa.array(judged_queries < 0))).as_py()
    judged = np.bincount(judged_queries[judged_queries >= 0], minlength=len(query_ids))
    long_enough = results.sizes >= minimum_results

    inside = (judged > 0)[queries] & long_enough[queries]
    excluded = inside & _are_judged(queries, results.doc_ids, judged_queries, relevant["doc_id"])
    negatives = np.flatnonzero(inside & ~excluded)
    left = np.bincount(queries[negatives], minlength=len(query_ids))

    enough = left >= least
    kept = np.flatnonzero(enough)
    counts = {
        "queries in the ranking": len(query_ids),
        "dropped: no judged positive": int((judged == 0).sum()),
        "dropped: ranking too short": int(((judged > 0) & ~long_enough).sum()),
        "dropped: too few negatives left on these ranks": int(((judged > 0) & long_enough & ~enough).sum()),
        "judged positives excluded from the negatives": int(excluded.sum()),
        "queries kept": len(kept),
        "queries without results": without_results,
    }
    # The sort is stable: positives stay in the order of the file.
    positives, rows = joined(relevant["doc_id"]), np.flatnonzero(np.isin(judged_queries, kept))
    by_query = rows[np.argsort(judged_queries[rows], kind="stable")]
    negatives = negatives[enough[queries[negatives]]]
    retrieved = np.flatnonzero(excluded & enough[queries])
    found = np.bincount(queries[retrieved], minlength=len(query_ids))
    columns = {
        "query_id": query_ids.take(pa.array(kept)),
        "positives": _lists(judged[kept], positives.take(pa.array(by_query)).cast(results.doc_ids.type)),
        "negatives": _lists(left[kept], results.doc_ids.take(pa.array(negatives))),
        "ranks": _lists(left[kept], pa.array(results.ranks[negatives], pa.int32())),
        "retrieved": _lists(found[kept], results.doc_ids.take(pa.array(retrieved))),
    }
    return pa.record_batch(columns), counts


def limit_pools(pools: pa.RecordBatch, maximum: int, seed: int) -> pa.RecordBatch:
    """Keep at most `maximum` pools, drawn at random and in their original order; 0 keeps all."""
    if not 0 < maximum < len(pools):
        return pools
    drawn = np.random.default_rng(seed).choice(len(pools), size=maximum, replace=False)
    return pools.take(pa.array(np.sort(drawn)))


def shuffle(pools: pa.RecordBatch, seed: int, epoch: int) -> tuple[Integers, np.random.Generator]:
    """Return the positions of the pools in the random order of an epoch, and the generator for its examples."""
    generator = np.random.default_rng([seed, epoch])
    return generator.permutation(len(pools)), generator


def draw(lists: pa.ListArray, chosen: Integers, generator: np.random.Generator) -> Integers:
    """Draw one value from each of the chosen lists, none of them empty; positions in ``lists.values``."""
    offsets = lists.offsets.to_numpy().astype(np.int64)
    drawn: Integers = offsets[chosen] + generator.integers(0, np.diff(offsets)[chosen])
    return drawn


def _are_judged(
    queries: Integers, doc_ids: pa.Array, judged_queries: Integers, judged_documents: pa.ChunkedArray
) -> npt.NDArray[np.bool_]:
    """Mark the (query, document) pairs that are judged."""
    encoded = pc.dictionary_encode(doc_ids)
    documents = positions(judged_documents, encoded.dictionary)
    known = (judged_queries >= 0) & (documents >= 0)
    pairs = judged_queries[known] * len(encoded.dictionary) + documents[known]
    return np.isin(queries * len(encoded.dictionary) + encoded.indices.to_numpy(), pairs)


def _lists(sizes: Integers, values: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(offsets_of(sizes), pa.int32()), values)
