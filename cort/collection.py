"""Turn a passage collection as published into the table that every other stage reads.

Reads:  passages as MS MARCO .tsv or .txt, or BEIR .jsonl, plain or .gz (see cort/formats/raw.py)
Writes: passages.parquet with doc_id and text, in the order of the file; ids occur once
Usage:  python -m cort.collection --passages collection.tsv --output passages.parquet
"""

import logging
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from cort.formats.raw import iter_passage_batches, none_of, refuse_duplicates
from cort.formats.tables import PASSAGES, open_writer, regroup
from cort.system import cli
from cort.system.errors import input_error
from cort.system.options import options_class, required
from cort.system.progress import track

log = logging.getLogger(__name__)

Item = TypeVar("Item")


def write_passages(source: str | Path, passages: Iterable[pa.RecordBatch], output: str | Path) -> int:
    """Stream passages into a table and return their number; errors about missing or duplicate passages name `source`.

    Only the ids are kept in memory. The table appears under `output` after the last check.
    """
    ids: list[pa.Array] = []
    with open_writer(output, PASSAGES) as writer:
        for table in track(ahead(regroup(passages)), None, "passages", size=len):
            writer.write_table(table)
            ids.extend(table["doc_id"].chunks)
        if not ids:
            fix = "name the file that holds the passages"
            raise input_error(source, none_of("passages", source), "one passage per line", fix)
        column = pa.chunked_array(ids)
        refuse_duplicates([(source, range(1, len(column) + 1))], column, "doc_id")
    return len(column)


def ahead(items: Iterable[Item], depth: int = 4) -> Iterator[Item]:
    """Yield items, up to `depth` of which a thread prepares in advance; errors are raised in order."""
    iterator, end = iter(items), object()
    with ThreadPoolExecutor(1) as pool:
        futures = deque(pool.submit(next, iterator, end) for _ in range(depth))
        try:
            while (item := futures.popleft().result()) is not end:
                futures.append(pool.submit(next, iterator, end))
                yield item  # type: ignore[misc]
        finally:
            pool.shutdown(cancel_futures=True)


@options_class
class Options:
    """Options of this stage."""

    passages: str = required("FILE", "MS MARCO .tsv or .txt, or BEIR .jsonl, plain or .gz")
    output: str = required("FILE", "parquet table to write")


def stage(options: Options) -> None:
    """Read the passages and write them as a table."""
    count = write_passages(options.passages, iter_passage_batches(options.passages), options.output)
    log.info("%d passages from %s", count, options.passages)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
