"""Judgements: of TREC, BEIR, MTEB and SMART, as quotations, or those that a person made in the explorer.

| how a file begins                                   | a judgement                                                 |
|-----------------------------------------------------|-------------------------------------------------------------|
| a header such as ``query-id TAB corpus-id``,        | a row; without a column for it, the grade is 1              |
| Parquet, or a JSON object without ``text``          |                                                             |
| another line                                        | ``query_id 0 doc_id grade`` (TREC), and any further columns |
| a line whose third column is 0, the second is not   | ``query_id doc_id 0 0`` (SMART), the grade is 1             |
| a line of three columns                             | ``query_id doc_id grade`` (the Cranfield collection)        |
| a JSON object with ``text``, and without ``doc_id`` | of the passages that begin with a text (`iter_quoted`)      |
| a JSON object with ``text`` and ``doc_id``          | of a person (`read_judged`)                                 |

Empty lines and lines that begin with ``#`` are skipped.

A person's judgement ``{"query_id": ..., "doc_id": ..., "text": ..., "relevance": ...}`` has the beginning of the
passage that was shown. Of several lines about the same pair, the last one counts; one without a relevance (null)
withdraws the judgement. The collection may have been divided otherwise since. A passage is known by its id if it still
begins with the text, and a document by its id alone. Otherwise, the judgement is of all passages that begin with the
text, or of their documents, with any whitespace; if there are none, it is dropped, and counted.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from cort.formats import rows
from cort.formats.artifacts import Node, parse_document
from cort.formats.fields import (
    NUMBER,
    BadLine,
    checked_grade,
    checked_unicode,
    parse_json_line,
    split_fields,
    writable_id,
)
from cort.formats.lines import Rows, head_of, iter_lines, iter_records
from cort.formats.records import LARGEST_GRADE, Qrel, Text
from cort.system.errors import input_error, shorten
from cort.system.files import atomic_file

log = logging.getLogger(__name__)

LARGEST = 3
QUERY_IDS = ("query-id", "query_id", "qid", "query", "topic", "topic_id", "topic-id")
DOC_IDS = ("corpus-id", "corpus_id", "doc_id", "doc-id", "docid", "docno", "pid", "document_id", "passage_id")
GRADES = ("score", "relevance", "rel", "label", "grade", "judgment", "judgement")
QUOTATION = {"query_id": str, "text": str, "relevance": int}
# Fewest letters and digits of a quotation, so that few passages begin with it.
SHORTEST = 20


class Places(NamedTuple):
    """The number of columns, and the places of those that count; without one of grades, these are 1."""

    columns: int
    query_id: int
    doc_id: int
    grade: int | None
    is_smart: bool = False


def iter_qrels(path: str | Path) -> Rows[Qrel]:
    """Stream (row, judgement); like trec_eval, ignore the second column of TREC's format."""
    form = rows.form_of(path, QUERY_IDS, DOC_IDS)
    if form in (rows.JSON, rows.PARQUET, rows.CSV):
        return iter_records(path, rows.iter_rows(path, form, (QUERY_IDS, DOC_IDS, GRADES), fewest=3), _of_record)
    return _iter_lines(path)


def is_quoted(path: str | Path) -> bool:
    """Whether a file has judgements of texts, according to its first line."""
    return '"text":' in _first_object(path)


def is_judged(path: str | Path) -> bool:
    """Whether a file has judgements with ids and texts, according to its first line."""
    return is_quoted(path) and '"doc_id":' in _first_object(path)


def _first_object(path: str | Path) -> str:
    if not head_of(path).lstrip().startswith(b"{"):
        return ""
    return next((line for _, line in iter_lines(path) if line.strip()), "")


def _of_record(row: rows.Row) -> Qrel:
    record = rows.checked(row)
    query_id, doc_id = rows.id_of(record, QUERY_IDS, "query_id"), rows.id_of(record, DOC_IDS, "doc_id")
    if len(record) == 2:
        return Qrel(query_id, doc_id, 1)
    return Qrel(query_id, doc_id, checked_grade(str(rows.value_of(record, GRADES))))


def _iter_lines(path: str | Path) -> Rows[Qrel]:
    """Read lines with columns in the order of a header, or as the first line has them."""
    lines = ((row, line) for row, line in iter_lines(path) if line.strip() and not line.startswith("#"))
    for row, first in islice(lines, 1):
        _, places = next(iter_records(path, iter([(row, first)]), _places))
        if _is_header(_columns(first)):
            return iter_records(path, lines, partial(_of_line, places))
        if places.columns > 4:
            log.warning("%s: only the first 4 of %d columns are read", path, places.columns)
        return iter_records(path, chain([(row, first)], lines), partial(_of_line, places))
    return iter(())


def _columns(line: str) -> list[str]:
    """Divide a line at TABs if these separate four or more columns, as ids may have spaces, or at all whitespace."""
    return tabs if len(tabs := line.split("\t")) > 3 and all(tabs) else split_fields(line)


def _is_header(fields: list[str]) -> bool:
    names = {name.lower() for name in fields}
    return not names.isdisjoint(QUERY_IDS) and not names.isdisjoint(DOC_IDS)


def _places(line: str) -> Places:
    """Tell where a file has its columns by its first line."""
    fields = _columns(line)
    expected, fix = "4 fields (query_id 0 doc_id grade)", "write four columns, or a header: query-id, corpus-id, score"
    if _is_header(fields):
        found = [
            next((place for place, name in enumerate(fields) if name.lower() in known), None)
            for known in (QUERY_IDS, DOC_IDS, GRADES)
        ]
        if found[2] is not None or len(fields) == 2:
            return Places(len(fields), int(found[0] or 0), int(found[1] or 0), found[2])
        expected, fix = "a column of grades", "call it score"
    match fields:
        case [_, second, "0", grade] if second not in ("0", "Q0") and NUMBER.fullmatch(grade) and not float(grade):
            return Places(4, 0, 1, None, is_smart=True)
        case [_, _, _, _, *_]:
            return Places(len(fields), 0, 2, 3)
        case [_, second, grade] if second not in ("0", "Q0") and NUMBER.fullmatch(grade):
            return Places(3, 0, 1, 2)
    raise BadLine(f"{len(fields)} fields in {shorten(line)}", expected, fix)


def _of_line(places: Places, line: str) -> Qrel:
    fields = split_fields(line)
    if len(fields) != places.columns and len(fields := line.split("\t")) != places.columns:
        found = f"{len(split_fields(line))} fields in {shorten(line)}"
        raise BadLine(found, f"{places.columns}, as in the first row", "correct the row")
    query_id, doc_id = fields[places.query_id], fields[places.doc_id]
    if places.is_smart:
        # Its queries are known by their positions.
        query_id = query_id.lstrip("0")
    grade = 1 if places.grade is None else checked_grade(fields[places.grade])
    return Qrel(writable_id("query_id", query_id), writable_id("doc_id", doc_id), grade)


def write_judged(first: str, second: str, queries: Iterable[Text], qrels: Iterable[Qrel]) -> None:
    """Write queries as BEIR .jsonl to the first path, judgements as TREC qrels to the second; both appear, or none."""
    with atomic_file(first) as of_queries, atomic_file(second) as of_qrels:
        # Judgements first: a name without any is refused before queries are read.
        with open(of_qrels, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{query_id}\t0\t{doc_id}\t{grade}\n" for query_id, doc_id, grade in qrels)
        with open(of_queries, "w", encoding="utf-8", newline="\n") as file:
            for query_id, text in queries:
                file.write(json.dumps({"_id": query_id, "text": text}, ensure_ascii=False) + "\n")


class Quotation(NamedTuple):
    """A judgement of all passages that begin with a text."""

    query_id: str
    text: str
    relevance: int


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
    return Quotation(writable_id("query_id", record["query_id"]), text, relevance)


@dataclass(frozen=True)
class Judgement:
    """A line of a file; `text` begins like the passage that was shown."""

    query_id: str
    doc_id: str
    text: str
    relevance: int | None

    def check(self, node: Node) -> None:
        """Refuse other grades than those that the explorer has."""
        if self.relevance is not None:
            node["relevance"].within(int, 0, LARGEST)


def parse_judgement(source: str | Path, line: bytes) -> Judgement:
    """Parse a line; errors name its `source`."""
    judgement: Judgement = parse_document(source, line, "correct the judgement").read(Judgement)
    return judgement


def read_judged(
    path: str | Path, passages: Iterable[pa.RecordBatch], documents_of: Callable[[pa.Array], pa.Array] | None
) -> tuple[list[tuple[int, Qrel]], dict[str, int]]:
    """Read a file of judgements, and find what they are about.

    :param passages: those of the collection (`tables.PASSAGES`).
    :param documents_of: names the documents of passages; None if passages are judged.
    :return: judgements with their rows, in order; how many were found by their ids or texts, are gone or withdrawn.
    """
    lines = [(row, parse_judgement(f"{path}: row {row}", line.encode())) for row, line in iter_lines(path)]
    last = {(one.query_id, one.doc_id): (row, one) for row, one in lines}
    matches: dict[str, list[str]] = {one.text: [] for _, one in last.values()}
    known: set[str] = set()
    for batch in passages if last else ():
        ids = documents_of(batch["doc_id"]) if documents_of else batch["doc_id"]
        known.update(ids.filter(pc.is_in(ids, value_set=pa.array({doc_id for _, doc_id in last}))).to_pylist())
        texts = pc.replace_substring_regex(batch["text"], r"\s+", " ")
        for text, found in matches.items():
            found += ids.filter(pc.starts_with(texts, " ".join(text.split()))).to_pylist()
    counts = dict.fromkeys(("judgements_found_by_id", "found_by_text", "gone", "withdrawn"), 0)
    qrels: dict[tuple[str, str], tuple[int, Qrel]] = {}
    for row, one in sorted(last.values(), key=itemgetter(0)):
        if one.relevance is None:
            counts["withdrawn"] += 1
            # It may have been found by its text before.
            qrels.pop((one.query_id, one.doc_id), None)
            continue
        found = matches[one.text] if len(one.text) >= SHORTEST else []
        by_id = one.doc_id in (known if documents_of else matches[one.text])
        counts["judgements_found_by_id" if by_id else "found_by_text" if found else "gone"] += 1
        for doc_id in [one.doc_id] if by_id else found:
            qrels[one.query_id, doc_id] = row, Qrel(one.query_id, doc_id, one.relevance)
    return sorted(qrels.values()), counts
