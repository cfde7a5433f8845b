"""Sample training pairs of a re-ranker: per epoch and query one judged positive and some negatives from the candidates.

Reads a qrels table and the candidates' run; writes pairs.parquet (relevance 1 or 0, rows in training order), and how
many queries each filter dropped as JSON. CoRT, section 4.3.1.

Usage: python -m cort.pairs --qrels qrels.train.parquet --run cort+bm25.trec --negatives 1 --output pairs.parquet
              --output-counts pairs.json
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cort.formats import tables
from cort.retrieval.options import check_positive
from cort.system import cli
from cort.system.options import optional
from cort.training.sampling import SamplingOptions, draw, draw_distinct, shuffle, write_epochs


def sample_epoch(pools: pa.RecordBatch, negatives: int, seed: int, epoch: int) -> pa.Table:
    """Draw one positive and up to `negatives` different negatives per query."""
    order, generator = shuffle(pools, seed, epoch)
    positives = draw(pools["positives"], order, generator)
    drawn = draw_distinct(pools["negatives"], order, negatives, generator)  # (queries, negatives)
    doc_ids = pa.chunked_array([pools["positives"].values, pools["negatives"].values])
    # Row by row: the positive, then the negatives there are.
    both = np.column_stack([positives, np.where(drawn < 0, -1, drawn + len(pools["positives"].values))])
    rows, columns = np.nonzero(both >= 0)
    table = [
        pa.repeat(pa.scalar(epoch, pa.int32()), len(rows)),
        pools["query_id"].take(pa.array(order[rows])),
        doc_ids.take(pa.array(both[rows, columns])),
        pa.array(columns == 0).cast(pa.int32()),
    ]
    return pa.table(table, schema=tables.PAIRS)


@dataclass(frozen=True, kw_only=True)
class Options(SamplingOptions):
    """Options of this stage."""

    first_rank: int = optional(1)
    negatives: int = optional(1, "negatives per positive")


def stage(options: Options) -> None:
    """Sample and write."""
    check_positive(options, "negatives")

    def sample(pools: pa.RecordBatch, epoch: int) -> pa.Table:
        return sample_epoch(pools, options.negatives, options.seed, epoch)

    write_epochs(options, tables.PAIRS, "pairs", sample)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
