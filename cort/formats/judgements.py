"""Judgements: of TREC, BEIR, MTEB and SMART, or of texts, as papers quote them and as the explorer writes them.

| how a file begins                                 | a judgement                                                 |
|---------------------------------------------------|-------------------------------------------------------------|
| a header such as ``query-id TAB corpus-id``,      | a row; without a column for it, the grade is 1              |
| Parquet, or a JSON object without ``text``        |                                                             |
| another line                                      | ``query_id 0 doc_id grade`` (TREC), and any further columns |
| a line of three columns                           | ``query_id doc_id grade`` (the Cranfield collection)        |
| a JSON object with ``text``                       | of the passages that begin with a text (`read_judged`)      |

Four columns whose last two are 0 in every line are ``query_id doc_id 0 0`` (SMART): read as TREC's, all would be about
a document 0, and none relevant. Their grade is 1. Empty lines are skipped, and comments: lines that begin with ``#``
and a blank, or that begin with ``#`` and are no judgement.

A judgement ``{"query_id": ..., "doc_id": ..., "text": ..., "relevance": ...}`` of a person has the beginning of the
passage that was shown, of which letters and digits are compared, ignoring case. Of several lines about the same pair,
the last one counts; one without a relevance (null) withdraws the judgement. The collection may have been divided
otherwise since. A passage is known by its id if it still begins with the text, and a document by its id alone.
Otherwise, or without ``doc_id``, the judgement is of all passages that begin with the text, or of their documents; if
there are none, it is dropped, and counted.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from cort.formats import rows
from cort.formats.artifacts import parse_json_as
from cort.formats.fields import LARGEST_GRADE, NUMBER, BadLine, checked_grade, split_fields, writable_id
from cort.formats.lines import Rows, head_of, iter_lines, iter_records
from cort.formats.records import Qrel, Text
from cort.runtime.errors import input_error, shorten
from cort.runtime.files import atomic_file

log = logging.getLogger(__name__)

LARGEST = 3
QUERY_IDS = ("query-id", "query_id", "qid", "query", "topic", "topic_id", "topic-id")
DOC_IDS = ("corpus-id", "corpus_id", "doc_id", "doc-id", "docid", "docno", "pid", "document_id", "passage_id")
GRADES = ("score", "relevance", "rel", "label", "grade", "judgment", "judgement")
# Fewest letters and digits of a text that passages are found by, so that few of them begin with it.
SHORTEST = 16


class Places(NamedTuple):
    """The number of columns, and the places of those that count; without one of grades, these are 1."""

    columns: int
    query_id: int
    doc_id: int
    grade: int | None
    is_header: bool = False
    is_smart: bool = False

    def of(self, line: str) -> list[str] | None:
        """Divide a line at blanks and TABs, or else at TABs; None if it has another number of columns."""
        divided = split_fields(line), line.split("\t")
        return next((fields for fields in divided if len(fields) == self.columns), None)

    def is_comment(self, line: str) -> bool:
        """Whether a line begins with ``#`` like a comment, not like the id of a query in a judgement."""
        if not line.startswith("#"):
            return False
        if line.startswith("# ") or (fields := self.of(line)) is None:
            return True
        if self.is_smart:
            return not _is_smart(fields)
        return self.grade is not None and not NUMBER.fullmatch(fields[self.grade])


TREC, SMART = Places(4, 0, 2, 3), Places(4, 0, 1, None, is_smart=True)


def iter_qrels(path: str | Path) -> Rows[Qrel]:
    """Stream (row, judgement); like trec_eval, ignore the second column of TREC's format."""
    form = rows.form_of(path, QUERY_IDS, DOC_IDS)
    if form not in (None, rows.TSV):
        return iter_records(path, rows.iter_rows(path, form, (QUERY_IDS, DOC_IDS, GRADES), fewest=3), _of_record)
    return _iter_lines(path)


def is_quoted(path: str | Path) -> bool:
    """Whether a file has judgements of texts, according to its first line."""
    if not head_of(path).lstrip().startswith(b"{"):
        return False
    return '"text":' in next((line for _, line in iter_lines(path) if line.strip()), "")


def pair_of(row: rows.Row) -> tuple[str, str]:
    """Return the ids of query and document of a row with names of fields."""
    record = rows.checked(row)
    return rows.id_of(record, QUERY_IDS, "query_id"), rows.id_of(record, DOC_IDS, "doc_id")


def _of_record(row: rows.Row) -> Qrel:
    pair, record = pair_of(row), rows.checked(row)
    return Qrel(*pair, 1 if len(record) == 2 else checked_grade(str(rows.value_of(record, GRADES))))


def _iter_lines(path: str | Path) -> Rows[Qrel]:
    """Read lines with columns in the order of a header, or as the first line has them that is no comment."""

    def lines(comment: str) -> Rows[str]:
        return ((row, line) for row, line in iter_lines(path) if line.strip() and not line.startswith(comment))

    plain = lines("#")
    # All ids of queries may begin with #.
    first = next(plain, None) or next(lines("# "), None)
    if first is None:
        return iter(())
    ((row, places),) = iter_records(path, iter([first]), _places)
    if places.is_smart and not all(_is_smart(split_fields(line)) for _, line in plain):
        places = TREC
    if places.columns > 4 and not places.is_header:
        log.warning("%s: only the first 4 of %d columns are read", path, places.columns)
    judged = _without_comments(path, iter_lines(path), places, row if places.is_header else 0)
    return iter_records(path, judged, partial(_of_line, places))


def _without_comments(path: str | Path, lines: Rows[str], places: Places, header: int) -> Rows[str]:
    """Yield the lines below a header; skip empty ones, and comments, which are counted."""
    comments = 0
    for row, line in lines:
        if places.is_comment(line):
            comments += 1
        elif row > header and line.strip():
            yield row, line
    if comments:
        log.info("%s: comments skipped: %d", path, comments)


def _is_smart(fields: Sequence[str]) -> bool:
    """Whether a line is not about another document than 0, which is not relevant, if it is one of TREC's."""
    match fields:
        case [_, second, "0", grade]:
            return second not in ("0", "Q0") and NUMBER.fullmatch(grade) is not None and not float(grade)
    return False


def _places(line: str) -> Places:
    """Tell where a line has its columns."""
    # TABs separate columns if there are four or more, as ids may have spaces; or else all whitespace does.
    fields = tabs if len(tabs := line.split("\t")) > 3 and all(tabs) else split_fields(line)
    names = [field.lower() for field in fields]
    query_id, doc_id, score = (
        next((names.index(name) for name in known if name in names), None) for known in (QUERY_IDS, DOC_IDS, GRADES)
    )
    expected, fix = "4 fields (query_id 0 doc_id grade)", "write four columns, or a header: query-id, corpus-id, score"
    if query_id is not None and doc_id is not None:
        if score is not None or len(fields) == 2:
            return Places(len(fields), query_id, doc_id, score, is_header=True)
        expected, fix = "a column of grades", "call it score"
    if _is_smart(fields):
        return SMART
    match fields:
        case [_, _, _, _, *_]:
            return TREC._replace(columns=len(fields))
        case [_, second, grade] if second not in ("0", "Q0") and NUMBER.fullmatch(grade):
            return Places(3, 0, 1, 2)
    raise BadLine(f"{len(fields)} fields in {shorten(line)}", expected, fix)


def _of_line(places: Places, line: str) -> Qrel:
    if (fields := places.of(line)) is None:
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


@dataclass(frozen=True)
class Judgement:
    """A line of a file; `text` begins like the passage that was shown, whose `doc_id` is empty if it is not known."""

    query_id: str
    doc_id: str = field(default="", kw_only=True)
    text: str
    relevance: int | None


def parse_judgement(source: str | Path, line: bytes) -> Judgement:
    """Parse a line, and refuse other grades than those that the explorer has; errors name its `source`."""
    fix = "correct the judgement"
    one = parse_json_as(source, line, Judgement, fix)
    most = LARGEST if one.doc_id else LARGEST_GRADE
    if one.relevance is not None and not 0 <= one.relevance <= most:
        raise input_error(source, f"{one.relevance} at relevance", f"a number from 0 to {most}", fix)
    return one


def read_judged(
    path: str | Path, passages: Iterable[pa.RecordBatch], documents_of: Callable[[pa.Array], pa.Array] | None
) -> tuple[list[tuple[int, Qrel]], dict[str, int]]:
    """Read a file of judgements of texts, and find what they are about.

    :param passages: those of the collection (`tables.PASSAGES`).
    :param documents_of: names the documents of passages; None if passages are judged.
    :return: judgements with their rows, in order; how many match by id or by text, no longer match, or were withdrawn.
    """
    lines = [(row, parse_judgement(f"{path}: row {row}", line.encode())) for row, line in iter_lines(path) if line]
    last = {(one.query_id, one.doc_id or one.text): (row, one) for row, one in lines}
    judged = [one for _, one in last.values()]
    texts = [one.text for one in judged]
    beginnings = dict(zip(texts, _letters(pa.array(texts, "string")).to_pylist(), strict=True))
    matches, known = _search(passages if last else (), judged, beginnings, documents_of)
    counts = dict.fromkeys(("judgements_matched_by_id", "matched_by_text", "unmatched", "withdrawn"), 0)
    qrels: dict[tuple[str, str], tuple[int, Qrel]] = {}
    for row, one in sorted(last.values(), key=itemgetter(0)):
        if one.relevance is None:
            counts["withdrawn"] += 1
            # It may have been found by its text before.
            qrels.pop((one.query_id, one.doc_id), None)
            continue
        found = matches[beginning := beginnings[one.text]]
        by_id = one.doc_id in (known if documents_of else found)
        doc_ids = [one.doc_id] if by_id else found if len(beginning) >= SHORTEST else []
        counts["judgements_matched_by_id" if by_id else "matched_by_text" if doc_ids else "unmatched"] += 1
        qrels |= {(one.query_id, doc_id): (row, Qrel(one.query_id, doc_id, one.relevance)) for doc_id in doc_ids}
    return sorted(qrels.values()), counts


def _search(
    passages: Iterable[pa.RecordBatch],
    judged: Sequence[Judgement],
    beginnings: Mapping[str, str],
    documents_of: Callable[[pa.Array], pa.Array] | None,
) -> tuple[Mapping[str, list[str]], set[str]]:
    """Find the passages, or their documents, that begin with some letters, and which of the ids judged there are.

    :param beginnings: the letters of each text.
    """
    # By the key of a passage or, if too short to find others, by its id.
    by_key, short = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for one in judged:
        beginning = beginnings[one.text]
        whose, name = (by_key, beginning[:SHORTEST]) if len(beginning) >= SHORTEST else (short, one.doc_id)
        whose[name].add(beginning)
    keys, named = pa.array([*by_key], "string"), pa.array({one.doc_id for one in judged}, "string")
    matches, known = defaultdict[str, list[str]](list), set[str]()
    for batch in passages:
        ids = documents_of(batch["doc_id"]) if documents_of else batch["doc_id"]
        is_named = pc.is_in(ids, value_set=named)
        known.update(ids.filter(is_named).to_pylist())
        likely = pc.or_(pc.is_in(_keys(batch["text"]), value_set=keys), is_named)
        letters = _letters(batch["text"].filter(likely)).to_pylist()
        for doc_id, text in zip(ids.filter(likely).to_pylist(), letters, strict=True):
            for beginning in by_key.get(text[:SHORTEST], set()) | short.get(doc_id, set()):
                if text.startswith(beginning):
                    matches[beginning].append(doc_id)
    return matches, known


def _keys(texts: pa.Array) -> pa.Array:
    """Return the first letters and digits of texts, `SHORTEST` or all; most texts have as many near their beginning."""
    near = 4 * SHORTEST
    keys = pc.utf8_slice_codeunits(_letters(pc.utf8_slice_codeunits(texts, 0, near)), 0, SHORTEST)
    few = pc.and_(pc.less(pc.utf8_length(keys), SHORTEST), pc.greater(pc.utf8_length(texts), near))
    if not pc.any(few).as_py():
        return keys
    return pc.replace_with_mask(keys, few, pc.utf8_slice_codeunits(_letters(texts.filter(few)), 0, SHORTEST))


def _letters(texts: pa.Array) -> pa.Array:
    """Return the letters and digits of texts, in small letters."""
    return pc.replace_substring_regex(pc.utf8_lower(texts), r"[^\pL\pM\pN]+", "")
