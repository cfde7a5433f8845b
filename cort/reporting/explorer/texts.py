"""The texts of the passages that the explorer shows, on the disk while they are cut into shards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats.ids import positions
from cort.formats.tables import PASSAGES, arrow_writer, iter_batches, open_arrow
from cort.system.errors import input_error, shorten
from cort.system.progress import track

# Characters of a passage that are kept, so that no single one fills a shard.
LONGEST = 5_000
KEPT = pa.schema([("text", pa.string()), ("length", pa.int32())])


class Texts:
    """Texts by the numbers of their passages."""

    def __init__(self, path: Path, rows: npt.NDArray[np.int64]) -> None:
        table = open_arrow(path, "table of texts", "run the stage again")
        self._chunks = table["text"].chunks
        self._lengths = table["length"].to_numpy()
        self._starts = np.cumsum([0, *map(len, self._chunks)])
        self._rows = rows

    def __getitem__(self, numbers: npt.NDArray[np.int32]) -> list[str]:
        """Return texts, of which those that were cut end in ``… (the first 5,000 of 7,654 characters)``."""
        rows = self._rows[numbers]
        chunks = np.searchsorted(self._starts, rows, side="right") - 1
        # Taken one by one: Arrow would first put all chunks together.
        pairs = zip(chunks.tolist(), (rows - self._starts[chunks]).tolist(), strict=True)
        found = [self._chunks[chunk][row].as_py() for chunk, row in pairs]
        lengths = self._lengths[rows].tolist()
        return [text if size <= LONGEST else text + _cut(size) for text, size in zip(found, lengths, strict=True)]


def _cut(size: int) -> str:
    return f" … (the first {LONGEST:,} of {size:,} characters)"


def select_texts(passages: str | Path, ids: pa.Array, folder: Path) -> Texts:
    """Stream the passages and keep the texts of `ids` in a file in `folder`; an id that is not there is refused."""
    path, rows = folder / "texts.arrow", np.full(len(ids), -1, dtype=np.int64)
    kept = 0
    with arrow_writer(path, KEPT) as file:
        for batch in track(iter_batches(passages, PASSAGES), None, "batches read"):
            numbers = positions(batch["doc_id"], ids)
            here = np.flatnonzero(numbers >= 0)
            rows[numbers[here]] = kept + np.arange(len(here))
            kept += len(here)
            texts = batch["text"].take(pa.array(here))
            lengths = pc.utf8_length(texts)
            file.write_batch(pa.record_batch([pc.utf8_slice_codeunits(texts, 0, LONGEST), lengths], schema=KEPT))
    if (missing := np.flatnonzero(rows < 0)).size:
        found, expected = f"no doc_id {shorten(ids[int(missing[0])].as_py())}", "every id that runs and judgements name"
        raise input_error(passages, found, expected, "name the matching file")
    return Texts(path, rows)
