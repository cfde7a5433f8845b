"""Sample training pairs of a re-ranker: per epoch and query one judged positive and some negatives from the candidates.

Reads a qrels table and the candidates' run; writes pairs.parquet (relevance 1 or 0, rows in training order), and how
many queries each filter dropped as JSON. CoRT, section 4.3.1.

Usage: python -m cort.pairs --qrels qrels.train.parquet --run cort+bm25.trec --negatives 1 --output pairs.parquet
              --output-counts pairs.json
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

import pyarrow as pa

from cort import cli
from cort.formats import tables
from cort.sampling import Pool, shuffled
from cort.triples import add_sampling_arguments, read_pools

log = logging.getLogger(__name__)


def sample_epoch(pools: list[Pool], negatives: int, seed: int, epoch: int) -> pa.Table:
    """Draw one positive and up to `negatives` different negatives per query."""
    rows: list[tuple[int, str, str, int]] = []
    for pool, generator in shuffled(pools, seed, epoch):
        positive = pool.positives[generator.integers(len(pool.positives))]
        rows.append((epoch, pool.query_id, positive, 1))
        size = min(negatives, len(pool.negatives))
        for drawn in generator.choice(len(pool.negatives), size=size, replace=False):
            rows.append((epoch, pool.query_id, pool.negatives[drawn], 0))
    columns = dict(zip(tables.PAIRS.names, map(list, zip(*rows, strict=True)), strict=True))
    return pa.table(columns, schema=tables.PAIRS)


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = cli.make_parser("cort.pairs", __doc__)
    add_sampling_arguments(parser)
    parser.add_argument("--negatives", type=int, default=1, help="negatives per positive")
    return parser


def stage(args: argparse.Namespace) -> None:
    """Sample and write."""
    pools = read_pools(args)
    rows = 0
    with tables.open_writer(args.output, tables.PAIRS) as writer:
        for epoch in range(args.epochs):
            table = sample_epoch(pools, args.negatives, args.seed, epoch)
            writer.write_table(table)
            rows += table.num_rows
    log.info("wrote %d pairs of %d epochs", rows, args.epochs)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())
