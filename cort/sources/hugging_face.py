"""Documents, queries and judgements in the layouts of BEIR and MTEB: a local folder, or a dataset on Hugging Face.

| what      | files                                              | columns                    |
|-----------|----------------------------------------------------|----------------------------|
| documents | ``corpus.jsonl``, ``corpus/*`` (JSONL or Parquet)   | _id or id, title, text     |
| queries   | ``queries.jsonl``, ``queries/*`` (JSONL or Parquet) | _id or id, text            |
| qrels     | ``qrels/SPLIT.*`` (TSV, JSONL or Parquet)           | query-id, corpus-id, score |

``default/`` and ``data/`` may stand for ``qrels/``, and ``test.tsv`` for ``qrels/test.tsv``. JSONL and TSV may end in
``.gz``. A file may be in parts, named ``test-00000-of-00002.parquet`` or ``test/0000.parquet``.

A source is a folder, or ``NAME@COMMIT``, a dataset on the hub. No code of a dataset is ever run.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from cort.formats.fields import BadLine, checked_grade, checked_text, checked_unicode, writable_id
from cort.formats.judgements import iter_qrels as iter_qrels_of_file
from cort.formats.lines import Rows, iter_lines, iter_records
from cort.formats.records import Qrel, Text
from cort.formats.rows import json_object
from cort.sources.documents import Document
from cort.sources.undivided import document_of
from cort.system.errors import input_error, reason_of, shorten, suggest
from cort.system.hub import fetch_snapshot

log = logging.getLogger(__name__)

ON_HUB = re.compile(r"([\w.-]+(?:/[\w.-]+)?)@([0-9a-f]{40})", re.ASCII)
WANTED = ["corpus*", "queries*", "qrels/*", "default/*", "data/*", "*.tsv", "*.tsv.gz"]
LAYOUT = re.compile(
    r"(?P<texts>corpus|queries)(?:/.+|-\d{5}-of-\d{5})?\.(?:jsonl(?:\.gz)?|parquet)"
    r"|(?:(?:qrels|default|data)/|(?=(?:train|dev|validation|test)\.tsv))"
    r"(?P<split>(?!corpus|queries)[^/]+?)(?:-\d{5}-of-\d{5}|/\d{4})?\.(?:(?:tsv|jsonl)(?:\.gz)?|parquet)"
)
PART = re.compile(r"(.*)-\d{5}-of-(\d{5})\..*")
EXPECTED = "corpus.jsonl or corpus/*.parquet, queries likewise, and qrels/SPLIT.tsv, .jsonl or .parquet"
QRELS = "qrels/"
ROWS_PER_BATCH, LONGEST_LIST = 1_000, 200

Record = TypeVar("Record")


def iter_documents(source: str) -> Iterator[Document]:
    """Stream the documents of a source, which may be empty; without a title, it is "".

    Like the other functions of this module:

    :raises InputError: for a missing source, an unknown layout or split, a damaged file, or an invalid row.
    """
    return _iter_records(source, "corpus", _document)


def iter_queries(source: str) -> Iterator[Text]:
    """Stream the queries of all splits."""
    return _iter_records(source, "queries", _query)


def iter_qrels(source: str, split: str) -> Iterator[Qrel]:
    """Stream the judgements of a split."""
    return _iter_records(source, QRELS + split, _qrel)


def files(source: str) -> list[Path]:
    """List all files that the functions of this module read."""
    return [path for paths in _layout(source).values() for path in paths]


def _iter_records(source: str, key: str, parse: Callable[[Any], Record]) -> Iterator[Record]:
    layout = _layout(source)
    if key not in layout:
        folder = _folder(source)
        names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
        found = f"no {key} among {shorten(', '.join(layout or names), LONGEST_LIST)}"
        raise input_error(source, found, EXPECTED, suggest(key, layout, "rename or convert its files"))
    for path in layout[key]:
        if ".tsv" in path.suffixes:
            yield from (record for _, record in iter_qrels_of_file(path))  # type: ignore[misc]  # of judgements alone
        else:
            rows = _iter_table(path) if path.suffix == ".parquet" else iter_lines(path)
            yield from (record for _, record in iter_records(path, rows, lambda row: parse(_record_of(row))))


@cache
def _folder(source: str) -> Path:
    """Find or fetch a source; the hub is asked once."""
    if Path(source).is_dir():
        return Path(source)
    if not (match := ON_HUB.fullmatch(source)):
        expected = "a folder, or NAME@COMMIT of a dataset on Hugging Face, with the 40 hexadecimal digits of the commit"
        raise input_error(source, "no such folder", expected, "fix the path, or name a commit")
    fix = "check name, commit and network, or name a local folder"
    return fetch_snapshot(match[1], match[2], "a dataset on the hub", fix, WANTED, kind="dataset")


def _layout(source: str) -> dict[str, list[Path]]:
    """Return the files in order, by what is in them: corpus, queries, or qrels/SPLIT."""
    folder, layout = _folder(source), defaultdict(list)
    for path in sorted(folder.rglob("*")):
        if (match := LAYOUT.fullmatch(path.relative_to(folder).as_posix())) and path.is_file():
            layout[match["texts"] or QRELS + match["split"]].append(path)
    return {key: _of_one_format(paths) for key, paths in layout.items()}


def _of_one_format(paths: list[Path]) -> list[Path]:
    """Choose the files of the first format, since some datasets have the same records in several; refuse lost parts."""
    chosen = [path for path in paths if path.suffix == paths[0].suffix]
    if others := [str(path) for path in paths if path not in chosen]:
        log.warning("%s is read, but not %s", paths[0], ", ".join(others))
    for (name, total), count in Counter(match.groups() for path in chosen if (match := PART.match(str(path)))).items():
        if count != int(total):
            raise input_error(name, f"{count} parts", f"{int(total)}", "fetch all of them")
    return chosen


def _iter_table(path: Path) -> Rows[Any]:
    try:
        batches = pq.ParquetFile(path).iter_batches(ROWS_PER_BATCH)
        yield from enumerate(chain.from_iterable(batch.to_pylist() for batch in batches), 1)
    except (pa.ArrowException, OSError) as error:
        raise input_error(
            path, f"no readable Parquet ({reason_of(error)})", "a whole file", "fetch it again"
        ) from error


def _record_of(row: str | dict[str, Any]) -> dict[str, Any]:
    return json_object(row) if isinstance(row, str) else row


def _document(record: dict[str, Any]) -> Document:
    title = "" if record.get("title") is None else _text(record, "title")
    return document_of(_id(record, "_id", "id"), title, _text(record, "text"))


def _query(record: dict[str, Any]) -> Text:
    text = checked_text(checked_unicode("text", _text(record, "text")))
    return Text(writable_id("query_id", _id(record, "_id", "id")), text)


def _qrel(record: dict[str, Any]) -> Qrel:
    query_id, doc_id = (writable_id(name, _id(record, name)) for name in ("query-id", "corpus-id"))
    score = _value(record, "score")
    return Qrel(query_id, doc_id, checked_grade(f"{score:g}" if isinstance(score, float) else str(score)))


def _value(record: dict[str, Any], *names: str) -> Any:
    for name in names:
        if name in record:
            return record[name]
    found = f"no column {' or '.join(names)} among {shorten(', '.join(record), LONGEST_LIST)}"
    raise BadLine(found, "that column", "add or rename it")


def _text(record: dict[str, Any], name: str) -> str:
    if not isinstance(value := _value(record, name), str):
        raise BadLine(f"{shorten(value)} as {name}", "text", "correct or remove the row")
    return value


def _id(record: dict[str, Any], *names: str) -> str:
    value = _value(record, *names)
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise BadLine(f"{shorten(value)} as {names[0]}", "text or a whole number", "give the row an id")
    return str(value)
