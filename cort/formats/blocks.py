"""Checkpoints of a stage that may be interrupted: finished blocks are kept until its output is complete.

A folder has an Arrow IPC file per block, with the identity of its computation. Blocks that are damaged or of another
computation are never used. Several processes may share a folder.

A slow block consists of parts, a model's outputs for each batch, always in the same order. Parts of an unfinished block
are saved every half minute, so that even a slow machine loses little work.
"""

import logging
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.formats.tables import arrow_writer, open_arrow
from cort.system.errors import InputError, input_error
from cort.system.files import remove_leftovers
from cort.system.progress import Counter

log = logging.getLogger(__name__)

IDENTITY = b"identity"
NAME = re.compile(r"block-(\d+)(\.\d+)?\.arrow")
PARTS = pa.schema({"values": "large_binary", "shape": pa.list_(pa.int64()), "type": "string"})
# Seconds of work on a block that may be lost by an interruption.
KEEP_EVERY = 30.0
Block = TypeVar("Block")
Array = npt.NDArray[Any]


def shard_blocks(rows: int, shard: str, size: int) -> list[tuple[int, int]]:
    """Return the row ranges of the blocks in shard "i-of-n"; shards are consecutive and as even as possible."""
    starts = range(0, rows, size)
    first, last = shard_range(len(starts), shard, "--shard")
    return [(start, min(start + size, rows)) for start in starts[first:last]]


def shard_range(count: int, shard: str, option: str) -> tuple[int, int]:
    """Return the range of shard "i-of-n" among `count` items: its first, and the first of the next shard."""
    match = re.fullmatch(r"([0-9]+)-of-([0-9]+)", shard)
    number, shards = (int(part) for part in match.groups()) if match else (0, 0)
    if not 1 <= number <= shards:
        raise input_error(option, repr(shard), "i-of-n with 1 <= i <= n", "fix it")
    return count * (number - 1) // shards, count * number // shards


class FinishedBlocks:
    """The finished blocks of one computation; without a folder, none are kept.

    `identify` describes all that determines the result. It is called at most once, and only if there is a folder.
    """

    def __init__(self, folder: str | Path | None, identify: Callable[[], str]) -> None:
        self._folder = Path(folder) if folder is not None else None
        self._identify = cache(lambda: identify().encode())
        # The current block: its number, the number of parts on disk, parts read from there, parts not yet written.
        self._number = self._parts_kept = 0
        self._kept: deque[Array] = deque()
        self._new: list[Callable[[], Array]] = []
        self._last = time.monotonic()

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
                self._begin(number)
                batch = make(block)
                self._keep(number, batch)
                self._end()
            rows += batch.num_rows
            if counter:
                counter.reach(rows)
            yield batch
        if resumed:
            log.info("resumed after %d finished blocks", resumed)

    def kept_part(self) -> Array | None:
        """Return the next kept part of the current block; None if it must be computed."""
        return self._kept.popleft() if self._kept else None

    def keep_part(self, read: Callable[[], Array]) -> None:
        """Keep the next part of the current block; `read` is called when new parts are written."""
        if self._folder is None:
            return
        self._new.append(read)
        if time.monotonic() - self._last >= KEEP_EVERY:
            arrays = [read_part() for read_part in self._new]
            rows = [{"values": part.tobytes(), "shape": part.shape, "type": part.dtype.str} for part in arrays]
            self._keep(f"{self._number}.{self._parts_kept}", pa.RecordBatch.from_pylist(rows, schema=PARTS))
            self._parts_kept += len(arrays)
            self._new, self._last = [], time.monotonic()

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove blocks, their parts, files of killed writers, and the folder if nothing else is in it."""
        if self._folder is not None:
            removed = set(numbers)
            with suppress(OSError):
                for path in self._folder.iterdir():
                    if (match := NAME.fullmatch(path.name)) and int(match[1]) in removed:
                        path.unlink(missing_ok=True)
                remove_leftovers(self._folder.iterdir())
                self._folder.rmdir()

    def _begin(self, number: int) -> None:
        """Read the kept parts of a block."""
        self._number, self._last = number, time.monotonic()
        self._kept.clear()
        while (parts := self._read(f"{number}.{len(self._kept)}")) is not None:
            for row in parts.to_pylist():
                self._kept.append(np.frombuffer(row["values"], row["type"]).reshape(row["shape"]).copy())
        self._parts_kept = len(self._kept)

    def _end(self) -> None:
        """Remove the parts of a finished block."""
        self._new = []
        if self._folder is not None and self._parts_kept:
            for path in self._folder.glob(f"block-{self._number}.*.arrow"):
                path.unlink(missing_ok=True)

    def _read(self, number: int | str) -> pa.RecordBatch | None:
        if self._folder is None or not (path := self._folder / f"block-{number}.arrow").exists():
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

    def _keep(self, number: int | str, batch: pa.RecordBatch) -> None:
        if self._folder is not None:
            batch = batch.replace_schema_metadata({IDENTITY: self._identify()})
            with arrow_writer(self._folder / f"block-{number}.arrow", batch.schema) as file:
                file.write_batch(batch)
