"""The files users bring: passages, queries and judgements as MS MARCO, TREC or BEIR publish them, plain or gzipped.

| what     | suffix                    | a line                                                        |
|----------|---------------------------|---------------------------------------------------------------|
| passages | ``.tsv .txt``             | ``doc_id TAB text``, no header (MS MARCO)                     |
| passages | ``.jsonl``                | ``{"_id": ..., "title": ..., "text": ...}`` (BEIR)            |
| passages | ``.cbor``                 | TREC-CAR's paragraphs (cort/formats/trec_car.py)              |
| queries  | ``.tsv .txt``             | ``query_id TAB text``, no header (MS MARCO)                   |
| queries  | ``.jsonl``                | ``{"_id": ..., "text": ...}`` (BEIR)                          |
| queries  | ``.qrels``                | TREC-CAR's judgements, which name their topics                |
| qrels    | ``.tsv .txt .qrels``      | ``query_id 0 doc_id grade``, no header (MS MARCO, TREC)       |
| qrels    | ``.tsv .txt .qrels``      | three columns below ``query-id TAB corpus-id TAB score`` (BEIR) |

Each may end in ``.gz``. Readers stream (row, record), rows counted from 1 and one record to a line, and change nothing
but the whitespace around a text. Whatever could corrupt ids or scores later is refused with its row.

Large TSV files of passages are parsed by Arrow, which knows none of our complaints. So a block of lines that holds
anything but plain rows is read again line by line: for the same records, or for its error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats.fields import BadLine, checked_id, checked_unicode, parse_json_line, split_fields
from cort.formats.ids import is_plain, string_bytes
from cort.formats.lines import (
    BLOCK_BYTES,
    Parts,
    Rows,
    decode_lines,
    iter_blocks,
    iter_lines,
    iter_record_batches,
    iter_records,
    parse_block,
    place_of,
)
from cort.formats.records import LARGEST_GRADE, Qrel, Text
from cort.formats.tables import PASSAGES
from cort.formats.trec_car import iter_paragraphs, topics
from cort.system.errors import input_error, shorten

TEXT_SUFFIXES = (".tsv", ".txt", ".jsonl")
PARAGRAPHS, TOPICS = ".cbor", ".qrels"
BEIR_QRELS_HEADER = "query-id\tcorpus-id\tscore"
# What headers call the columns, in small letters: no file has a text of such a word under such an id.
KINDS = ("", "doc", "document", "passage", "corpus", "query", "topic")
HEADER_IDS = {f"{kind}{joint}id" for kind in KINDS for joint in ("", "_", "-")} | {"pid", "qid", "docno", "number"}
HEADER_TEXTS = {*KINDS[1:], "text", "title", "body", "content", "contents", "question"}
HEADER_IDS_IN_ARROW = pa.array(sorted(HEADER_IDS))
JSON_TYPES = {bool: "boolean", int: "number", float: "number", list: "array", dict: "object", str: "string"}

# int() alone also takes "1_000", " 1" and digits of other scripts.
_GRADE = re.compile(r"[+-]?[0-9]{1,9}")

# Printable ASCII without the blank: at the end of a text, such a byte is no white space of any kind.
FIRST_PLAIN, LAST_PLAIN = 0x21, 0x7E


def iter_passages(path: str | Path) -> Rows[Text]:
    """Stream (row, passage); the text of a BEIR passage is its title, a blank and its text."""
    if _suffix_of(path, *TEXT_SUFFIXES, PARAGRAPHS) == PARAGRAPHS:
        return iter_paragraphs(path, _checked_passage)
    return _iter_texts(path, "doc_id")


def iter_queries(path: str | Path) -> Rows[Text]:
    """Stream (row, query)."""
    if _suffix_of(path, *TEXT_SUFFIXES, TOPICS) == TOPICS:
        return topics(iter_qrels(path), path)
    return _iter_texts(path, "query_id")


def iter_qrels(path: str | Path) -> Rows[Qrel]:
    """Stream (row, judgement); the second column of TREC's form is ignored, as by trec_eval."""
    _suffix_of(path, ".tsv", ".txt", ".qrels")
    lines = iter_lines(path)
    first = list(islice(lines, 1))
    if first == [(1, BEIR_QRELS_HEADER)]:
        return iter_records(path, lines, _parse_beir_qrel)
    fix = "write four columns without a header, or BEIR's three below 'query-id TAB corpus-id TAB score'"
    of_first = iter_records(path, iter(first), partial(_parse_trec_qrel, fix=fix))
    return chain(of_first, iter_records(path, lines, _parse_trec_qrel))


def iter_passage_batches(path: str | Path, block_bytes: int = BLOCK_BYTES) -> Iterator[pa.RecordBatch]:
    """Stream the passages of a file, as `iter_passages` reads them, in batches of about the same size."""
    if _suffix_of(path, *TEXT_SUFFIXES, PARAGRAPHS) in (".jsonl", PARAGRAPHS):
        yield from (batch for _, batch in iter_record_batches(iter_passages(path), PASSAGES))
        return
    for first_row, block, length in iter_blocks(path, block_bytes):
        batches = _parse_passages(block, length)
        if batches is None:
            records = iter_records(path, decode_lines(path, block, length, first_row), partial(_parse_tsv, "doc_id"))
            batches = [batch for _, batch in iter_record_batches(records, PASSAGES)]
        yield from batches


def none_of(what: str, path: str | Path) -> str:
    """Say what is found in a file without passages, queries or judgements."""
    return f"no {what}" if Path(path).stat().st_size else "an empty file"


def refuse_duplicates(parts: Parts, keys: pa.ChunkedArray, what: str) -> None:
    """Refuse files in which two rows have the same key; `what` is what complaints call one.

    The check keeps no Python objects, so that it serves millions of ids; rows are looked for only when it fails.
    """
    if _are_increasing_numbers(keys) or pc.count_distinct(keys).as_py() == len(keys):
        return
    codes = keys.combine_chunks().dictionary_encode().indices.to_numpy()
    _, first = np.unique(codes, return_index=True)
    again = int(np.flatnonzero(first[codes] != np.arange(len(codes)))[0])
    path, row = place_of(parts, again)
    other, before = place_of(parts, int(first[codes[again]]))
    where = f"row {before} of {other}" if len(parts) > 1 else f"row {before}"
    found = f"{what} {shorten(keys[again].as_py())} again (it is already in {where})"
    raise input_error(path, found, f"each {what} once", "remove one of the two rows", row)


def _are_increasing_numbers(keys: pa.ChunkedArray) -> bool:
    """Whether keys are numbers, like MS MARCO's, each above the last: all distinct."""
    try:
        numbers = keys.cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:
        return False
    return bool((numbers[1:] > numbers[:-1]).all())


def _suffix_of(path: str | Path, *allowed: str) -> str:
    """Suffix of a file that may be gzipped; others than the allowed ones are refused."""
    suffix = Path(Path(path).name.removesuffix(".gz")).suffix
    if suffix not in allowed:
        found = f"a file name ending in {shorten(suffix)}" if suffix else "a file name without a suffix"
        expected = f"{', '.join(allowed[:-1])} or {allowed[-1]}, each also with .gz"
        raise input_error(path, found, expected, "rename or convert the file")
    return suffix


def _iter_texts(path: str | Path, name: str) -> Rows[Text]:
    parse = _parse_json if Path(str(path).removesuffix(".gz")).suffix == ".jsonl" else _parse_tsv
    return iter_records(path, iter_lines(path), partial(parse, name))


def _parse_tsv(name: str, line: str) -> Text:
    """Take a row ``id TAB text``; `name` is what complaints call the id."""
    fields = line.split("\t")
    if len(fields) != 2:
        found = f"{len(fields)} TAB-separated fields" if line else "an empty line"
        fix = "separate id and text by one TAB and leave no other TAB in the row"
        raise BadLine(found, f"2 fields ({name} TAB text)", fix)
    if fields[0].lower() in HEADER_IDS and fields[1].strip().lower() in HEADER_TEXTS:
        raise BadLine(f"the header {shorten(line)}", f"rows of {name} TAB text alone", "remove the header row")
    return Text(_checked_id(name, fields[0]), checked_text(fields[1]))


def _parse_json(name: str, line: str) -> Text:
    record = parse_json_line(line, "correct the row; each record takes one line")
    if not isinstance(record, dict):
        raise BadLine(f"JSON of type {_json_type(record)}", "one JSON object", "write records as {...}, one to a line")
    text = _json_string(record, "text")
    if name == "doc_id" and "title" in record:
        text = f"{_json_string(record, 'title')} {text}"
    return Text(_checked_id(name, _json_string(record, "_id")), checked_text(text))


def _json_string(record: dict[str, object], key: str) -> str:
    if key not in record:
        keys = shorten(", ".join(record)) if record else "none"
        raise BadLine(f"no key {key!r} (keys: {keys})", "the keys '_id' and 'text'", f"add {key!r}")
    value = record[key]
    if not isinstance(value, str):
        raise BadLine(f"{key!r} of type {_json_type(value)}", "a string", f"put the value of {key!r} in quotes")
    return checked_unicode(key, value)


def _json_type(value: object) -> str:
    return JSON_TYPES.get(type(value), "null")


def _parse_trec_qrel(line: str, fix: str = "correct the row; ids contain no blanks") -> Qrel:
    fields = split_fields(line)
    if len(fields) != 4:
        raise _wrong_fields(line, fields, "4 fields (query_id 0 doc_id grade)", fix)
    return Qrel(checked_id("query_id", fields[0]), checked_id("doc_id", fields[2]), _checked_grade(fields[3]))


def _parse_beir_qrel(line: str) -> Qrel:
    fields = line.split("\t")
    if len(fields) != 3:
        expected = "3 TAB-separated fields (query-id, corpus-id, score) below that header"
        raise _wrong_fields(line, fields, expected, "correct the row; ids contain no blanks")
    query_id, doc_id = _checked_id("query-id", fields[0]), _checked_id("corpus-id", fields[1])
    return Qrel(query_id, doc_id, _checked_grade(fields[2]))


def _wrong_fields(line: str, fields: list[str], expected: str, fix: str) -> BadLine:
    return BadLine(f"{len(fields)} fields in {shorten(line)}" if line else "an empty line", expected, fix)


def _checked_id(name: str, value: str) -> str:
    if '"' in checked_id(name, value):
        found = f"{name} {shorten(value)} with a quotation mark"
        raise BadLine(found, f"a {name} without any, as run files need it", "give the row another id")
    return value


def _checked_passage(doc_id: str, text: str) -> Text:
    return Text(_checked_id("doc_id", doc_id), checked_text(text))


def checked_text(text: str) -> str:
    """Strip white space; an empty text, or one with a NUL, is refused."""
    if not (stripped := text.strip()):
        raise BadLine("an empty text", "at least one character", "remove the row")
    if "\x00" in stripped:
        raise BadLine("a NUL character", "text", "remove it")
    return stripped


def _checked_grade(value: str) -> int:
    if not _GRADE.fullmatch(value) or abs(int(value)) > LARGEST_GRADE:
        expected = f"an integer from -{LARGEST_GRADE} to {LARGEST_GRADE}"
        raise BadLine(f"the grade {shorten(value)}", expected, "write grades as integers, without a header")
    return int(value)


def _parse_passages(block: bytearray, length: int) -> list[pa.RecordBatch] | None:
    """Parse the first bytes of a block as lines; None where reading line by line might tell something else."""
    table = parse_block(block, length, PASSAGES.names, PASSAGES, "\t")
    if table is None:
        return None
    batches = []
    for batch in table.to_batches():
        ids, text = batch["doc_id"], stripped(batch["text"])
        if text is None or not is_plain(ids) or pc.any(pc.match_substring(ids, '"')).as_py():
            return None
        if pc.any(pc.is_in(pc.ascii_lower(ids), value_set=HEADER_IDS_IN_ARROW)).as_py():
            return None
        batches.append(pa.record_batch([ids, text], schema=PASSAGES))
    return batches


def stripped(texts: pa.Array) -> pa.Array | None:
    """Strip white space as Python does; None if a text is empty without it."""
    data, offsets = string_bytes(texts)
    if np.diff(offsets).min() == 0:
        return None
    ends = np.stack([data[offsets[:-1]], data[offsets[1:] - 1]])
    doubtful = ((ends < FIRST_PLAIN) | (ends > LAST_PLAIN)).any(axis=0)
    if not doubtful.any():
        return texts
    shorter = [text.strip() for text in texts.filter(pa.array(doubtful)).to_pylist()]
    return pc.replace_with_mask(texts, pa.array(doubtful), pa.array(shorter, pa.string())) if all(shorter) else None
