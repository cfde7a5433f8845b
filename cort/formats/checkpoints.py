"""Checkpoints of a stage that may be interrupted: finished blocks are kept until its output is complete.

About every half minute, the blocks made meanwhile become one Arrow IPC file, with their numbers and the identity of the
computation. Blocks that are damaged or of another computation are never used. Several processes may share a folder.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeVar

import pyarrow as pa

from cort.formats.damage import refusing_damage
from cort.formats.tables import arrow_writer, open_arrow
from cort.runtime.errors import InputError
from cort.runtime.progress import Counter

log = logging.getLogger(__name__)

IDENTITY, NUMBERS = b"identity", b"numbers"
# Seconds of work that a killed process loses at most; blocks that are not kept yet have about so many bytes at most.
EVERY, MOST_BYTES = 30.0, 1 << 28
Block = TypeVar("Block")


class Made(NamedTuple):
    """A numbered block, either read or newly made."""

    number: int
    batch: pa.RecordBatch
    new: bool


class FinishedBlocks:
    """The finished blocks of one computation; without a folder, none are kept.

    `identify` describes all that determines the result. It is called at most once, and only if blocks are found or
    kept; they are kept `every` so many seconds.
    """

    def __init__(self, folder: str | Path | None, identify: Callable[[], str], every: float = EVERY) -> None:
        self._folder, self._identify, self._every = None if folder is None else Path(folder), identify, every

    @cached_property
    def _identity(self) -> bytes:
        return self._identify().encode()

    def each(
        self,
        blocks: Sequence[tuple[int, Block]],
        make: Callable[[Block], pa.RecordBatch],
        counter: Counter | None = None,
    ) -> Iterator[Made]:
        """Yield each numbered block, in order; `make` counts the rows while it works."""
        resumed = rows = 0
        files = self._files([number for number, _ in blocks])
        found = {number: batch for path in files for number, batch in self._read(path).items()}
        for number, block in blocks:
            batch = found.pop(number, None)
            resumed += (known := batch is not None)
            batch = batch if known else make(block)
            rows += batch.num_rows
            if counter:
                counter.reach(rows)
            yield Made(number, batch, not known)
        if resumed:
            log.info("resumed after %d finished blocks", resumed)

    def keeping(self, made: Iterator[Made]) -> Iterator[pa.RecordBatch]:
        """Pass on blocks, and keep new ones at intervals, and when an error ends them."""
        unsaved: list[Made] = []
        saved = time.monotonic()
        try:
            for one in made:
                unsaved += [one] if one.new and self._folder else []
                is_time = time.monotonic() - saved >= self._every
                if unsaved and (is_time or sum(block.batch.nbytes for block in unsaved) >= MOST_BYTES):
                    self._keep(unsaved)
                    unsaved, saved = [], time.monotonic()
                yield one.batch
        except GeneratorExit:
            raise
        except BaseException:
            if unsaved:
                self._keep(unsaved)
            raise

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove the files with blocks of a shard, and the folder if nothing else is in it.

        A file may also have blocks of another shard, if their number has changed: those are then computed again.
        """
        for path in self._files(numbers):
            path.unlink(missing_ok=True)
        if self._folder is not None:
            with suppress(OSError):
                self._folder.rmdir()

    def _files(self, numbers: Sequence[int]) -> Iterator[Path]:
        """Yield the files with blocks of a shard."""
        for path in sorted(self._folder.glob("blocks-*-*.arrow")) if self._folder and numbers else ():
            first, last = map(int, path.stem.split("-")[1:])
            if first <= numbers[-1] and last >= numbers[0]:
                yield path

    def _read(self, path: Path) -> dict[int, pa.RecordBatch]:
        """Map a file of blocks; none if it is not of this computation, or another process has just divided it."""
        told = "file of blocks", "they are computed again"
        try:
            table = open_arrow(path, *told)
            metadata = table.schema.metadata or {}
            with refusing_damage(path, *told):
                numbers = map(int, metadata.get(NUMBERS, b"").split())
                blocks = dict(zip(numbers, table.to_batches(), strict=True))
        except InputError as error:
            log.warning("%s", error)
        except FileNotFoundError:
            pass
        else:
            if metadata.get(IDENTITY) == self._identity:
                return blocks
            log.warning("%s: found blocks of other inputs or options; %s", path, told[1])
        return {}

    def _keep(self, made: Sequence[Made]) -> None:
        numbers = " ".join(str(one.number) for one in made).encode()
        schema = made[0].batch.schema.with_metadata({IDENTITY: self._identity, NUMBERS: numbers})
        with arrow_writer(
            (self._folder or Path()) / f"blocks-{made[0].number}-{made[-1].number}.arrow", schema
        ) as file:
            for one in made:
                file.write_batch(one.batch.replace_schema_metadata(schema.metadata))
