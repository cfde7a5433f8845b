"""Sample training pairs of a re-ranker: per epoch and query a judged positive, and its negatives after it.

Reads a qrels table and the candidates' run; writes pairs.parquet (relevance 1 or 0, rows in training order), and how
many queries each filter dropped as JSON. CoRT, section 4.3.1.

Usage: python -m cort.pairs --qrels qrels.train.parquet --run cort+bm25.trec --negatives 1 --output pairs.parquet
              --output-counts pairs.json
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats import tables
from cort.retrieval.options import check_positive
from cort.system import cli
from cort.system.errors import input_error
from cort.system.options import optional, read_options
from cort.training.sampling import Positions, SamplingOptions, draw, draw_distinct, shuffle, write_epochs

# Positives of so many more groups are looked at, in case some are relevant to the query, too.
SPARE = 16
FEWER = "positives with fewer negatives than asked"


@dataclass(frozen=True)
class Groups:
    """What each group is drawn from and holds: one positive and its negatives.

    Negatives come from the ranking of the query but for `random` of them, which are the positives of other queries:
    those next in the random order. A mini-batch so has few different passages, which late interaction encodes once.
    """

    negatives: int = 1
    random: int = 0
    positives: Literal["one", "all"] = "one"


def sample_epoch(pools: pa.RecordBatch, groups: Groups, seed: int, epoch: int) -> pa.Table:
    """Draw one positive, or each, and up to so many different negatives per query; rows are in training order."""
    if groups.positives == "one":
        order, generator = shuffle(pools, seed, epoch)
        positives = draw(pools["positives"], order, generator)
    else:
        lists = pools["positives"]
        generator = np.random.default_rng([seed, epoch])
        sizes = np.diff(lists.offsets.to_numpy())
        drawn_order = generator.permutation(len(lists.values))
        order, positives = np.repeat(np.arange(len(pools)), sizes)[drawn_order], drawn_order
    drawn = draw_distinct(pools["negatives"], order, groups.negatives - groups.random, generator)  # (groups, negatives)
    doc_ids = pa.chunked_array([pools["positives"].values, pools["negatives"].values])
    # Row by row: the positive, then the negatives there are.
    both = np.column_stack([positives, np.where(drawn < 0, -1, drawn + len(pools["positives"].values))])
    if groups.random:
        both = np.column_stack([both, positives_of_others(pools, doc_ids, order, both, groups.random)])
    rows, columns = np.nonzero(both >= 0)
    table = [
        pa.repeat(pa.scalar(epoch, pa.int32()), len(rows)),
        pools["query_id"].take(pa.array(order[rows])),
        doc_ids.take(pa.array(both[rows, columns])),
        pa.array(columns == 0).cast(pa.int32()),
    ]
    return pa.table(table, schema=tables.PAIRS)


def positives_of_others(
    pools: pa.RecordBatch, doc_ids: pa.ChunkedArray, order: Positions, groups: Positions, count: int
) -> Positions:
    """Take the positives of the groups that follow each group, the first following the last.

    Left out are passages that are positives of the group's query, or in the group already.

    :param order: (groups,), the pool of each.
    :param groups: (groups, n), places in `doc_ids`, the positive first.
    :returns: (groups, count), places in `doc_ids`; -1 where there are no more.
    """
    documents = pc.dictionary_encode(doc_ids.combine_chunks()).indices.to_numpy().astype(np.int64)
    lists = pools["positives"]
    judged = np.repeat(np.arange(len(pools)), np.diff(lists.offsets.to_numpy())) * len(documents)
    judged = np.unique(judged + documents[: len(lists.values)])
    total = len(order)
    looked_at = min(count + SPARE, total - 1)
    following = (np.arange(total)[:, None] + np.arange(1, looked_at + 1)) % total
    places = groups[following, 0]  # (groups, looked_at)
    found = documents[places]
    allowed = ~np.isin(order[:, None] * len(documents) + found, judged)
    held = np.where(groups < 0, -1, documents[groups])
    for column in held.T:
        allowed &= found != column[:, None]
    for column in range(1, looked_at):
        allowed[:, column] &= (found[:, :column] != found[:, column, None]).all(1)
    # The first that are allowed, in their order.
    first = np.argsort(~allowed, axis=1, kind="stable")[:, :count]
    taken = np.where(np.take_along_axis(allowed, first, 1), np.take_along_axis(places, first, 1), -1)
    return np.pad(taken, ((0, 0), (0, count - taken.shape[1])), constant_values=-1)


@dataclass(frozen=True, kw_only=True)
class Options(SamplingOptions):
    """Options of this stage."""

    first_rank: int = optional(1)
    negatives: int = optional(1, "negatives per positive")
    random: int = optional(0, "of the negatives, positives of other queries instead of results of the query")
    positives: Literal["one", "all"] = optional("one", "of a query in an epoch")


def stage(options: Options) -> None:
    """Sample and write."""
    check_positive(options, "negatives")
    if options.random > options.negatives:
        raise input_error("--random", str(options.random), f"at most the {options.negatives} negatives", "lower it")
    groups = read_options(Groups, options)

    def sample(pools: pa.RecordBatch, epoch: int, counts: dict[str, int]) -> pa.Table:
        table = sample_epoch(pools, groups, options.seed, epoch)
        starts = np.flatnonzero(table["relevance"].to_numpy() > 0)
        short = int((np.diff(np.append(starts, len(table))) <= options.negatives).sum())
        counts[FEWER] = counts.get(FEWER, 0) + short
        return table

    write_epochs(options, tables.PAIRS, "pairs", sample)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
