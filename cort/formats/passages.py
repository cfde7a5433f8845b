"""Write passages as the table that every other stage reads."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from cort.formats.raw import none_of, refuse_duplicates
from cort.formats.tables import PASSAGES, open_writer, regroup
from cort.system.errors import input_error
from cort.system.progress import track

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
