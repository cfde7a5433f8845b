"""The sources of documents, and of queries and judgements, behind one interface each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from cort.formats.records import Qrel, Text
from cort.sources import folder, hugging_face, irds
from cort.sources.documents import Document
from cort.system.checksums import describe_inputs

Input: TypeAlias = Path | dict[str, Any]


@dataclass(frozen=True)
class Source:
    """Documents.

    :ivar name: for messages.
    :ivar files: lists the files that were read, or describes the records, if a library reads the files.
    :ivar skipped: files that were left out, by reason, counted while documents are read.
    """

    name: str
    documents: Callable[[], Iterator[Document]]
    files: Callable[[], Iterable[Input]]
    skipped: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class SplitSource:
    """Queries, judgements, and what both are read from."""

    queries: Callable[[], Iterator[Text]]
    qrels: Callable[[], Iterator[Qrel]]
    files: Callable[[], Iterable[Input]]


def open_source(kind: str, name: str, fields: Mapping[str, Any], processes: int) -> Source:
    """Open documents.

    :param kind: "folder", "irds" or "hf".
    :param fields: names of the fields of CSV and JSON lines in a folder.
    :param processes: parse the files of a folder.
    """
    if kind == "irds":
        return Source(name, partial(irds.iter_documents, name), partial(irds.describe, name, ("docs",)))
    if kind == "hf":
        return Source(name, partial(hugging_face.iter_documents, name), partial(hugging_face.files, name))
    skips = folder.Skips()
    documents = partial(folder.iter_documents, name, skips, fields, processes)
    return Source(name, documents, lambda: [Path(name, file.path) for file in folder.list_files(name)], skips.counts)


def open_split(in_irds: str | None, on_hf: str | None, part: str) -> SplitSource:
    """Open queries and judgements in ir_datasets, or in a collection on Hugging Face.

    :param part: split of the collection, or ``SOURCE#SPLIT`` if another dataset has the judgements.
    """
    if in_irds is not None:
        readers = partial(irds.iter_queries, in_irds), partial(irds.iter_qrels, in_irds)
        return SplitSource(*readers, partial(irds.describe, in_irds, ("queries", "qrels")))
    name = str(on_hf)
    judged, _, split = part.rpartition("#") if "#" in part else (name, "", part)
    readers = partial(hugging_face.iter_queries, name), partial(hugging_face.iter_qrels, judged, split)
    return SplitSource(*readers, lambda: chain(*map(hugging_face.files, dict.fromkeys((name, judged)))))


def with_checksums(files: Iterable[Input]) -> dict[str, Any]:
    """Describe files, or what is described already, for the provenance: path, bytes, SHA-256."""
    inputs = ([one] if isinstance(one, dict) else describe_inputs([str(one)]) for one in files)
    return {"inputs": [*chain.from_iterable(inputs)]}
