"""Sample training pairs for a re-ranker: per epoch and query a judged positive and its negatives, or all results.

See CoRT, section 4.3.1.

Reads:  a qrels table and the candidates' run
Writes: pairs.parquet (relevance 1 or 0) in training order, and as JSON how many queries each filter dropped
Usage:  python -m cort.pairs --qrels qrels.train.parquet --run cort+bm25.trec --negatives 1 --output pairs.parquet
            --output-counts pairs.json
"""

import sys
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cort.config.models import Pairs
from cort.formats import tables
from cort.formats.ids import joined
from cort.formats.records import Integers
from cort.runtime import cli
from cort.runtime.errors import input_error
from cort.runtime.sections import same_as
from cort.training.draws import draw_negatives
from cort.training.sampling import SamplingOptions, draw, shuffle, write_epochs

# How many more positives of other groups to consider, because some may also be relevant to the query.
SPARE = 16
FEWER = "positives with fewer negatives than requested"


def sample_epoch(
    pools: pa.RecordBatch,
    seed: int,
    epoch: int,
    negatives: int = 1,
    random: int = 0,
    positives: Literal["one", "all", "retrieved"] = "one",
) -> pa.Table:
    """Draw groups in training order: one positive of each query, or all, and up to `negatives` distinct negatives.

    `random` of the negatives are positives of other queries, the next ones in the random order; the others come from
    the ranking of the query. Mini-batches therefore have few distinct passages, each of which late interaction encodes
    only once. With the positives `retrieved`, every result is a pair.
    """
    if positives == "retrieved":
        return all_results(pools, seed, epoch)
    if positives == "one":
        order, generator = shuffle(pools, seed, epoch)
        drawn_positives = draw(pools["positives"], order, generator)
        turns = np.zeros_like(order)
    else:
        offsets = pools["positives"].offsets.to_numpy()
        drawn_positives = np.random.default_rng([seed, epoch]).permutation(len(pools["positives"].values))
        order = np.repeat(np.arange(len(pools)), np.diff(offsets))[drawn_positives]
        turns = drawn_positives - offsets[order]
    drawn = draw_negatives(pools, order, turns, negatives - random, seed, epoch)  # (groups, negatives)
    doc_ids = pa.chunked_array([pools["positives"].values, pools["negatives"].values])
    # Each row has the positive, then the negatives; -1 means none.
    both = np.column_stack([drawn_positives, np.where(drawn < 0, -1, drawn + len(pools["positives"].values))])
    if random:
        both = np.column_stack([both, positives_of_others(pools, doc_ids, order, both, random)])
    rows, columns = np.nonzero(both >= 0)
    table = [
        np.full(len(rows), epoch, np.int32),
        pools["query_id"].take(order[rows]),
        doc_ids.take(both[rows, columns]),
        (columns == 0).astype(np.int32),
    ]
    return pa.table(table, schema=tables.PAIRS)


def all_results(pools: pa.RecordBatch, seed: int, epoch: int) -> pa.Table:
    """Take each result of the pools once, with its judgement, in random order."""
    lists = [pools["retrieved"], pools["negatives"]]
    queries = np.concatenate([np.repeat(np.arange(len(pools)), np.diff(one.offsets.to_numpy())) for one in lists])
    order = np.random.default_rng([seed, epoch]).permutation(len(queries))
    table = [
        np.full(len(order), epoch, np.int32),
        pools["query_id"].take(queries[order]),
        pa.chunked_array([one.values for one in lists]).take(order),
        (order < len(lists[0].values)).astype(np.int32),
    ]
    return pa.table(table, schema=tables.PAIRS)


def positives_of_others(
    pools: pa.RecordBatch, doc_ids: pa.ChunkedArray, order: Integers, groups: Integers, count: int
) -> Integers:
    """Take the positives of the groups that follow each group, wrapping around at the end.

    Passages that are positives of the group's own query, or already in the group, are skipped.

    :param order: (groups,), the pool of each group.
    :param groups: (groups, n), positions in `doc_ids`, the positive first.
    :returns: (groups, count), positions in `doc_ids`, padded with -1.
    """
    documents = pc.dictionary_encode(joined(doc_ids)).indices.to_numpy().astype(np.int64)
    lists, total = pools["positives"], len(order)
    queries = np.repeat(np.arange(len(pools)), np.diff(lists.offsets.to_numpy()))
    judged = queries * len(documents) + documents[: len(lists.values)]
    taken = np.column_stack([groups, np.full((total, count), -1)])
    missing = np.full(total, count)
    for step in range(1, min(count + SPARE, total - 1) + 1):
        places = np.roll(groups[:, 0], -step)
        candidates = documents[places]
        allowed = (missing > 0) & ~np.isin(order * len(documents) + candidates, judged)
        allowed &= (np.where(taken < 0, -1, documents[taken]) != candidates[:, None]).all(1)
        taken[allowed, -missing[allowed]] = places[allowed]
        missing -= allowed
    return taken[:, -count:]


class Options(SamplingOptions):
    """Options of this stage."""

    first_rank: int = same_as(Pairs, "first_rank")
    negatives: int = same_as(Pairs, "negatives")
    random: int = same_as(Pairs, "random")
    positives: Literal["one", "all", "retrieved"] = same_as(Pairs, "positives")


def stage(options: Options) -> None:
    """Sample pairs and write them."""
    if options.random > options.negatives:
        raise input_error("--random", options.random, f"at most the {options.negatives} negatives", "lower it")

    def sample(pools: pa.RecordBatch, epoch: int, counts: dict[str, int]) -> pa.Table:
        how = options.negatives, options.random, options.positives
        table = sample_epoch(pools, options.seed, epoch, *how)
        if options.positives == "retrieved":
            return table
        starts = np.flatnonzero(table["relevance"].to_numpy() > 0)
        short = int((np.diff(np.append(starts, len(table))) <= options.negatives).sum())
        counts[FEWER] = counts.get(FEWER, 0) + short
        return table

    write_epochs(options, tables.PAIRS, "pairs", sample)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
