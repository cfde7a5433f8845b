"""Sample training triples: per epoch and query, one judged positive and one negative from a ranker's run.

The encoder is to complement this ranker, so it learns to distinguish the ranker's top results (CoRT, section 3.3; ranks
8 to 100 in the authors' experiments).

Reads:  a qrels table and a run
Writes: triples.parquet in training order, and as JSON how many queries each filter dropped
Usage:  python -m cort.triples --qrels qrels.train.parquet --run bm25.trec --epochs 10 --output triples.parquet
            --output-counts triples.json
"""

import sys

import pyarrow as pa

from cort.formats import tables
from cort.runtime import cli
from cort.training.sampling import SamplingOptions, draw, shuffle, write_epochs


def sample_epoch(pools: pa.RecordBatch, seed: int, epoch: int) -> pa.Table:
    """Draw one triple per query, in random order."""
    order, generator = shuffle(pools, seed, epoch)
    positives = draw(pools["positives"], order, generator)
    negatives = draw(pools["negatives"], order, generator)
    columns = [
        pa.repeat(pa.scalar(epoch, "int32"), len(pools)),
        pools["query_id"].take(order),
        pools["positives"].values.take(positives),
        pools["negatives"].values.take(negatives),
        pools["ranks"].values.take(negatives),
    ]
    return pa.table(columns, schema=tables.TRIPLES)


class Options(SamplingOptions):
    """Options of this stage."""


def stage(options: Options) -> None:
    """Sample triples and write them."""
    write_epochs(options, tables.TRIPLES, "triples", lambda pools, epoch, _: sample_epoch(pools, options.seed, epoch))


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
