"""Sample training triples: per epoch and query, one judged positive, and negatives from a ranker's run.

The encoder is to complement this ranker, so it learns to distinguish the ranker's top results (CoRT, section 3.3; ranks
8 to 100 in the authors' experiments). Several negatives of a positive are consecutive triples.

Reads:  a qrels table and a run
Writes: triples.parquet in training order, and as JSON how many queries each filter dropped
Usage:  python -m cort.triples --qrels qrels.train.parquet --run bm25.trec --epochs 10 --output triples.parquet
            --output-counts triples.json
"""

import sys

import numpy as np
import pyarrow as pa

from cort.config.models import DrawnTriples
from cort.formats import tables
from cort.runtime import cli
from cort.runtime.sections import same_as
from cort.training.draws import draw_negatives
from cort.training.sampling import SamplingOptions, draw, shuffle, write_epochs


def sample_epoch(pools: pa.RecordBatch, seed: int, epoch: int, count: int = 1) -> pa.Table:
    """Draw a positive and `count` distinct negatives per query, in random order of the queries."""
    order, generator = shuffle(pools, seed, epoch)
    positives = draw(pools["positives"], order, generator)
    negatives = draw_negatives(pools, order, np.zeros_like(order), count, seed, epoch).reshape(-1)
    columns = [
        pa.repeat(pa.scalar(epoch, "int32"), len(negatives)),
        pools["query_id"].take(np.repeat(order, count)),
        pools["positives"].values.take(np.repeat(positives, count)),
        pools["negatives"].values.take(negatives),
        pools["ranks"].values.take(negatives),
    ]
    return pa.table(columns, schema=tables.TRIPLES)


class Options(SamplingOptions):
    """Options of this stage."""

    negatives: int = same_as(DrawnTriples, "negatives")


def stage(options: Options) -> None:
    """Sample triples and write them."""
    count = options.negatives

    def sample(pools: pa.RecordBatch, epoch: int, _: dict[str, int]) -> pa.Table:
        return sample_epoch(pools, options.seed, epoch, count)

    write_epochs(options, tables.TRIPLES, "triples", sample, count)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
