"""Documents, queries and judgements of ir_datasets, by the name of a dataset: ``beir/nfcorpus/test``.

ir_datasets looks for files in the folder `IR_DATASETS_HOME` (default: ``~/.ir_datasets``), and downloads those that
are missing. It checks what it downloads, but not what it finds there, so a dataset with another number of records than
published is refused, and the provenance has a digest of the records.
"""

from __future__ import annotations

import functools
import hashlib
import locale
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, redirect_stderr
from importlib.metadata import version
from io import StringIO
from itertools import chain, islice
from typing import Any, Literal, TypeVar

from cort.formats.fields import BadLine, checked_grade, checked_text, checked_unicode, writable_id
from cort.formats.records import Qrel, Text
from cort.runtime.errors import input_error, shorten, suggest
from cort.runtime.interruption import Interrupted
from cort.runtime.locks import acquire
from cort.sources.documents import Document, plain_document

Kind = Literal["docs", "queries", "qrels"]
KINDS: dict[Kind, str] = {"docs": "documents", "queries": "queries", "qrels": "judgements"}
LONGEST_REASON = 600

Record = TypeVar("Record")

_described: dict[tuple[str, Kind], dict[str, Any]] = {}


def iter_documents(name: str) -> Iterator[Document]:
    """Stream the documents of a dataset; their `text`, which may be empty, is `default_text()` without line breaks.

    Like the other functions of this module:

    :raises InputError: for an unknown dataset, one without such records, an invalid record, with its number, a missing
        file that cannot be downloaded, a damaged one, or another number of records than published.
    """
    return _iter_records(name, "docs", _document)


def iter_queries(name: str) -> Iterator[Text]:
    """Stream the queries of a dataset, each with its `default_text()`."""
    return _iter_records(name, "queries", _query)


def iter_qrels(name: str) -> Iterator[Qrel]:
    """Stream the judgements of a dataset with their grades; other fields, such as the iteration, are ignored."""
    return _iter_records(name, "qrels", _qrel)


def describe(name: str, kinds: Iterable[Kind]) -> list[dict[str, Any]]:
    """Describe the records that were read, as `describe_inputs` does files."""
    return [_described[name, kind] for kind in kinds]


@functools.cache
def library() -> Any:
    """Import ir_datasets, which takes half a second."""
    # It reads text in the encoding of the locale.
    if (encoding := locale.getpreferredencoding(False)).lower() not in ("utf-8", "utf8"):
        raise input_error("ir_datasets", f"the encoding {encoding}", "UTF-8, as in its files", "set PYTHONUTF8=1")
    import ir_datasets

    logger = ir_datasets.log.easy().logger()
    logger.handlers.clear()
    logger.propagate = True
    return ir_datasets


def _iter_records(name: str, kind: Kind, parse: Callable[[Any], Record]) -> Iterator[Record]:
    dataset, source, number, size = _find(name, kind), f"ir_datasets {name}, {KINDS[kind]}", 0, 0
    place = library().util.home_path() / name.partition("/")[0]
    fix = f"delete what is damaged in {place}, or put there what is missing (https://ir-datasets.com/{place.name}.html)"
    digest = hashlib.sha256()
    try:
        for record in _fetched(place, getattr(dataset, f"{kind}_iter")):
            number += 1
            yield parse(record)
            line = f"{' '.join(map(str, _parts(record, kind)))}\n".encode("utf-8", "replace")
            size += len(line)
            digest.update(line)
    except BadLine as bad:
        found, expected, remedy = bad.args
        raise input_error(source, found, expected, remedy, number) from bad
    except (Interrupted, MemoryError):
        raise
    except Exception as error:  # its readers raise errors of many kinds
        reason = " ".join(str(error).split())[:LONGEST_REASON] or type(error).__name__
        raise input_error(source, f"an error of ir_datasets ({reason})", "records", fix, number + 1) from error
    published = getattr(dataset, f"{kind}_metadata")().get("count", number)
    if number != published:
        raise input_error(source, f"{number} of them", f"{published}, as published", fix)
    path = f"ir_datasets {version('ir_datasets')}: {name}, {number} {KINDS[kind]}"
    _described[name, kind] = {"path": path, "bytes": size, "sha256": digest.hexdigest()}


def _fetched(place: Any, iterate: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """Iterate over records; one process at a time fetches and unpacks, which is done before the first record."""
    place.mkdir(parents=True, exist_ok=True)
    # Progress bars are not shown. The lock ends with this block, as nothing else refers to it.
    with acquire(place / "cort.lock", timeout=-1) or nullcontext(), redirect_stderr(StringIO()):
        records = iter(iterate())
        return chain(list(islice(records, 1)), records)


def _parts(record: Any, kind: Kind) -> tuple[Any, ...]:
    if kind == "qrels":
        return record.query_id, record.doc_id, record.relevance
    return record.doc_id if kind == "docs" else record.query_id, record.default_text()


def _document(record: Any) -> Document:
    title, text = str(getattr(record, "title", "")), record.default_text()
    title = title if text.startswith((f"{title} ", f"{title}\n")) else ""
    return plain_document(record.doc_id, title, text[len(title) :])


def _query(record: Any) -> Text:
    lines = checked_unicode("text", record.default_text()).splitlines()
    return Text(writable_id("query_id", record.query_id), checked_text(" ".join(map(str.strip, lines))))


def _qrel(record: Any) -> Qrel:
    query_id, doc_id = writable_id("query_id", record.query_id), writable_id("doc_id", record.doc_id)
    return Qrel(query_id, doc_id, checked_grade(str(record.relevance)))


def _find(name: str, kind: Kind) -> Any:
    """Find a dataset; refuse one without records of this kind."""
    registry = library().registry
    try:
        dataset = registry[name]
    except KeyError as error:
        fix = suggest(name, list(registry), "see https://ir-datasets.com for all")
        raise input_error("ir_datasets", f"no dataset {shorten(name)}", "the name of one", fix) from error
    if not dataset.has(kind):
        parts = [part for part in registry if part.startswith(f"{name}/") and registry[part].has(kind)]
        expected = f"one of {', '.join(parts)}" if parts else "a dataset that has them"
        raise input_error(f"ir_datasets {name}", f"no {KINDS[kind]}", expected, "name such a dataset")
    return dataset
