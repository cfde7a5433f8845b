"""Queries: of MS MARCO, BEIR, TREC or SMART, in rows with field names, or one a line. The content tells which.

| how a file begins                     | a query                                                                 |
|---------------------------------------|-------------------------------------------------------------------------|
| ``{``, a header, Parquet              | a row (`cort.formats.rows`)                                             |
| ``<top>``, ``<DOC>``, another tag     | a topic, of which `field` is read: title, description or narrative      |
| ``.I``                                | a record; its id is its position, as in the judgements of the Cranfield |
|                                       | collection, whose own numbers have gaps                                 |
| a line with a TAB                     | ``query_id TAB text``                                                   |
| another line                          | a line, whose id is the number of its row, if `numbered`                |

A file named ``.qrels`` has TREC-CAR's judgements, whose topics are the queries.
"""

import logging
import re
from functools import partial
from pathlib import Path

from cort.formats import marked, rows
from cort.formats.fields import BadLine, checked_text, writable_id
from cort.formats.judgements import iter_qrels
from cort.formats.lines import Rows, iter_lines, iter_records
from cort.formats.records import Text
from cort.runtime.errors import input_error, shorten

log = logging.getLogger(__name__)

#: what a topic's parts are called, and the words that TREC writes before them
PARTS = {
    "title": ("title", "query"),
    "description": ("desc", "description", "question"),
    "narrative": ("narr", "narrative"),
}
PREFIX = "enwiki:"
NUMBERS = ("num", "number", "identifier", "topicid", "qid", "id", "docno")
LABEL = re.compile(r"\s*(?:number|topic|description|narrative|title)\s*:\s*", re.IGNORECASE)
NUMBER = re.compile(r"""\b(?:number|id|qid)\s*=\s*["']?([^"'\s>]+)""", re.IGNORECASE)


def iter_queries(path: str | Path, field: str = "title", numbered: bool = True) -> Rows[Text]:
    """Stream (row, query).

    :param field: of topics; several are joined with ``+``.
    :param numbered: read lines without ids as queries, whose ids are their rows; otherwise they are refused.
    """
    if Path(path).suffix == ".qrels":
        return _iter_headings(path)
    if (form := rows.form_of(path, rows.QUERIES.ids, rows.QUERIES.texts)) is not None:
        return iter_records(path, rows.iter_rows(path, form, rows.QUERIES.columns()), _of_record)
    if marked.is_marked(path):
        return _iter_topics(path, field)
    return _iter_lines(path, numbered)


def _iter_headings(path: str | Path) -> Rows[Text]:
    """Stream (row, topic) for the queries of TREC-CAR's judgements, each with its first row.

    A topic is a page and the headings above a section, ``enwiki:PAGE/HEADING/HEADING``. As in "Passage Re-ranking with
    BERT", its text omits ``enwiki:`` and has spaces for ``%20`` and ``/``; other ``%`` stay.
    """
    seen: set[str] = set()
    for row, (query_id, _, _) in iter_qrels(path):
        if query_id not in seen:
            seen.add(query_id)
            if not query_id.startswith(PREFIX):
                found, expected = f"the topic {shorten(query_id)}", f"{PREFIX}PAGE/HEADING, as in TREC-CAR's judgements"
                raise input_error(path, found, expected, "name a file of queries", row)
            text = query_id.removeprefix(PREFIX).replace("%20", " ").replace("/", " ")
            yield row, Text(query_id, " ".join(text.split()))


def _of_record(row: rows.Row) -> Text:
    record = rows.checked(row)
    query_id = rows.id_of(record, rows.QUERIES.ids, "query_id")
    return Text(query_id, checked_text(rows.text_of(record, rows.QUERIES.texts)))


def _iter_topics(path: str | Path, field: str) -> Rows[Text]:
    topics = marked.iter_topics(path)
    if marked.is_smart(path):
        records = list(enumerate(marked.iter_smart(path), 1))
        if any(record.attributes.lstrip("0") != str(position) for position, record in records):
            log.warning("%s: numbers with gaps; queries are numbered from 1, as their judgements are", path)
        topics = (record._replace(attributes=f"id={position}") for position, record in records)
    return iter_records(path, ((topic.row, topic) for topic in topics), partial(_of_topic, field))


def _of_topic(field: str, topic: marked.Marked) -> Text:
    attribute = NUMBER.search(topic.attributes)
    written = attribute[1] if attribute else topic.first(*NUMBERS)
    # "Number: 051" is 51 in judgements.
    number = LABEL.sub("", written, 1).lstrip("0" if LABEL.match(written) else "")
    texts = [LABEL.sub("", topic.all(*PARTS[part]), 1) for part in field.split("+")]
    if field == "title" and not texts[0]:
        # Queries of SMART have only words, topics of TREC-4 descriptions, and those of some tracks other parts.
        others = dict.fromkeys(name for name, _ in topic.parts if name not in NUMBERS)
        known = (("t", "w"), PARTS["description"], tuple(others))
        texts = [LABEL.sub("", next(filter(None, (topic.all(*names) for names in known)), ""), 1)]
    names = ", ".join(dict.fromkeys(name for name, text in topic.parts if name and text)) or "nothing"
    if not all(texts):
        raise BadLine(f"a topic with {names} alone", f"a {field} in each", "set `topics` to another field")
    return Text(writable_id("query_id", number.split()[0] if number.split() else ""), checked_text(" ".join(texts)))


def _iter_lines(path: str | Path, numbered: bool) -> Rows[Text]:
    """Read a query per row, or ``query_id TAB text`` if the first query has a TAB; skip empty rows and count them."""
    first, tabbed, empty = 0, False, 0
    for row, line in iter_lines(path):
        if not line.strip():
            empty += 1
            continue
        has_tab = "\t" in line
        if not first:
            first, tabbed = row, has_tab
        if not (tabbed or numbered):
            fix = "write 'query_id TAB text', or set `numbered: true` if judgements number the lines"
            raise input_error(path, "a query without an id", "one with the id that its judgements have", fix, row)
        if has_tab != tabbed:
            found, expected = ("no TAB", "a TAB") if tabbed else ("a TAB", "no TAB")
            fix = "write 'query_id TAB text' in every row, or one query per row without a TAB"
            raise input_error(path, found, f"{expected}, as in row {first}", fix, row)
        yield from iter_records(path, iter([(row, line if tabbed else f"{row}\t{line}")]), _of_line)
    if empty:
        log.info("%s: empty rows skipped: %d", path, empty)


def _of_line(line: str) -> Text:
    query_id, *texts = line.split("\t")
    if len(texts) != 1:
        fix = "separate id and text by one TAB and leave no other TAB in the row"
        raise BadLine(f"{1 + len(texts)} TAB-separated fields", "2 fields (query_id TAB text)", fix)
    return Text(writable_id("query_id", query_id), checked_text(texts[0]))
