"""Token caches: Arrow IPC files of ids and token ids, memory-mapped, with the tokenizer's fingerprint.

Columns ``id: string`` and ``tokens: list<int32>``, without special tokens and not truncated: each reader truncates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats.records import Integers, offsets_of
from cort.formats.tables import arrow_writer, open_arrow, refuse_damage
from cort.system.errors import input_error, shorten

AGAIN = "delete it and tokenize again"
SCHEMA = pa.schema({"id": "string", "tokens": pa.list_(pa.int32())})


class Tokens:
    """Token ids of many texts, by row."""

    def __init__(self, path: str | Path, tokenizer: str | None = None) -> None:
        """Open a cache, which must have the fingerprint `tokenizer` if one is given."""
        self.path = Path(path)
        table = open_arrow(self.path, "token cache", AGAIN)
        if not table.schema.remove_metadata().equals(SCHEMA):
            raise input_error(path, "another Arrow file", "a token cache", "name the file that `tokenize` wrote")
        with refuse_damage(path, "token cache", AGAIN):
            self._map(table)
        if tokenizer is not None and self.tokenizer != tokenizer:
            raise input_error(path, f"tokens of tokenizer {self.tokenizer}", f"tokenizer {tokenizer}", AGAIN)

    @classmethod
    def of_texts(cls, texts: Sequence[npt.NDArray[np.int32]]) -> Tokens:
        """Hold the token ids of texts that are not in a file; their ids are row numbers."""
        tokens = cls.__new__(cls)
        tokens.path = Path()
        values = np.concatenate([np.empty(0, np.int32), *texts])
        lists = pa.ListArray.from_arrays(pa.array(offsets_of([*map(len, texts)]), "int32"), pa.array(values))
        tokens._map(pa.table([[str(row) for row in range(len(texts))], lists], schema=SCHEMA))
        return tokens

    def _map(self, table: pa.Table) -> None:
        self.tokenizer = (table.schema.metadata or {}).get(b"tokenizer", b"").decode()
        self.ids: pa.ChunkedArray = table["id"]
        self._tokens: pa.ChunkedArray = table["tokens"]
        self._values: list[npt.NDArray[np.int32]] = [chunk.values.to_numpy() for chunk in self._tokens.chunks]
        self._offsets = [chunk.offsets.to_numpy() for chunk in self._tokens.chunks]
        self._first_row = offsets_of([len(offsets) - 1 for offsets in self._offsets])
        #: number of tokens of each row, shape (rows,)
        self.lengths: Integers = np.concatenate([np.empty(0, np.int64), *map(np.diff, self._offsets)])

    def batches(self) -> Iterator[tuple[pa.Array, pa.ListArray]]:
        """Yield (ids, token ids) in the batches in which they were written."""
        return zip(self.ids.chunks, self._tokens.chunks, strict=True)

    def __len__(self) -> int:
        return int(self._first_row[-1])

    def __getitem__(self, row: int) -> npt.NDArray[np.int32]:
        chunk = int(np.searchsorted(self._first_row, row, side="right")) - 1
        local = row - int(self._first_row[chunk])
        offsets = self._offsets[chunk]
        return self._values[chunk][offsets[local] : offsets[local + 1]]

    def rows_of(self, ids: pa.Array | pa.ChunkedArray, source: str | Path) -> Integers:
        """Return the rows of ids; the error for an unknown id names `source`."""
        rows = pc.index_in(ids.cast("large_string"), value_set=self.ids.cast("large_string"))
        if rows.null_count:
            unknown = ids.filter(pc.is_null(rows))[0].as_py()
            found = f"the unknown id {shorten(unknown)}"
            raise input_error(source, found, f"ids of {self.path}", "rebuild both from one collection")
        return np.asarray(rows, np.int64)


def write_tokens(
    path: str | Path, batches: Iterable[tuple[pa.Array, list[list[int]] | pa.ListArray]], tokenizer: str
) -> int:
    """Write (ids, token ids) batches atomically; return the number of rows."""
    schema = SCHEMA.with_metadata({"tokenizer": tokenizer})
    rows = 0
    with arrow_writer(path, schema) as file:
        for ids, tokens in batches:
            file.write_batch(pa.record_batch([ids, pa.array(tokens, SCHEMA.field("tokens").type)], schema=schema))
            rows += len(ids)
    return rows
