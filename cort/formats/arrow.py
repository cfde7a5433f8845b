"""Opening Arrow IPC files, memory-mapped."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from cort.system.errors import input_error


def open_arrow(path: Path, what: str, remedy: str) -> pa.Table:
    """Map a file; `what` it should be and the `remedy` go into the error for damaged bytes."""
    try:
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    except (pa.ArrowInvalid, pa.ArrowIOError) as error:
        if not path.exists():
            raise
        raise input_error(path, f"unreadable bytes ({error})", f"a whole {what}", remedy) from error
