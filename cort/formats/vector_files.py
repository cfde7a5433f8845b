"""What files of vectors have in common: Arrow IPC with a column of ids, and metadata with a count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from cort.formats.ids import are_ids
from cort.formats.tables import arrow_writer
from cort.system.errors import input_error

AGAIN = "delete it and encode again"


class HasTable(Protocol):
    """A checked file."""

    @property
    def table(self) -> pa.Table:
        """Its rows."""


def write_batches(
    path: str | Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], count: int, what: str
) -> None:
    """Write batches atomically.

    :param count: rows to come; checked, and again by every reader.
    :param what: a row is, in the plural.
    """
    written = 0
    with arrow_writer(path, schema) as file:
        for batch in batches:
            file.write_batch(batch.cast(schema))
            written += batch.num_rows
        if written != count:
            raise RuntimeError(f"{path}: {written} {what} written where {count} were announced")


def read_metadata(table: pa.Table) -> dict[str, str]:
    """Read the metadata of a file."""
    return {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}


def check_ids(path: Path, table: pa.Table) -> None:
    """Refuse what is no id."""
    if not are_ids(table["id"]):
        raise input_error(path, "an id that is empty or has whitespace or invisible characters", "ids", AGAIN)


def all_ids(shards: Sequence[HasTable]) -> pa.ChunkedArray:
    """Chain the ids of all shards, in order."""
    return pa.chunked_array([chunk for shard in shards for chunk in shard.table["id"].chunks], pa.string())


def refuse_twice(paths: Sequence[str | Path], shards: Sequence[HasTable]) -> None:
    """Refuse shards of one set that have an id twice."""
    ids = all_ids(shards)
    if pc.count_distinct(ids).as_py() != len(ids):
        source = ", ".join(map(str, paths))
        raise input_error(source, "an id twice", "each id once", "delete the shards and encode again")
