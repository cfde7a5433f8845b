"""The precision in which a model computed vectors or scores: metadata of their files, absent in earlier versions."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from cort.formats.tables import WHOLE, refuse_damage

Precision = Literal["fp32", "bf16", "fp16"]
KEY = "precision"


def stored_precision(schema: pa.Schema) -> Precision | None:
    """Read the precision from the metadata of a file.

    :raises ValueError: for damaged metadata.
    """
    stored, known = (schema.metadata or {}).get(KEY.encode()), get_args(Precision)
    return None if stored is None else known[known.index(stored.decode())]


def read_precision(path: str | Path) -> Precision | None:
    """Read the precision of a file of vectors (Arrow IPC) or scores (parquet)."""
    with refuse_damage(path, *WHOLE):
        is_table = Path(path).suffix == ".parquet"
        return stored_precision(pq.read_schema(path) if is_table else pa.ipc.open_file(str(path)).schema)


def precision_of_queries(stored: Precision | None, configured: Precision | Literal["auto"]) -> Precision:
    """Return the precision of the passages, which queries share.

    Vectors of earlier versions are of the configured precision, which was not `auto` then.
    """
    return stored or ("fp32" if configured == "auto" else configured)
