"""Files that users bring: passages, queries and judgements as MS MARCO, TREC or BEIR publish them, plain or gzipped.

| what     | suffix                    | a line                                                              |
|----------|---------------------------|---------------------------------------------------------------------|
| passages | ``.tsv .txt``             | ``doc_id TAB text``, no header (MS MARCO)                           |
| passages | ``.jsonl``                | ``{"_id": ..., "title": ..., "text": ...}`` (BEIR)                  |
| queries  | ``.tsv .txt``             | ``query_id TAB text``, no header (MS MARCO)                         |
| queries  | ``.txt``                  | a query and no TAB; its id is the number of its row (`_iter_txt`)   |
| queries  | ``.jsonl``                | ``{"_id": ..., "text": ...}`` (BEIR)                                |
| queries  | ``.qrels``                | TREC-CAR judgements, whose topics are the queries (`_iter_topics`)  |
| qrels    | ``.tsv .txt .qrels``      | ``query_id 0 doc_id grade``, no header (MS MARCO, TREC)             |
| qrels    | ``.tsv .txt .qrels``      | three columns below ``query-id TAB corpus-id TAB score`` (BEIR)     |
| qrels    | ``.jsonl``                | ``{"query_id": ..., "text": ..., "relevance": ...}`` (`iter_quoted`) |

Each may end in ``.gz``. Readers stream (row, record) with rows counted from 1 and one record per line. They strip
whitespace around a text and change nothing else; whatever could corrupt ids or scores later is refused, with its row.

Arrow parses large TSV files of passages. It lacks our error messages, so a block with anything but plain rows is
read again line by line, either for the same records or for its error.
"""

import json
import logging
import re
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats.fields import BadLine, checked_id, checked_unicode, parse_json_line, split_fields
from cort.formats.ids import has_repeated, is_plain, string_bytes
from cort.formats.lines import (
    BLOCK_BYTES,
    Block,
    Parts,
    Rows,
    iter_blocks,
    iter_lines,
    iter_record_batches,
    iter_records,
    parse_block,
    parse_lines,
    place_of,
)
from cort.formats.records import LARGEST_GRADE, Qrel, Text
from cort.formats.tables import PASSAGES
from cort.system.errors import input_error, shorten
from cort.system.files import atomic_file

log = logging.getLogger(__name__)

TEXTS = (".tsv", ".txt", ".jsonl")
TOPICS, QUOTATIONS = ".qrels", ".jsonl"
BEIR_QRELS_HEADER = "query-id\tcorpus-id\tscore"
# Lower-cased column names of headers; no real file has such a text under such an id.
KINDS = ("", "doc", "document", "passage", "corpus", "query", "topic")
HEADER_IDS = {f"{kind}{joint}id" for kind in KINDS for joint in ("", "_", "-")} | {"pid", "qid", "docno", "number"}
HEADER_TEXTS = {*KINDS[1:], "text", "title", "body", "content", "contents", "question"}
HEADER_IDS_IN_ARROW = pa.array(sorted(HEADER_IDS))
JSON_TYPES = {bool: "boolean", int: "number", float: "number", list: "array", dict: "object", str: "string"}

# How topics of TREC and SMART, XML and JSON begin: read as a query per row, they would get the ids of other queries.
MARKUP = re.compile(r"\s*(<[?!]|<(top|topics?|doc|query|queries|parameters)\b|\.I\s|\{)", re.IGNORECASE)

# int() alone also takes "1_000", " 1" and digits of other scripts.
_GRADE = re.compile(r"[+-]?[0-9]{1,9}")

# Printable ASCII except the space: at the ends of a text, these bytes are not whitespace of any kind.
FIRST_PLAIN, LAST_PLAIN = 0x21, 0x7E

QUOTATION = {"query_id": str, "text": str, "relevance": int}
# Fewest letters and digits of a quotation, so that few passages begin with it.
SHORTEST = 20

# Text of a document without one: nothing is indexed for it, but its id stays known.
EMPTY = "."
# TREC-CAR's topics.
PREFIX = "enwiki:"


def iter_passages(path: str | Path) -> Rows[Text]:
    """Stream (row, passage); a BEIR passage is its title, a space and its text."""
    _suffix_of(path, *TEXTS)
    return _iter_texts(path, "doc_id")


def iter_titled(path: str | Path) -> Rows[tuple[str, str, str]]:
    """Stream (row, (doc_id, title, text)) of passages; only BEIR has titles."""
    if _suffix_of(path, *TEXTS) == ".jsonl":
        return iter_records(path, iter_lines(path), _parse_titled)
    return ((row, (doc_id, "", text)) for row, (doc_id, text) in iter_passages(path))


def iter_queries(path: str | Path) -> Rows[Text]:
    """Stream (row, query)."""
    suffix = _suffix_of(path, *TEXTS, TOPICS)
    if suffix == TOPICS:
        return _iter_topics(path)
    return _iter_txt(path) if suffix == ".txt" else _iter_texts(path, "query_id")


def iter_qrels(path: str | Path) -> Rows[Qrel]:
    """Stream (row, judgement); like trec_eval, ignore the second column of TREC's format."""
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
    if _suffix_of(path, *TEXTS) == ".jsonl":
        yield from iter_record_batches(iter_passages(path), PASSAGES)
        return
    for block in iter_blocks(path, block_bytes):
        batches = _parse_passages(block)
        yield from parse_lines(path, block, partial(_parse_tsv, "doc_id"), PASSAGES) if batches is None else batches


def none_of(kind: str, path: str | Path) -> str:
    """Describe a file without passages, queries or judgements, for an error message."""
    return "an empty file" if Path(path).is_file() and not Path(path).stat().st_size else f"no {kind}"


def refuse_duplicates(parts: Parts, keys: pa.ChunkedArray, kind: str) -> None:
    """Refuse files in which two rows have the same key; `kind` is what error messages call a key.

    The check creates no Python objects, so it can handle millions of ids. Rows are looked up only when it fails.
    """
    if not has_repeated(keys):
        return
    # Those of a collection may exceed 2 GB.
    keys = keys.cast("large_string")
    codes = keys.combine_chunks().dictionary_encode().indices.to_numpy()
    _, first = np.unique(codes, return_index=True)
    again = int(np.flatnonzero(first[codes] != np.arange(len(codes)))[0])
    path, row = place_of(parts, again)
    other, before = place_of(parts, int(first[codes[again]]))
    where = f"row {before}" + f" of {other}" * (len(parts) > 1)
    found = f"{kind} {shorten(keys[again].as_py())} again (it is already in {where})"
    raise input_error(path, found, f"each {kind} once", "remove one of the two rows", row)


def _bare_suffix(path: str | Path) -> str:
    """Return the suffix, ignoring ``.gz``."""
    return Path(Path(path).name.removesuffix(".gz")).suffix


def _suffix_of(path: str | Path, *allowed: str) -> str:
    suffix = _bare_suffix(path)
    if suffix not in allowed:
        found = f"a file name ending in {shorten(suffix)}" if suffix else "a file name without a suffix"
        expected = f"{', '.join(allowed[:-1])} or {allowed[-1]}, each also with .gz"
        raise input_error(path, found, expected, "rename or convert the file")
    return suffix


# MS MARCO, TREC and BEIR.


def _iter_texts(path: str | Path, name: str) -> Rows[Text]:
    parse = _parse_json if _bare_suffix(path) == ".jsonl" else _parse_tsv
    return iter_records(path, iter_lines(path), partial(parse, name))


def _iter_txt(path: str | Path) -> Rows[Text]:
    """Read a query per row, or ``query_id TAB text`` if the first query has a TAB; skip empty rows and count them."""
    first, tabbed, empty = 0, False, 0
    for row, line in iter_lines(path):
        if not line.strip():
            empty += 1
            continue
        if not first:
            first, tabbed = row, "\t" in line
            if MARKUP.match(line):
                found = f"{shorten(line)}, which begins topics or records"
                fix = "write 'query_id TAB text' in every row, or a JSON object with _id and text in a .jsonl"
                raise input_error(path, found, "a query, or 'query_id TAB text'", fix, row)
        elif tabbed != ("\t" in line):
            found, expected = ("no TAB", "a TAB") if tabbed else ("a TAB", "no TAB")
            fix = "write 'query_id TAB text' in every row, or one query per row without a TAB"
            raise input_error(path, found, f"{expected}, as in row {first}", fix, row)
        parse = partial(_parse_tsv, "query_id") if tabbed else partial(_checked_text, "query_id", str(row))
        yield from iter_records(path, iter([(row, line)]), parse)
    if empty:
        log.info("%s: empty rows skipped: %d", path, empty)


def write_judged(first: str, second: str, queries: Iterable[Text], qrels: Iterable[Qrel]) -> None:
    """Write queries as BEIR .jsonl to the first path, judgements as TREC qrels to the second; both appear, or none."""
    with atomic_file(first) as of_queries, atomic_file(second) as of_qrels:
        # Judgements first: a name without any is refused before queries are read.
        with open(of_qrels, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{query_id}\t0\t{doc_id}\t{grade}\n" for query_id, doc_id, grade in qrels)
        with open(of_queries, "w", encoding="utf-8", newline="\n") as file:
            for query_id, text in queries:
                file.write(json.dumps({"_id": query_id, "text": text}, ensure_ascii=False) + "\n")


def _parse_tsv(name: str, line: str) -> Text:
    """Parse a row ``id TAB text``; error messages call the id `name`."""
    fields = line.split("\t")
    if len(fields) != 2:
        found = f"{len(fields)} TAB-separated fields" if line else "an empty line"
        fix = "separate id and text by one TAB and leave no other TAB in the row"
        raise BadLine(found, f"2 fields ({name} TAB text)", fix)
    if fields[0].lower() in HEADER_IDS and fields[1].strip().lower() in HEADER_TEXTS:
        raise BadLine(f"the header {shorten(line)}", f"only rows of {name} TAB text", "remove the header row")
    return _checked_text(name, *fields)


def _parse_json(name: str, line: str) -> Text:
    return _from_record(name, json_object(line))


def _from_record(name: str, record: dict[str, object]) -> Text:
    text = _json_string(record, "text")
    if name == "doc_id" and "title" in record:
        text = f"{_json_string(record, 'title')} {text}"
    return _checked_text(name, _json_string(record, "_id"), text)


def _parse_titled(line: str) -> tuple[str, str, str]:
    record = json_object(line)
    doc_id, _ = _from_record("doc_id", record)
    return doc_id, _json_string({"title": "", **record}, "title"), _json_string(record, "text")


def json_object(line: str) -> dict[str, object]:
    """Parse a row that is one JSON object."""
    record = parse_json_line(line, "correct the row; each record takes one line")
    if not isinstance(record, dict):
        raise BadLine(f"JSON of type {_json_type(record)}", "one JSON object", "write records as {...}, one per line")
    return record


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


def _parse_trec_qrel(line: str, fix: str = "correct the row; ids contain no spaces") -> Qrel:
    fields = split_fields(line)
    if len(fields) != 4:
        raise _wrong_fields(line, fields, "4 fields (query_id 0 doc_id grade)", fix)
    return Qrel(checked_id("query_id", fields[0]), checked_id("doc_id", fields[2]), checked_grade(fields[3]))


def _parse_beir_qrel(line: str) -> Qrel:
    fields = line.split("\t")
    if len(fields) != 3:
        expected = "3 TAB-separated fields (query-id, corpus-id, score) below that header"
        raise _wrong_fields(line, fields, expected, "correct the row; ids contain no spaces")
    query_id, doc_id = unquoted_id("query-id", fields[0]), unquoted_id("corpus-id", fields[1])
    return Qrel(query_id, doc_id, checked_grade(fields[2]))


def _wrong_fields(line: str, fields: list[str], expected: str, fix: str) -> BadLine:
    return BadLine(f"{len(fields)} fields in {shorten(line)}" if line else "an empty line", expected, fix)


def unquoted_id(name: str, value: str) -> str:
    """Check an id like `checked_id`; refuse quotation marks, too."""
    if '"' in checked_id(name, value):
        found = f"{name} {shorten(value)} with a quotation mark"
        raise BadLine(found, f"a {name} without one, as run files need it", "give the row another id")
    return value


def _checked_text(name: str, value: str, text: str) -> Text:
    return Text(unquoted_id(name, value), checked_text(text))


def checked_text(text: str) -> str:
    """Strip whitespace; refuse an empty text, or one with a NUL character."""
    if not (stripped := text.strip()):
        raise BadLine("an empty text", "at least one character", "remove the row")
    if "\x00" in stripped:
        raise BadLine("a NUL character", "text", "remove it")
    return stripped


def checked_grade(value: str) -> int:
    """Parse the grade of a judgement."""
    if not _GRADE.fullmatch(value) or abs(int(value)) > LARGEST_GRADE:
        expected = f"an integer from -{LARGEST_GRADE} to {LARGEST_GRADE}"
        raise BadLine(f"the grade {shorten(value)}", expected, "write grades as integers, without a header")
    return int(value)


def _parse_passages(block: Block) -> list[pa.RecordBatch] | None:
    """Parse a block as a whole; return None if the result might differ from reading line by line."""
    table = parse_block(block, PASSAGES.names, PASSAGES, "\t")
    if table is None:
        return None
    batches = []
    for batch in table.to_batches():
        ids, texts = batch["doc_id"], stripped(batch["text"])
        odd = pc.or_(pc.match_substring(ids, '"'), pc.is_in(pc.ascii_lower(ids), value_set=HEADER_IDS_IN_ARROW))
        if texts is None or not is_plain(ids) or pc.any(odd).as_py():
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


# Judgements that quote passages.


class Quotation(NamedTuple):
    """A judgement of all passages that begin with a text."""

    query_id: str
    text: str
    relevance: int


def is_quoted(path: str | Path) -> bool:
    """Whether a file of judgements quotes passages, according to its name."""
    return _bare_suffix(path) == QUOTATIONS


def iter_quoted(path: str | Path, passages: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Qrel]]:
    """Stream (row, judgement) from a file that quotes the beginnings of passages, since papers print texts without ids.

    Only letters and digits are compared, ignoring case. A judgement holds for all passages that begin with the text, of
    which there must be at least one.
    """
    quotations = list(iter_records(path, iter_lines(path), _parse_quotation))
    doc_ids: dict[str, list[str]] = {_letters_of(quotation.text): [] for _, quotation in quotations}
    for batch in passages:
        texts = _letters(batch["text"])
        for beginning, matches in doc_ids.items():
            matches += batch["doc_id"].filter(pc.starts_with(texts, beginning)).to_pylist()
    for row, (query_id, text, relevance) in quotations:
        if not (matches := doc_ids[_letters_of(text)]):
            expected = "the beginning of a passage of the collection"
            raise input_error(path, f"the text {shorten(text)}", expected, "copy it from there", row)
        yield from ((row, Qrel(query_id, doc_id, relevance)) for doc_id in matches)


def _letters(texts: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(pc.ascii_lower(texts), "[^a-z0-9]+", "")


def _letters_of(text: str) -> str:
    letters: str = _letters(pa.array([text]))[0].as_py()
    return letters


def _parse_quotation(line: str) -> Quotation:
    record = parse_json_line(line, "correct the row; each record takes one line")
    if not isinstance(record, dict) or {key: type(value) for key, value in record.items()} != QUOTATION:
        raise BadLine(shorten(line), "an object with query_id, text and relevance", "correct the row")
    text, relevance = checked_unicode("text", record["text"]), record["relevance"]
    if abs(relevance) > LARGEST_GRADE:
        raise BadLine(f"the relevance {relevance}", f"at most {LARGEST_GRADE}", "correct the row")
    if len(_letters_of(text)) < SHORTEST:
        raise BadLine(f"the text {shorten(text)}", f"at least {SHORTEST} letters or digits", "quote more")
    return Quotation(checked_id("query_id", record["query_id"]), text, relevance)


# TREC-CAR (Dietz and Gamari, 2017): sections of Wikipedia.


def _iter_topics(path: str | Path) -> Rows[Text]:
    """Stream (row, topic) for the queries of a file of judgements, each with its first row.

    A topic is a page and the headings above a section, ``enwiki:PAGE/HEADING/HEADING``. As in "Passage Re-ranking with
    BERT", its text omits ``enwiki:`` and has spaces for ``%20`` and ``/``; other ``%`` stay.
    """
    seen: set[str] = set()
    for row, (query_id, _, _) in iter_qrels(path):
        if query_id not in seen:
            seen.add(query_id)
            page, _, headings = query_id.removeprefix(PREFIX).partition("/")
            if not query_id.startswith(PREFIX) or not page:
                found = f"the topic {shorten(query_id)} without a page"
                expected = f"{PREFIX}PAGE/HEADING, as in TREC-CAR's hierarchical judgements"
                raise input_error(path, found, expected, "name a file of queries, or correct the topic", row)
            yield row, Text(query_id, " ".join(f"{page}/{headings}".replace("%20", " ").replace("/", " ").split()))
