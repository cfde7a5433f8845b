"""Finished blocks of a stage that may be ended: kept until its output is whole, so that the next attempt goes on there.

A folder with an Arrow IPC file per block, which carries the identity of its computation: what is damaged or belongs to
another one is never taken. Several processes may use one folder at once.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from cort.formats.tables import arrow_writer, open_arrow
from cort.system.errors import InputError, input_error
from cort.system.files import remove_leftovers
from cort.system.options import optional
from cort.system.progress import Counter

log = logging.getLogger(__name__)

IDENTITY = b"identity"
Block = TypeVar("Block")


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
                batch = make(block)
                self._keep(number, batch)
            rows += batch.num_rows
            if counter:
                counter.reach(rows)
            yield batch
        if taken:
            log.info("went on after %d blocks that were finished before", taken)

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove blocks, what killed writers left, and the folder if nothing else is in it."""
        if self._folder is not None:
            for number in numbers:
                self._path(self._folder, number).unlink(missing_ok=True)
            with suppress(OSError):
                remove_leftovers(self._folder.iterdir())
                self._folder.rmdir()

    def _read(self, number: int) -> pa.RecordBatch | None:
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

    def _keep(self, number: int, batch: pa.RecordBatch) -> None:
        if self._folder is not None:
            batch = batch.replace_schema_metadata({IDENTITY: self._identify()})
            with arrow_writer(self._path(self._folder, number), batch.schema) as file:
                file.write_batch(batch)

    @staticmethod
    def _path(folder: Path, number: int) -> Path:
        return folder / f"block-{number}.arrow"
