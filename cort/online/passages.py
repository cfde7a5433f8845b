"""The collection by id: rows and texts of a few passages at a time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cort.formats import tables
from cort.system.errors import input_error, shorten

IDS = pa.schema([("doc_id", pa.string())])
#: row groups whose texts stay in memory
KEPT = 16


class Passages:
    """Ids are in memory, sorted; texts are read by row group."""

    def __init__(self, path: Path) -> None:
        self.path = path
        ids = tables.read_table(path, IDS)["doc_id"].combine_chunks()
        self._rows = pc.sort_indices(ids)
        self._ids = ids.take(self._rows)
        with tables.refuse_damage(path, *tables.WHOLE):
            self._file = pq.ParquetFile(path, memory_map=True)
        groups = range(self._file.num_row_groups)
        #: of each row group, the first row behind it
        self._ends = list(accumulate(self._file.metadata.row_group(one).num_rows for one in groups))
        self._texts = lru_cache(KEPT)(self._read)

    def _read(self, group: int) -> pa.ChunkedArray:
        with tables.refuse_damage(self.path, *tables.WHOLE):
            return self._file.read_row_group(group, columns=["text"])["text"]

    def rows(self, doc_ids: Sequence[str]) -> list[int]:
        """Rows of the given ids.

        :raises InputError: an id that is not in the collection.
        """
        found = []
        for doc_id in doc_ids:
            place = bisect_left(range(len(self._ids)), doc_id, key=lambda at: self._ids[at].as_py())
            if place == len(self._ids) or self._ids[place].as_py() != doc_id:
                expected = f"one of the {len(self._ids)} passages"
                raise input_error(self.path, f"no passage {shorten(doc_id)}", expected, "run `snakemake` again")
            found.append(self._rows[place].as_py())
        return found

    def texts(self, doc_ids: Sequence[str]) -> list[str]:
        """Texts of the given ids."""
        found = []
        for row in self.rows(doc_ids):
            group = bisect_left(self._ends, row + 1)
            # The last rows of a group are counted from its end.
            found.append(self._texts(group)[row - self._ends[group]].as_py())
        return found
