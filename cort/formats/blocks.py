"""Finished blocks of a stage that may be ended: kept until its output is whole, so that the next attempt goes on there.

A folder with an Arrow IPC file per block, which carries the identity of its computation: what is damaged or belongs to
another one is never taken. Several processes may use one folder at once.

A block that takes long is made of parts, the outputs of a model for batch after batch, always in the same order. Those
of the unfinished block are kept every half minute, so that no machine is too slow to lose little.
"""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.formats.tables import arrow_writer, open_arrow
from cort.system.errors import InputError, input_error
from cort.system.files import remove_leftovers
from cort.system.options import optional
from cort.system.progress import Counter

log = logging.getLogger(__name__)

IDENTITY = b"identity"
NAME = re.compile(r"block-(\d+)(\.\d+)?\.arrow")
PARTS = pa.schema([("values", pa.large_binary()), ("shape", pa.list_(pa.int64())), ("type", pa.string())])
# Seconds of work on a block that may be lost.
KEEP_EVERY = 30.0
Block = TypeVar("Block")
Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class ShardOptions:
    """Of stages that compute a shard of the blocks of a collection, and go on after the last finished block."""

    shard: str = optional("1-of-1", metavar="I-of-N")
    checkpoints: str | None = optional(None, "keep finished blocks here until the shard is whole", "FOLDER")


def shard_blocks(rows: int, shard: str, size: int) -> list[tuple[int, int]]:
    """Return the row ranges of the blocks of shard "i-of-n": whole blocks, in order, as even as possible."""
    starts = range(0, rows, size)
    first, last = shard_range(len(starts), shard, "--shard")
    return [(start, min(start + size, rows)) for start in starts[first:last]]


def shard_range(count: int, shard: str, option: str) -> tuple[int, int]:
    """Return the first of `count` things that shard "i-of-n" has, and the first that the next one has."""
    match = re.fullmatch(r"([0-9]+)-of-([0-9]+)", shard)
    number, shards = (int(part) for part in match.groups()) if match else (0, 0)
    if not 1 <= number <= shards:
        raise input_error(option, repr(shard), "i-of-n with 1 <= i <= n", "fix it")
    return count * (number - 1) // shards, count * number // shards


class FinishedBlocks:
    """The finished blocks of one computation, which `identify` names by all that decides its result.

    It is asked once, and only with a folder; without one, no block is kept.
    """

    def __init__(self, folder: str | Path | None, identify: Callable[[], str]) -> None:
        self._folder = Path(folder) if folder is not None else None
        self._identify = cache(lambda: identify().encode())
        # The block that is being made: its parts as they were kept, how many are kept, and those that are not yet.
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
        """Yield every block, by its number: as it was kept, or made now, when `make` counts its rows, and kept."""
        taken = rows = 0
        for number, block in blocks:
            batch = self._read(number)
            taken += batch is not None
            if batch is None:
                self._begin(number)
                batch = make(block)
                self._keep(number, batch)
                self._end()
            rows += batch.num_rows
            if counter:
                counter.reach(rows)
            yield batch
        if taken:
            log.info("went on after %d blocks that were finished before", taken)

    def kept_part(self) -> Array | None:
        """Take the next part of the block that is being made, as it was kept; None if it is to be made."""
        return self._kept.popleft() if self._kept else None

    def keep_part(self, read: Callable[[], Array]) -> None:
        """Keep the next part, which is read when it is time to write those that were made."""
        if self._folder is None:
            return
        self._new.append(read)
        if time.monotonic() - self._last >= KEEP_EVERY:
            arrays = [one() for one in self._new]
            rows = [{"values": one.tobytes(), "shape": one.shape, "type": one.dtype.str} for one in arrays]
            self._keep(f"{self._number}.{self._parts_kept}", pa.RecordBatch.from_pylist(rows, schema=PARTS))
            self._parts_kept += len(arrays)
            self._new, self._last = [], time.monotonic()

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove blocks, their parts, what killed writers left, and the folder if nothing else is in it."""
        if self._folder is not None:
            wanted = set(numbers)
            with suppress(OSError):
                for path in self._folder.iterdir():
                    if (match := NAME.fullmatch(path.name)) and int(match[1]) in wanted:
                        path.unlink(missing_ok=True)
                remove_leftovers(self._folder.iterdir())
                self._folder.rmdir()

    def _begin(self, number: int) -> None:
        """Find the parts of a block that were kept."""
        self._number, self._last = number, time.monotonic()
        self._kept.clear()
        while (parts := self._read(f"{number}.{len(self._kept)}")) is not None:
            for row in parts.to_pylist():
                self._kept.append(np.frombuffer(row["values"], row["type"]).reshape(row["shape"]).copy())
        self._parts_kept = len(self._kept)

    def _end(self) -> None:
        """Forget the parts of a block that is whole."""
        self._new = []
        if self._folder is not None and self._parts_kept:
            for path in self._folder.glob(f"block-{self._number}.*.arrow"):
                path.unlink(missing_ok=True)

    def _read(self, number: int | str) -> pa.RecordBatch | None:
        if self._folder is None or not (path := self._path(self._folder, number)).exists():
            return None
        try:
            table = open_arrow(path, "block", "it is made again")
        except InputError as error:
            log.warning("%s", error)
        else:
            if table.num_rows and (table.schema.metadata or {}).get(IDENTITY) == self._identify():
                return table.combine_chunks().to_batches()[0]
            log.warning("%s: found a block of other inputs or options; it is made again", path)
        return None

    def _keep(self, number: int | str, batch: pa.RecordBatch) -> None:
        if self._folder is not None:
            batch = batch.replace_schema_metadata({IDENTITY: self._identify()})
            with arrow_writer(self._path(self._folder, number), batch.schema) as file:
                file.write_batch(batch)

    @staticmethod
    def _path(folder: Path, number: int | str) -> Path:
        return folder / f"block-{number}.arrow"
