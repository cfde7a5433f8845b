"""Judgements that quote passages, a JSON object per line: those of papers and of people who judge.

``{"query_id": ..., "text": ..., "relevance": ...}`` judges all passages that begin with a text, since papers print
texts without ids. Only letters and digits are compared, ignoring case.

With ``"doc_id": ...``, too, an object judges this passage, or this document by the text of one of its passages. Of
several lines about the same pair, the last one counts; one without a relevance (null) withdraws the judgement. A
passage is known by its id if it still begins with the text, and a document by its id alone. Otherwise, the judgement is
of all passages that begin with the text, or of their documents, with any whitespace; if there are none, it is dropped,
and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from cort.formats.fields import BadLine, checked_id, checked_unicode, parse_json_line
from cort.formats.lines import iter_lines, iter_records
from cort.formats.raw import bare_suffix
from cort.formats.records import LARGEST_GRADE, Qrel
from cort.system.errors import input_error, shorten

SUFFIX = ".jsonl"
QUOTATION = {"query_id": str, "text": str, "relevance": int}
JUDGEMENT = QUOTATION | {"doc_id": str}
WITHDRAWAL = JUDGEMENT | {"relevance": type(None)}
# Fewest letters and digits of a quotation, so that few passages begin with it.
SHORTEST = 20

#: reads the passages of the collection (tables.PASSAGES) from the beginning
Passages: TypeAlias = Callable[[], Iterable[pa.RecordBatch]]
#: names the documents of passages; None if passages are judged
Grouping: TypeAlias = "Callable[[pa.Array], pa.Array] | None"
Numbered: TypeAlias = "list[tuple[int, Quotation]]"
Judged: TypeAlias = dict[tuple[str, str], tuple[int, Qrel]]


class Quotation(NamedTuple):
    """A row; `relevance` is None if withdrawn. Without `doc_id`, it is about all passages that begin with the text."""

    query_id: str
    text: str
    relevance: int | None
    doc_id: str = ""


class Quoted(NamedTuple):
    """Judgements with their rows; of those with ids, how many were found and how, are gone, or were withdrawn."""

    qrels: list[tuple[int, Qrel]]
    counts: dict[str, int]


def is_quoted(path: str | Path) -> bool:
    """Whether a file of judgements quotes passages, according to its name."""
    return bare_suffix(path) == SUFFIX


def read_quoted(path: str | Path, passages: Passages, grouping: Grouping = None) -> Quoted:
    """Read a file of judgements.

    :raises InputError: for a bad row, and for one without an id if no passage begins with it, or documents are judged.
    """
    rows = list(iter_records(path, iter_lines(path), parse_quotation))
    plain = [(row, one) for row, one in rows if not one.doc_id]
    if plain and grouping:
        fix = "name documents by their ids, or set `collection.aggregate` to none"
        raise input_error(path, "texts of passages", "documents, which are measured", fix, plain[0][0])
    qrels = _quotations(path, plain, passages) if plain else []
    last = {(one.query_id, one.doc_id): (row, one) for row, one in rows if one.doc_id}
    if not last:
        return Quoted(qrels, {})
    judged = [(row, one) for row, one in last.values() if one.relevance is not None]
    found = _by_id(judged, passages(), grouping)
    lost = [(row, one) for row, one in judged if (one.query_id, one.doc_id) not in found]
    again, gone = _by_text(lost, passages, grouping)
    counts = {
        "judgements_found_by_id": len(found),
        "found_by_text": len(lost) - gone,
        "gone": gone,
        "withdrawn": len(last) - len(judged),
    }
    # A passage that is known by its id keeps its own judgement.
    return Quoted([*qrels, *sorted((again | found).values())], counts)


def parse_quotation(line: str) -> Quotation:
    """Parse a row, or raise a `BadLine`."""
    record = parse_json_line(line, "correct the row; each record takes one line")
    shape = {key: type(value) for key, value in record.items()} if isinstance(record, dict) else None
    if shape not in (QUOTATION, JUDGEMENT, WITHDRAWAL):
        expected = "an object with query_id, text and relevance, perhaps doc_id"
        raise BadLine(shorten(line), expected, "correct the row")
    text, relevance = checked_unicode("text", record["text"]), record["relevance"]
    if abs(relevance or 0) > LARGEST_GRADE:
        raise BadLine(f"the relevance {relevance}", f"at most {LARGEST_GRADE}", "correct the row")
    if shape == QUOTATION and len(_letters_of(text)) < SHORTEST:
        raise BadLine(f"the text {shorten(text)}", f"at least {SHORTEST} letters or digits", "quote more")
    ids = {key: checked_id(key, record[key]) for key in ("query_id", "doc_id") if key in record}
    return Quotation(text=text, relevance=relevance, **ids)


def _quotations(path: str | Path, rows: Numbered, passages: Passages) -> list[tuple[int, Qrel]]:
    begun = _that_begin([_letters_of(one.text) for _, one in rows], passages, _letters)
    qrels = []
    for row, one in rows:
        if not (matches := begun[_letters_of(one.text)]):
            expected = "the beginning of a passage of the collection"
            raise input_error(path, f"the text {shorten(one.text)}", expected, "copy it from there", row)
        qrels += [(row, Qrel(one.query_id, doc_id, one.relevance or 0)) for doc_id in matches]
    return qrels


def _by_id(judged: Numbered, passages: Iterable[pa.RecordBatch], grouping: Grouping) -> Judged:
    """Find judgements whose document exists, or whose passage exists and begins with the same text."""
    wanted = pa.array({one.doc_id for _, one in judged}, "string")
    texts: dict[str, str] = {}
    for batch in passages:
        ids = grouping(batch["doc_id"]) if grouping else batch["doc_id"]
        known = pc.is_in(ids, value_set=wanted)
        texts.update(zip(ids.filter(known).to_pylist(), batch["text"].filter(known).to_pylist(), strict=True))
    return {
        (one.query_id, one.doc_id): (row, Qrel(one.query_id, one.doc_id, one.relevance or 0))
        for row, one in judged
        if one.doc_id in texts and (grouping or texts[one.doc_id].startswith(one.text))
    }


def _by_text(judged: Numbered, passages: Passages, grouping: Grouping) -> tuple[Judged, int]:
    """Find judgements by the beginnings of texts; also return how many are of no passage."""
    found: Judged = {}
    gone = 0
    begun = _that_begin([_spaced_of(one.text) for _, one in judged], passages, _spaced) if judged else {}
    for row, one in sorted(judged):
        text = _spaced_of(one.text)
        matches = begun[text] if len(text) >= SHORTEST else []
        gone += not matches
        for doc_id in grouping(pa.array(matches, "string")).to_pylist() if grouping else matches:
            found[one.query_id, doc_id] = row, Qrel(one.query_id, doc_id, one.relevance or 0)
    return found, gone


def _that_begin(
    beginnings: list[str], passages: Passages, normalized: Callable[[pa.Array], pa.Array]
) -> dict[str, list[str]]:
    """Return the ids of the passages whose normalized texts have each of some beginnings."""
    doc_ids: dict[str, list[str]] = {beginning: [] for beginning in beginnings}
    for batch in passages():
        texts = normalized(batch["text"])
        for beginning, matches in doc_ids.items():
            matches += batch["doc_id"].filter(pc.starts_with(texts, beginning)).to_pylist()
    return doc_ids


def _letters(texts: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(pc.ascii_lower(texts), "[^a-z0-9]+", "")


def _letters_of(text: str) -> str:
    letters: str = _letters(pa.array([text]))[0].as_py()
    return letters


def _spaced(texts: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(texts, r"\s+", " ")


def _spaced_of(text: str) -> str:
    spaced: str = _spaced(pa.array([text.strip()]))[0].as_py()
    return spaced
