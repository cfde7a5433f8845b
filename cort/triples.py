"""Sample training triples: per epoch and query one judged positive and one negative from a ranker's run.

The ranker is the one to be complemented, so its high ranks are what the encoder learns to tell apart (CoRT, section
3.3; ranks 8 to 100 in the authors' experiments). Rows are in training order.

Reads a qrels table and a run; writes triples.parquet, and how many queries each filter dropped as JSON.

Usage: python -m cort.triples --qrels qrels.train.parquet --run bm25.trec --epochs 10 --output triples.parquet
              --output-counts triples.json
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterator, Sequence

import pyarrow as pa

from cort.formats import tables
from cort.formats.runs import read_run
from cort.system import cli
from cort.system.errors import input_error
from cort.system.files import write_text
from cort.training.sampling import Pools, build_pools, draw, limit_pools, shuffle

log = logging.getLogger(__name__)


def sample_epoch(pools: Pools, seed: int, epoch: int) -> pa.Table:
    """Draw one triple per query, in random order."""
    order, generator = shuffle(pools, seed, epoch)
    positives = draw(pools.positives, order, generator)
    negatives = pa.array(draw(pools.negatives, order, generator))
    columns = [
        pa.repeat(pa.scalar(epoch, pa.int32()), len(pools)),
        pools.query_ids.take(pa.array(order)),
        pools.positives.values.take(pa.array(positives)),
        pools.negatives.values.take(negatives),
        pools.ranks.values.take(negatives),
    ]
    return pa.table(columns, schema=tables.TRIPLES)


def sample(pools: Pools, seed: int, epochs: int) -> Iterator[pa.Table]:
    """Draw the triples of all epochs."""
    for epoch in range(epochs):
        yield sample_epoch(pools, seed, epoch)


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = cli.make_parser("cort.triples", __doc__)
    add_sampling_arguments(parser)
    return parser


def add_sampling_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `triples` and `pairs` have in common."""
    parser.add_argument("--qrels", required=True, metavar="PARQUET")
    parser.add_argument("--run", required=True, metavar="TREC", help="where negatives come from")
    parser.add_argument("--relevance-level", type=int, default=1, help="lowest grade that counts as positive")
    parser.add_argument("--first-rank", type=int, default=8)
    parser.add_argument("--last-rank", type=int, default=100)
    parser.add_argument("--minimum-results", type=int, default=10)
    parser.add_argument("--maximum-queries", type=int, default=0, help="draw this many queries at random; 0: all")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--output", required=True, metavar="PARQUET")
    parser.add_argument("--output-counts", required=True, metavar="JSON")


def read_pools(args: argparse.Namespace) -> Pools:
    """Build the pools the arguments ask for; log and write the counts."""
    if args.first_rank < 1:
        raise input_error("--first-rank", str(args.first_rank), "1 or more", "ranks count from 1")
    qrels = tables.read_table(args.qrels, tables.QRELS)
    ranks = args.first_rank, args.last_rank
    pools, counts = build_pools(qrels, args.relevance_level, read_run(args.run), *ranks, args.minimum_results)
    pools = limit_pools(pools, args.maximum_queries, args.seed)
    counts["dropped: more than maximum_queries"] = counts.pop("queries kept") - len(pools)
    counts["queries kept"] = len(pools)
    for name, count in counts.items():
        log.info("%s: %d", name, count)
    if not len(pools):
        raise input_error(
            args.run,
            f"no query to train on ({counts})",
            "at least one",
            "check that run and qrels belong together, or widen the ranks",
        )
    write_text(args.output_counts, json.dumps(counts, indent=2) + "\n")
    return pools


def stage(args: argparse.Namespace) -> None:
    """Sample and write."""
    pools = read_pools(args)
    with tables.open_writer(args.output, tables.TRIPLES) as writer:
        for table in sample(pools, args.seed, args.epochs):
            writer.write_table(table)
    log.info("wrote %d triples of %d epochs", len(pools) * args.epochs, args.epochs)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())
