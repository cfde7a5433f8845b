"""Opening and writing Arrow IPC files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from cort.system.errors import input_error
from cort.system.files import atomic_file


def open_arrow(path: Path, what: str, remedy: str) -> pa.Table:
    """Map a file; `what` it should be and the `remedy` go into the error for damaged bytes."""
    with refuse_damage(path, what, remedy):
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


@contextmanager
def refuse_damage(path: str | Path, what: str, remedy: str) -> Iterator[None]:
    """Turn what a library says of damaged bytes into our error; what is not there stays the system's."""
    try:
        yield
    except (pa.ArrowInvalid, OSError) as error:
        if not Path(path).exists():
            raise
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise input_error(path, f"unreadable bytes ({reason})", f"a whole {what}", remedy) from error


@contextmanager
def arrow_writer(path: str | Path, schema: pa.Schema) -> Iterator[pa.RecordBatchFileWriter]:
    """Write batches to a file that is there whole or not at all."""
    with atomic_file(path) as temporary, pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, schema) as file:
        yield file
