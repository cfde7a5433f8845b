"""Documents in files, as passages, and the table of passages that every other stage reads.

| how a file begins                | a document                                                                 |
|----------------------------------|----------------------------------------------------------------------------|
| ``{``, ``[{``, a header, Parquet | a row with an id, a text and perhaps a title (`cort.formats.rows`)         |
| ``<DOC>`` (TREC), ``.I`` (SMART) | an element, a record (`cort.formats.marked`)                               |
| another line                     | ``doc_id TAB text`` (MS MARCO)                                             |

A passage is the title of a document, a space, and its text. Nothing
is indexed for documents without both, but their ids stay known, as they may be judged.

Arrow parses large TSV files. A block that it cannot read exactly as the line parser would is parsed line by line, for
the same records or for an error with its row.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats import marked, rows
from cort.formats.duplicates import kept_rows, numbers_of
from cort.formats.fields import BadLine, writable_id
from cort.formats.ids import Words, is_plain, may_repeat, string_bytes
from cort.formats.lines import (
    BLOCK_BYTES,
    Block,
    Rows,
    decode_lines,
    decode_text,
    iter_blocks,
    iter_record_batches,
    iter_records,
    iter_text,
    log_doubts,
    none_of,
    parse_block,
)
from cort.formats.records import EMPTY, Text
from cort.formats.tables import DOC_IDS, PASSAGES, ROWS_READ_AT_ONCE, iter_batches, open_writer, read_column, regroup
from cort.runtime.background import ahead
from cort.runtime.errors import input_error, shorten
from cort.runtime.files import atomic_file
from cort.runtime.progress import track

# Blocks of a file, about a row group: one is parsed while another is written.
AHEAD = 8
#: a count of `write_passages`
REPEATED = "identical documents dropped"

# Rows that tell whether ids are texts.
FIRST = 100
Item = TypeVar("Item")

# Printable ASCII except the space: at the ends of a text, these bytes are not whitespace of any kind.
FIRST_PLAIN, LAST_PLAIN = 0x21, 0x7E


def iter_titled(
    path: str | Path, fields: rows.Fields = rows.DEFAULT, doubts: Counter[str] | None = None
) -> Rows[tuple[str, str, str]]:
    """Stream (row, (doc_id, title, text)) of documents; title and text may be empty.

    :param fields: names of the fields of rows, as in the config.
    :param doubts: gets the number of rows that were read with doubts, by reason.
    """
    names = rows.names_of(fields)
    match _form(path, names):
        case "lines":
            lines = iter_text(path, doubts, has_nul=False)
            return ((row, (doc_id, "", text)) for row, (doc_id, text) in _parsed(path, lines))
        case "marked":
            return iter_records(path, marked.iter_documents(path, doubts), _with_checked_id)
        case form:
            read = partial(iter_text, counts=doubts, has_nul=False)
            records = rows.iter_rows(path, form, names.columns(), read=read, doubts=doubts)
            return iter_records(path, records, partial(rows.titled, names))


def _form(path: str | Path, names: rows.Names) -> str:
    form = rows.form_of(path, names.ids, (*names.titles, *names.texts))
    if form or marked.is_marked(path):
        return form or "marked"
    first = [line.partition("\t")[0] for _, line in islice(iter_text(path), FIRST) if "\t" in line]
    if rows.are_texts(first):
        found = f"texts before the first TAB ({shorten(first[0])})"
        fix = "write ids before them and the header 'id TAB title TAB text', or name the file's folder as `folder`"
        raise input_error(path, found, "2 fields (doc_id TAB text)", fix)
    return "lines"


def iter_passages(
    path: str | Path, fields: rows.Fields = rows.DEFAULT, doubts: Counter[str] | None = None
) -> Rows[Text]:
    """Stream (row, passage); a passage is a title, a space and a text. `doubts` is as in `iter_titled`."""
    return iter_records(path, iter_titled(path, fields, doubts), _joined)


def iter_passage_batches(
    path: str | Path,
    fields: rows.Fields = rows.DEFAULT,
    doubts: Counter[str] | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Stream the passages of a file, as `iter_passages` reads them, in batches of about the same size."""
    if _form(path, rows.names_of(fields)) != "lines":
        yield from iter_record_batches(iter_passages(path, fields, doubts), PASSAGES)
        return
    found = Counter[str]()
    for block in iter_blocks(path, block_bytes):
        batches = _parse_passages(block)
        lines = decode_lines(path, block, partial(decode_text, found, False))
        yield from iter_record_batches(_parsed(path, lines), PASSAGES) if batches is None else batches
    log_doubts(path, found, doubts)


def write_passages(parts: Iterable[tuple[str, Iterable[pa.RecordBatch]]], output: str | Path) -> dict[str, int]:
    """Stream the passages of one or more files into a table, without repeated ones; return counts.

    Memory holds a row group and what is read ahead, or later a number for each id. The table appears under `output`
    after the last check.

    :raises InputError: for a file without passages, or the same id with another text.
    """
    with atomic_file(output) as temporary:
        sizes, empty = _write_all(parts, temporary)
        count = sum(len(rows) for _, rows in sizes)
        doc_ids = (batch["doc_id"] for batch in releasing(iter_batches(temporary, DOC_IDS)))
        repeated = _drop_repeated(temporary, sizes) if may_repeat(doc_ids, count) else 0
    counts = {"documents without text": empty, "passages": count - repeated}
    return counts | ({REPEATED: repeated} if repeated else {})


def _write_all(
    parts: Iterable[tuple[str, Iterable[pa.RecordBatch]]], path: Path
) -> tuple[list[tuple[str, range]], int]:
    """Write all passages; return the rows of each source, and the number of passages without text."""
    sizes: list[tuple[str, range]] = []
    empty = 0

    def counted() -> Iterator[pa.RecordBatch]:
        for source, batches in parts:
            number = 0
            for batch in batches:
                number += batch.num_rows
                yield batch
            if not number:
                expected, fix = "one passage or more", "name the file that holds the passages"
                raise input_error(source, none_of("passages", source), expected, fix)
            sizes.append((source, range(1, number + 1)))

    with open_writer(path, PASSAGES) as writer:
        for table in track(releasing(regroup(ahead(counted(), AHEAD))), None, "passages", size=len):
            writer.write_table(table, ROWS_READ_AT_ONCE)
            empty += pc.sum(pc.equal(table["text"], EMPTY)).as_py()
    return sizes, empty


def _drop_repeated(path: Path, sizes: Sequence[tuple[str, range]]) -> int:
    """Write a table again without repeated passages, if it has any; return their number."""
    column = read_column(path, PASSAGES, "doc_id")

    def texts() -> Words:
        return np.concatenate([numbers_of(batch["text"]) for batch in iter_batches(path, PASSAGES)])

    kept = kept_rows(sizes, column, "doc_id", texts, "text")
    if kept is None:
        return 0
    mask, start = pa.array(np.isin(np.arange(len(column)), kept)), 0
    with open_writer(path, PASSAGES) as writer:
        for table in regroup(iter_batches(path, PASSAGES)):
            writer.write_table(table.filter(mask.slice(start, len(table))), ROWS_READ_AT_ONCE)
            start += len(table)
    return len(column) - len(kept)


def releasing(items: Iterable[Item]) -> Iterator[Item]:
    """Yield items, and return to the system the memory of those that are done, which Arrow would keep for later."""
    for item in items:
        yield item
        pa.default_memory_pool().release_unused()


def _joined(document: tuple[str, str, str]) -> Text:
    doc_id, title, text = document
    # Within a text, whitespace stays as it is.
    whole = f"{title} {text}".strip()
    if "\x00" in whole:
        raise BadLine("a NUL character", "text", "remove it")
    return Text(doc_id, whole or EMPTY)


def _with_checked_id(document: tuple[str, str, str]) -> tuple[str, str, str]:
    return (writable_id("doc_id", document[0]), *document[1:])


def _parsed(path: str | Path, lines: Rows[str]) -> Rows[Text]:
    """Read lines one by one, except blank ones."""
    return iter_records(path, ((row, line) for row, line in lines if line.strip()), _parse_tsv)


def _parse_tsv(line: str) -> Text:
    doc_id, *texts = line.split("\t")
    if len(texts) != 1:
        expected = "2 fields (doc_id TAB text)"
        fix = "separate id and text by one TAB and leave no other TAB in the row, or write a header"
        raise BadLine(f"{1 + len(texts)} TAB-separated fields", expected, fix)
    return _joined((writable_id("doc_id", doc_id), "", texts[0]))


def _parse_passages(block: Block) -> list[pa.RecordBatch] | None:
    """Parse a block as a whole; return None if the result might differ from reading line by line."""
    table = parse_block(block, PASSAGES.names, PASSAGES, "\t")
    if table is None:
        return None
    batches = []
    for batch in table.to_batches():
        ids, texts = batch["doc_id"], stripped(batch["text"])
        if texts is None or not is_plain(ids):
            return None
        batches.append(pa.record_batch([ids, texts], schema=PASSAGES))
    return batches


def stripped(texts: pa.Array) -> pa.Array | None:
    """Strip whitespace as Python does; return None if that leaves a text empty."""
    data, offsets = string_bytes(texts)
    if np.diff(offsets).min() == 0:
        return None
    ends = np.stack([data[offsets[:-1]], data[offsets[1:] - 1]])
    doubtful = ((ends < FIRST_PLAIN) | (ends > LAST_PLAIN)).any(axis=0)
    if not doubtful.any():
        return texts
    shorter = [text.strip() for text in texts.filter(doubtful).to_pylist()]
    return pc.replace_with_mask(texts, doubtful, pa.array(shorter, "string")) if all(shorter) else None
