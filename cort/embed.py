"""Ask a model behind an API for one vector per passage or query, in the form of `cort.encode vectors`.

Reads:  a table of passages or queries; kept answers
Writes: an embedding shard (Arrow IPC)
Usage:  python -m cort.embed --endpoint text-embedding-3-small --kind passage --texts passages.parquet --shard 1-of-1
            --cache endpoint_cache/vectors.sqlite --output passages.1-of-1.arrow
"""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Iterator
from typing import Annotated, Literal

from cort.config.models import Vectors
from cort.formats import shards, tables
from cort.models.embeddings import TOLERANCE, Asked, Block, embed, name_of
from cort.runtime import cli
from cort.runtime.errors import input_error
from cort.runtime.sections import AnyFile, ArrowFile, Metavar, ParquetFile, Text, same_as

log = logging.getLogger(__name__)

#: texts whose vectors are in memory at once
BLOCK = 4_096


class Options(Asked):
    """Options of this stage."""

    kind: Literal["passage", "query"]
    texts: ParquetFile
    """Passages or queries."""
    shard: Annotated[Text, Metavar("I-of-N")] = "1-of-1"
    storage: shards.Storage = same_as(Vectors, "storage")
    cache: AnyFile
    """File of answers."""
    output: ArrowFile


def stage(options: Options) -> None:
    """Embed the texts of a shard: whole blocks of rows, so that the number of shards changes none."""
    is_query = options.kind == "query"
    schema, prompt = (tables.QUERIES, options.query_prompt) if is_query else (tables.PASSAGES, options.passage_prompt)
    rows = tables.count_rows(options.texts, schema)
    first, last = shards.shard_range(-(-rows // BLOCK), options.shard, "--shard")

    def read() -> Iterator[Block]:
        batches = tables.regroup(tables.iter_batches(options.texts, schema, BLOCK), BLOCK)
        for batch in itertools.islice(batches, first, last):
            yield batch[schema.names[0]].to_pylist(), [(prompt or "") + text for text in batch["text"].to_pylist()]

    vectors = embed(read, options, options.cache)
    beginning = list(itertools.islice(vectors, 1))
    width = beginning[0][1].shape[1] if beginning else options.dimension
    if width is None:
        raise input_error(options.texts, "no text in this shard", "some", "lower `shards`, or set `dimension`")
    count = min(last * BLOCK, rows) - min(first * BLOCK, rows)
    shards.write_shard(
        options.output,
        itertools.chain(beginning, vectors),
        model=name_of(options),
        dimension=width,
        count=count,
        storage=options.storage,
        longest=1 + 2 * TOLERANCE if options.similarity == "cosine" else None,
    )
    log.info("%d vectors of %d numbers by %s", count, width, options.endpoint)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
