"""Documents, queries and judgements of ir_datasets, by the name of a dataset: ``beir/nfcorpus/test``.

ir_datasets looks for files in the folder `IR_DATASETS_HOME` (default: ``~/.ir_datasets``), and downloads those that
are missing. It checks what it downloads, but not what it finds there, so a dataset with another number of records than
published is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any, Literal, TypeVar

from cort.formats.fields import BadLine, checked_grade, checked_text, checked_unicode, writable_id
from cort.formats.records import Qrel, Text
from cort.sources.documents import Document
from cort.sources.irds_library import library, one_line
from cort.sources.undivided import document_of
from cort.system.errors import InputError, input_error, shorten, suggest

Kind = Literal["docs", "queries", "qrels"]
KINDS: dict[Kind, str] = {"docs": "documents", "queries": "queries", "qrels": "judgements"}
# Modules of ir_datasets whose objects stand for files.
OF_FILES = ("ir_datasets.util.download", "ir_datasets.util.fileio", "ir_datasets.datasets.base")

Record = TypeVar("Record")


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


def files(name: str, kinds: Iterable[Kind]) -> list[Path]:
    """List the files that records of these kinds are read from and that exist; all do after records were read."""
    found: dict[Path, None] = {}
    for kind in kinds:
        for place in _places(getattr(_find(name, kind), f"{kind}_handler")(), kind, {}):
            inside = sorted(path for path in place.rglob("*") if path.is_file())
            found |= dict.fromkeys(inside if place.is_dir() else [place])
    return list(found)


def _iter_records(name: str, kind: Kind, parse: Callable[[Any], Record]) -> Iterator[Record]:
    dataset, source, number = _find(name, kind), f"ir_datasets {name}, {KINDS[kind]}", 0

    def remedy() -> str:
        paths = ", ".join(map(str, files(name, [kind])[:3]))
        return f"delete what is damaged, and it is fetched again: {paths}" if paths else "name another dataset"

    try:
        for record in getattr(dataset, f"{kind}_iter")():
            number += 1
            yield parse(record)
    except BadLine as bad:
        found, expected, fix = bad.args
        raise input_error(source, found, expected, fix, number) from bad
    except (InputError, MemoryError):
        raise
    except Exception as error:  # its readers raise errors of many kinds
        found = f"an error of its reader ({one_line(error)})"
        raise input_error(source, found, "records that it can read", remedy(), number + 1) from error
    published = getattr(dataset, f"{kind}_metadata")().get("count", number)
    if number != published:
        raise input_error(source, f"{number} of them", f"{published}, as published", remedy())


def _document(record: Any) -> Document:
    title, text = str(getattr(record, "title", "")), record.default_text()
    title = title if text.startswith((f"{title} ", f"{title}\n")) else ""
    return document_of(record.doc_id, title, text[len(title) :])


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


def _places(part: Any, kind: Kind, seen: dict[int, Any]) -> Iterator[Path]:
    """Yield the existing files and folders that a reader uses, or an object that it consists of."""
    if id(part) in seen:
        return
    seen[id(part)] = part
    # What is there is not made again from its source.
    if type(part).__module__ in OF_FILES and (place := _place_of(part)):
        yield place
        return
    for inner in _parts_of(part, kind):
        yield from _places(inner, kind, seen)


def _place_of(part: Any) -> Path | None:
    """Return the existing path among the attributes of an object."""
    paths = (Path(value) for value in vars(part).values() if isinstance(value, str | Path))
    return next((path for path in paths if library().util.home_path() in path.parents and path.exists()), None)


def _parts_of(part: Any, kind: Kind) -> Any:
    if isinstance(part, list | tuple):
        return part
    if isinstance(part, MethodType):
        return part.__self__, part.__func__
    if isinstance(part, FunctionType):
        return [cell.cell_contents for cell in part.__closure__ or ()]
    if not type(part).__module__.startswith("ir_datasets"):
        return ()
    if type(part).__name__ == "Dataset":
        return [getattr(part, f"{kind}_handler")()] if part.has(kind) else ()
    return vars(part).values()
