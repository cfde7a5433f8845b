"""Files of training triples as MS MARCO releases them, plain or gzipped: query, relevant passage, other passage.

A line has three TAB-separated fields: ids (``qidpidtriples.*.tsv``), or texts (``triples.train.small.tsv``) that stand
for the query or passage with exactly this text. The first line decides which. Texts are compared by 128 bits of
BLAKE2b, so that neither those of the file nor those of the collection stay in memory.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.formats import tables
from cort.formats.fields import BadLine, checked_id, checked_text
from cort.formats.ids import alphabetic_codes, are_ids, positions, string_bytes
from cort.formats.lines import iter_blocks, iter_lines, none_of, parse_block, parse_lines
from cort.formats.passages import stripped
from cort.system.errors import input_error, shorten

COLUMNS = ("query", "positive", "negative")
FIELDS = pa.schema(dict.fromkeys(COLUMNS, "string"))
SEPARATOR = "\t"
DIGEST_BYTES = 16
# Lower-cased column names of headers, without "id".
HEADERS = {"", "q", "query", "p", "pos", "positive", "passage", "doc", "n", "neg", "negative"}


def holds_texts(path: str | Path) -> bool:
    """Whether the lines of a file have texts instead of ids; refuse a file without lines."""
    first = next((line for _, line in iter_lines(path)), None)
    if first is None:
        raise input_error(path, none_of("triples", path), "one triple per line", "name a file of triples")
    return any(field.split() != [field] for field in first.split(SEPARATOR))


def iter_triples(path: str | Path, of_texts: bool) -> Iterator[pa.RecordBatch]:
    """Stream the keys of all lines, ids or digests of texts, in the columns `COLUMNS`."""
    for block in iter_blocks(path):
        table = parse_block(block, COLUMNS, FIELDS, SEPARATOR)
        plain = [] if table is None else [_plain(batch, of_texts) for batch in table.to_batches()]
        batches = [batch for batch in plain if batch is not None]
        if not batches or len(batches) < len(plain):
            batches = list(parse_lines(path, block, partial(_parse, of_texts), FIELDS))
        if block.row == 1 and not of_texts:
            _refuse_header(path, batches[0])
        for batch in batches:
            columns = [digests(column) for column in batch.columns] if of_texts else batch.columns
            yield pa.record_batch(columns, names=COLUMNS)


def _plain(batch: pa.RecordBatch, of_texts: bool) -> pa.RecordBatch | None:
    """Strip texts, or check ids; return None if the result might differ from reading line by line."""
    if not of_texts:
        return batch if all(are_ids(pa.chunked_array([column])) for column in batch.columns) else None
    columns = [stripped(column) for column in batch.columns]
    return None if any(column is None for column in columns) else pa.record_batch(columns, schema=FIELDS)


def _parse(of_texts: bool, line: str) -> tuple[str, ...]:
    fields = line.split(SEPARATOR)
    if len(fields) != len(COLUMNS):
        found = f"{len(fields)} TAB-separated fields" if line else "an empty line"
        expected = "3 fields (query TAB positive TAB negative: all ids, or all texts)"
        raise BadLine(found, expected, "fix or remove the line")
    if of_texts:
        return tuple(map(checked_text, fields))
    return tuple(map(checked_id, COLUMNS, fields))


def _refuse_header(path: str | Path, batch: pa.RecordBatch) -> None:
    first = [column[0].as_py() for column in batch.columns]
    if all(field.lower().replace("id", "").strip("_-") in HEADERS for field in first):
        found = f"the header {shorten(' '.join(first))}"
        raise input_error(path, found, "only triples", "remove the header row", 1)


def digests(texts: pa.Array) -> pa.FixedSizeBinaryArray:
    """Give equal texts equal digests, and different texts different ones."""
    data, offsets = string_bytes(texts)
    parts = (data.data[start:end] for start, end in pairwise(offsets.tolist()))
    return _digest_array(b"".join(hashlib.blake2b(part, digest_size=DIGEST_BYTES).digest() for part in parts))


def _digest_array(data: bytes) -> pa.FixedSizeBinaryArray:
    rows = len(data) // DIGEST_BYTES
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(DIGEST_BYTES), rows, [None, pa.py_buffer(data)])


@dataclass(frozen=True)
class Known:
    """Queries or passages that triples may refer to: key i belongs to row `rows[i]`; `repeated` rows have no key."""

    ids: pa.Array
    keys: pa.Array
    rows: npt.NDArray[np.int32]
    repeated: int = 0

    def rows_of(self, keys: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.int32]:
        """Return the rows of keys, or -1 for an unknown key."""
        places = positions(keys, self.keys)
        return np.where(places < 0, np.int32(-1), self.rows[places])


def read_known(path: str, schema: pa.Schema, of_texts: bool) -> Known:
    """Read a table whose keys are its ids or its texts; a repeated text is the key of the row with the lowest id.

    :param schema: two columns, ids and texts.
    """
    name, text = schema.names
    if not of_texts:
        ids = tables.read_column(path, schema, name).combine_chunks()
        return Known(ids, ids, np.arange(len(ids), dtype=np.int32))
    both = [(batch[name], digests(batch[text])) for batch in tables.iter_batches(path, schema)]
    ids = pa.concat_arrays([ids for ids, _ in both]) if both else pa.array([], "string")
    words = np.frombuffer(b"".join(bytes(part.buffers()[1]) for _, part in both), np.uint64).reshape(-1, 2)
    order = np.lexsort((alphabetic_codes(ids), words[:, 1], words[:, 0]))
    is_first = np.append(True, (np.diff(words[order], axis=0) != 0).any(axis=1))[: len(order)]
    rows = order[is_first]
    return Known(ids, _digest_array(words[rows].tobytes()), rows.astype(np.int32), len(order) - len(rows))
