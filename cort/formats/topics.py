"""Queries: of MS MARCO, BEIR, TREC or SMART, in rows with field names, or one a line. The content tells which.

| how a file begins                     | a query                                                                 |
|---------------------------------------|-------------------------------------------------------------------------|
| ``{``, ``[{``, a header, Parquet      | a row (`cort.formats.rows`), of ``title`` and ``text`` if it has both   |
| ``<top>``, ``<DOC>``, another tag     | a topic, of which `field` is read: title, description or narrative      |
| ``.I``                                | a record; its id is its position, as in the judgements of the Cranfield |
|                                       | collection, whose own numbers have gaps                                 |
| a line with a TAB                     | ``query_id TAB text``; further TABs are in the text                     |
| ``enwiki:PAGE/HEADING``               | a path of TREC-CAR, the id; its words, decoded, are the query           |
| another line                          | a line, whose id is the number of its row, if `numbered`                |

A file named ``.qrels`` has TREC-CAR's judgements, whose topics are the queries.
"""

import logging
import re
from collections import Counter
from functools import partial
from itertools import chain, islice
from pathlib import Path
from urllib.parse import unquote

from cort.formats import marked, rows
from cort.formats.fields import BadLine, readable, writable_id
from cort.formats.judgements import iter_qrels
from cort.formats.lines import Rows, head_of, iter_records, iter_text, log_doubts
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
NUMBERS = ("num", "number", "identifier", "topicid", "topic_id", "query_id", "qid", "id", "docno")
# What TREC writes at the beginning of a part.
NUMBER = re.compile(r"\s*(?:number|topic)\s*:\s*", re.IGNORECASE)
LABELS = {
    part: re.compile(rf"\A\s*(?:{words})\s*:\s*", re.IGNORECASE)
    for part, words in (("title", "topic|title"), ("description", "description"), ("narrative", "narrative"))
}
# Lines that tell how a file has its queries.
HEAD = 1_000
TITLES = ("title",)
TEXTLESS = "queries without text, skipped"
_PATH = re.compile(r"(?:enwiki|tqa):\S+\s*")
# A number or a name before a query, or a mark of a list; lines of YAML, and how it begins.
_MARKED = re.compile(r"\s*(?:(\d+)(?:[.):])?|([\w-]+):|[-*+\u2022])\s+\S")
_YAML, _YAML_BEGINS = re.compile(r"\s*(?:-\s|[\w-]+:(?:\s|$)|---$)"), re.compile(r"(?:---|- +\w+:( .*)?|\w+:)\s*$")
MARKED = "queries with the number or mark that they begin with (an id stands before a TAB)"


def iter_queries(
    path: str | Path, field: str = "title", numbered: bool = True, doubts: Counter[str] | None = None
) -> Rows[Text]:
    """Stream (row, query). Queries without text are skipped, and counted.

    :param field: of topics; several are joined with ``+``.
    :param numbered: read lines and rows without ids as queries, whose ids are their rows; otherwise they are refused.
    :param doubts: gets the number of queries that were skipped or read with doubts, by reason; the log has it, too.
    """
    if Path(path).suffix == ".qrels":
        return _iter_headings(path)
    found = Counter[str]()
    if (form := _form(path)) is not None:
        queries = _iter_rows(path, form, numbered, found)
    elif marked.is_marked(path):
        queries = _iter_topics(path, field, found)
    else:
        queries = _iter_lines(path, numbered, found)
    return _with_text(path, queries, found, doubts)


def _with_text(path: str | Path, queries: Rows[Text], found: Counter[str], doubts: Counter[str] | None) -> Rows[Text]:
    """Skip queries without text; log and count what was found, at the end."""
    for row, query in queries:
        if query.text:
            yield row, query
        else:
            found[TEXTLESS] += 1
    log_doubts(path, found, doubts)


def _form(path: str | Path) -> str | None:
    """Tell how a file has its rows; a header of several columns without an id has TABs, or stands in a .csv file."""
    ids, texts = rows.QUERIES.ids, rows.QUERIES.texts
    if (form := rows.form_of(path, ids, texts)) is None and b"\t" in head_of(path).partition(b"\n")[0]:
        return rows.TSV if rows.form_of(path, texts, texts) == rows.TSV else None
    return form


def _iter_rows(path: str | Path, form: str, numbered: bool, doubts: Counter[str]) -> Rows[Text]:
    read = partial(iter_text, counts=doubts, has_nul=False)
    columns = [*rows.QUERIES.columns(), TITLES]
    records = rows.iter_rows(path, form, columns, read=read, doubts=doubts, last=rows.QUERIES.texts)
    above = form in rows.HEADED
    numbers = ((row, (row - above, record)) for row, record in records)
    return iter_records(path, numbers, partial(_of_record, numbered, doubts))


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


def _of_record(numbered: bool, doubts: Counter[str], numbered_row: tuple[int, rows.Row]) -> Text:
    record, names = rows.checked(numbered_row[1]), rows.QUERIES
    if numbered and rows.name_in(record, names.ids) is None:
        query_id = str(numbered_row[0])
        doubts["queries without an id, known by their rows"] += 1
    else:
        query_id = rows.id_of(record, names.ids, "query_id")
    text = rows.text_of(record, names.texts).strip()
    # Whoever asks for a known item at length (TREC ToT) says what it is in the title.
    is_titled = rows.name_in(record, names.texts) == "text" and rows.name_in(record, TITLES) is not None
    title = rows.text_of(record, TITLES).strip() if is_titled else ""
    if title and text and title != text:
        doubts["queries read with their titles"] += 1
        text = f"{title} {text}"
    text = text or title
    return Text(query_id, readable(text))


def _iter_topics(path: str | Path, field: str, doubts: Counter[str]) -> Rows[Text]:
    topics = marked.iter_topics(path, doubts)
    if marked.is_smart(path):
        records = list(enumerate(marked.iter_smart(path, doubts), 1))
        if any(record.attributes.lstrip("0") != str(position) for position, record in records):
            log.warning("%s: numbers with gaps; queries are numbered from 1, as their judgements are", path)
        topics = (record._replace(attributes=f"id={position}") for position, record in records)
    return iter_records(path, ((topic.row, topic) for topic in topics), partial(_of_topic, field))


def _of_topic(field: str, topic: marked.Marked) -> Text:
    written = topic.id or topic.first(*NUMBERS)
    # "Number: 051" is 51 in judgements.
    number = NUMBER.sub("", written).lstrip("0" if NUMBER.match(written) else "")
    texts = [topic.all(*PARTS[part], label=LABELS[part]) for part in field.split("+")]
    if field == "title" and not texts[0]:
        # Queries of SMART have only words, topics of TREC-4 descriptions, and those of some tracks other parts.
        others = dict.fromkeys(name for name, _ in topic.parts if name not in NUMBERS)
        known = ((("t", "w"), None), (PARTS["description"], LABELS["description"]), (tuple(others), None))
        texts = [next(filter(None, (topic.all(*names, label=label) for names, label in known if names)), "")]
    names = ", ".join(dict.fromkeys(name for name, text in topic.parts if name and text))
    if names and not all(texts) and any(name not in NUMBERS for name, text in topic.parts if text):
        raise BadLine(f"a topic with {names} alone", f"a {field} in each", "set `topics` to another field")
    return Text(writable_id("query_id", number.split()[0] if number.split() else ""), readable(" ".join(texts)))


def _iter_lines(path: str | Path, numbered: bool, doubts: Counter[str]) -> Rows[Text]:
    """Read a query per row, or ``query_id TAB text`` if the first query has a TAB; skip empty rows and count them."""
    lines = ((row, line) for row, line in iter_text(path, doubts, has_nul=False) if _is_full(line, doubts))
    head = list(islice(lines, HEAD))
    if not head:
        return
    first, tabbed = head[0][0], "\t" in head[0][1]
    if not tabbed and all(_PATH.fullmatch(line) for _, line in head):
        yield from iter_records(path, chain(head, lines), _of_path)
        return
    if not (tabbed or numbered):
        fix = "write 'query_id TAB text', or set `numbered: true` if judgements number the lines"
        raise input_error(path, "a query without an id", "one with the id that its judgements have", fix, first)
    written = [line for _, line in head]
    if not tabbed and _YAML_BEGINS.match(written[0]) and all(map(_YAML.match, written)):
        fix = "write one query per line, or 'query_id TAB text'"
        raise input_error(path, f"YAML ({shorten(written[0])})", "queries that are lines, rows or topics", fix, first)
    _refuse_other_columns(path, written if tabbed else [], first)
    is_marked = not tabbed and _are_marked(written)
    for row, line in chain(head, lines):
        doubts[MARKED] += is_marked
        if ("\t" in line) != tabbed:
            found, expected = ("no TAB", "a TAB") if tabbed else ("a TAB", "no TAB")
            fix = "write 'query_id TAB text' in every row, or one query per row without a TAB"
            raise input_error(path, found, f"{expected}, as in row {first}", fix, row)
        doubts["queries with a TAB in their text"] += line.count("\t") > 1
        yield from iter_records(path, iter([(row, line if tabbed else f"{row}\t{line}")]), _of_line)
    doubts += Counter()


def _are_marked(lines: list[str]) -> bool:
    """Whether all lines begin with a mark of a list, or with numbers that rise or names that differ."""
    found = [_MARKED.match(line) for line in lines]
    numbers = [int(one[1]) for one in found if one and one[1]]
    names = [one[2] for one in found if one and one[2]]
    is_apart = len({*names}) == len(names) and all(map(int.__lt__, numbers, numbers[1:]))
    return len(lines) > 1 and all(found) and is_apart


def _is_full(line: str, doubts: Counter[str]) -> bool:
    if not line.strip():
        doubts["empty rows skipped"] += 1
    return bool(line.strip())


def _refuse_other_columns(path: str | Path, lines: list[str], row: int) -> None:
    """Refuse rows with TABs that are no ids and texts: several columns, or questions and answers."""
    columns = {line.count("\t") + 1 for line in lines}
    if len(columns) == 1 and (number := columns.pop()) > 2:
        fix = "separate id and text by one TAB, or write a header, such as query_id TAB text TAB url"
        raise input_error(path, f"{number} TAB-separated fields", "2 fields (query_id TAB text)", fix, row)
    ids = [line.partition("\t")[0] for line in lines]
    if rows.are_texts(ids):
        found, expected = f"texts before the first TAB ({shorten(ids[0])})", "2 fields (query_id TAB text)"
        fix = "write the header 'question TAB answer' above; questions are then known by their rows"
        raise input_error(path, found, expected, fix, row)


def _of_line(line: str) -> Text:
    query_id, _, text = line.partition("\t")
    return Text(writable_id("query_id", query_id), readable(text.replace("\t", " ").strip()))


def _of_path(line: str) -> Text:
    """Read a topic of TREC-CAR as Anserini has them: the words of the path of headings, decoded."""
    path = line.strip()
    text = unquote(path.partition(":")[2]).replace("/", " ")
    return Text(writable_id("query_id", path), readable(" ".join(text.split())))
