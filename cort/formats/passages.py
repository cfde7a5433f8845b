"""Passages as published, in record batches: large TSV files by Arrow's parser, wherever nothing speaks against it.

That parser takes a lone carriage return for the end of a line, and knows none of our complaints. So a block of lines
that holds anything but plain rows is read again line by line, as `raw` does it: for the same records, or for its error.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from cort.formats.ids import is_plain, string_bytes
from cort.formats.lines import BLOCK_BYTES, BYTE_ORDER_MARK, decode_lines, iter_blocks
from cort.formats.raw import iter_passages, iter_record_batches, suffix_of, tsv_pairs
from cort.formats.records import Passage
from cort.formats.tables import PASSAGES

# Printable ASCII without the blank: at the end of a text, such a byte is no white space of any kind.
FIRST_PLAIN, LAST_PLAIN = 0x21, 0x7E


def iter_passage_batches(path: str | Path, block_bytes: int = BLOCK_BYTES) -> Iterator[pa.RecordBatch]:
    """Stream the passages of a file, as `raw.iter_passages` reads them, in batches of about the same size."""
    if suffix_of(path, (".tsv", ".jsonl")) == ".jsonl":
        yield from (batch for _, batch in iter_record_batches(iter_passages(path), PASSAGES))
        return
    for first_row, block, length in iter_blocks(path, block_bytes):
        table = _parse(block, length)
        if table is None:
            lines = decode_lines(path, io.BytesIO(memoryview(block)[:length]), first_row)
            records = ((row, Passage(doc_id, text)) for row, doc_id, text in tsv_pairs(path, "doc_id", lines))
            yield from (batch for _, batch in iter_record_batches(records, PASSAGES))
        else:
            yield from table.to_batches()


def _parse(block: bytearray, length: int) -> pa.Table | None:
    """Parse the first bytes of a block as lines; None where reading line by line might tell something else."""
    if block.find(b"\r", 0, length) >= 0 or block.startswith(BYTE_ORDER_MARK):
        return None
    try:
        table = pa.csv.read_csv(
            pa.BufferReader(pa.py_buffer(memoryview(block)[:length])),
            read_options=pa.csv.ReadOptions(column_names=PASSAGES.names, block_size=4 << 20),
            parse_options=pa.csv.ParseOptions(delimiter="\t", quote_char=False, ignore_empty_lines=False),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict(zip(PASSAGES.names, PASSAGES.types, strict=True)),
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        return None
    columns = []
    for batch in table.to_batches():
        text = _stripped(batch["text"])
        if text is None or not _are_plain(batch["doc_id"]):
            return None
        columns.append(pa.record_batch([batch["doc_id"], text], schema=PASSAGES))
    return pa.Table.from_batches(columns, PASSAGES)


def _are_plain(ids: pa.Array) -> bool:
    """Whether no id is empty or holds anything but printable ASCII other than quotation marks."""
    return is_plain(ids) and not pc.any(pc.match_substring(ids, '"')).as_py()


def _stripped(texts: pa.Array) -> pa.Array | None:
    """Strip white space as Python does; None if a text is empty without it."""
    data, offsets = string_bytes(texts)
    if np.diff(offsets).min() == 0:
        return None
    ends = np.stack([data[offsets[:-1]], data[offsets[1:] - 1]])
    doubtful = ((ends < FIRST_PLAIN) | (ends > LAST_PLAIN)).any(axis=0)
    if not doubtful.any():
        return texts
    stripped = [text.strip() for text in texts.filter(pa.array(doubtful)).to_pylist()]
    return pc.replace_with_mask(texts, pa.array(doubtful), pa.array(stripped, pa.string())) if all(stripped) else None
