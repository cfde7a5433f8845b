"""Checkpoints of a stage that may be interrupted: finished blocks are kept until its output is complete.

A folder has an Arrow IPC file per block, with the identity of its computation. Blocks that are damaged or of another
computation are never used. Several processes may share a folder.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from cort.formats.tables import arrow_writer, open_arrow
from cort.runtime.errors import InputError
from cort.runtime.progress import Counter

log = logging.getLogger(__name__)

IDENTITY = b"identity"
Block = TypeVar("Block")


class FinishedBlocks:
    """The finished blocks of one computation; without a folder, none are kept.

    `identify` describes all that determines the result. It is called at most once, and only if there is a folder.
    """

    def __init__(self, folder: str | Path | None, identify: Callable[[], str]) -> None:
        self._folder = Path(folder) if folder is not None else None
        self._identify = cache(lambda: identify().encode())

    def each(
        self,
        blocks: Iterable[tuple[int, Block]],
        make: Callable[[Block], pa.RecordBatch],
        counter: Counter | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield each numbered block, either read or newly made; `make` counts the rows while it works."""
        resumed = rows = 0
        for number, block in blocks:
            batch = self._read(number)
            resumed += batch is not None
            if batch is None:
                batch = make(block)
                self._keep(number, batch)
            rows += batch.num_rows
            if counter:
                counter.reach(rows)
            yield batch
        if resumed:
            log.info("resumed after %d finished blocks", resumed)

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove blocks, and the folder if nothing else is in it."""
        if self._folder is not None:
            for number in numbers:
                self._path(number).unlink(missing_ok=True)
            with suppress(OSError):
                self._folder.rmdir()

    def _path(self, number: int) -> Path:
        return (self._folder or Path()) / f"block-{number}.arrow"

    def _read(self, number: int) -> pa.RecordBatch | None:
        if self._folder is None or not (path := self._path(number)).exists():
            return None
        try:
            table = open_arrow(path, "block", "it is recomputed")
        except InputError as error:
            log.warning("%s", error)
        else:
            if table.num_rows and (table.schema.metadata or {}).get(IDENTITY) == self._identify():
                return table.combine_chunks().to_batches()[0]
            log.warning("%s: found a block of other inputs or options; it is recomputed", path)
        return None

    def _keep(self, number: int, batch: pa.RecordBatch) -> None:
        if self._folder is not None:
            batch = batch.replace_schema_metadata({IDENTITY: self._identify()})
            with arrow_writer(self._path(number), batch.schema) as file:
                file.write_batch(batch)
