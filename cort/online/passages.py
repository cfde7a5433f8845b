"""The collection by document id: rows and texts of a few passages at a time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from cort.formats import tables
from cort.formats.damage import refusing_damage
from cort.formats.ids import joined
from cort.runtime.errors import input_error, shorten

#: number of row groups whose texts stay in memory
KEPT = 256


class Texts:
    """Reads texts by row group."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = tables.open_parquet(path)
        groups = map(self._file.metadata.row_group, range(self._file.num_row_groups))
        #: for each row group, the number of rows up to its end
        self._ends = list(accumulate(group.num_rows for group in groups))
        self._texts = lru_cache(KEPT)(self._read)

    def _read(self, group: int) -> pa.ChunkedArray:
        with refusing_damage(self.path, *tables.WHOLE):
            return self._file.read_row_group(group, columns=["text"])["text"]

    def at(self, rows: Iterable[int]) -> list[str]:
        """Return the texts in the given rows."""
        texts = []
        for row in rows:
            group = bisect_left(self._ends, row + 1)
            # A negative index: the row counted from the end of its group.
            texts.append(self._texts(group)[row - self._ends[group]].as_py())
        return texts


class Passages(Texts):
    """Holds the sorted ids in memory, too."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        ids = joined(tables.read_column(path, tables.PASSAGES, "doc_id"))
        self._rows = pc.sort_indices(ids)
        self._ids = ids.take(self._rows)

    def rows(self, doc_ids: Sequence[str]) -> list[int]:
        """Return the rows of the given ids.

        :raises InputError: for an id that is not in the collection.
        """
        rows = []
        for doc_id in doc_ids:
            place = bisect_left(range(len(self._ids)), doc_id, key=lambda at: self._ids[at].as_py())
            if place == len(self._ids) or self._ids[place].as_py() != doc_id:
                expected = f"one of the {len(self._ids)} passages"
                raise input_error(self.path, f"no passage {shorten(doc_id)}", expected, "run `snakemake` again")
            rows.append(self._rows[place].as_py())
        return rows

    def texts(self, doc_ids: Sequence[str]) -> list[str]:
        """Return the texts of the given ids."""
        return self.at(self.rows(doc_ids))
