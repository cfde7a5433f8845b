"""The sources of documents, and of queries and judgements, behind one interface each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from cort.formats.records import Qrel, Text
from cort.runtime.checksums import describe_inputs
from cort.sources import folder, hugging_face, irds
from cort.sources.documents import Document

#: path, bytes and SHA-256, as `describe_inputs` gives them
Input: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """Documents.

    :ivar name: for messages.
    :ivar inputs: describes the files that were read, or the records, if a library reads the files.
    :ivar skipped: files that were left out, by reason, counted while documents are read.
    :ivar left_out: counts the words that were left out of documents, after they are read.
    """

    name: str
    documents: Callable[[], Iterator[Document]]
    inputs: Callable[[], list[Input]]
    skipped: Counter[str] = field(default_factory=Counter)
    left_out: Callable[[], dict[str, int]] = dict


@dataclass(frozen=True)
class SplitSource:
    """Queries, judgements, and what both are read from."""

    queries: Callable[[], Iterator[Text]]
    qrels: Callable[[], Iterator[Qrel]]
    inputs: Callable[[], list[Input]]


def open_source(kind: str, name: str, fields: Mapping[str, Any], ids: folder.Ids | None, processes: int) -> Source:
    """Open documents.

    :param kind: "folder", "irds" or "hf".
    :param fields: names of the fields of CSV and JSON lines in a folder.
    :param ids: what the ids of documents in a folder are.
    :param processes: parse the files of a folder.
    """
    if kind == "irds":
        return Source(name, partial(irds.iter_documents, name), partial(irds.describe, name, ("docs",)))
    if kind == "hf":
        documents = partial(hugging_face.iter_documents, name)
        return Source(name, documents, lambda: describe_inputs(hugging_face.files(name)))
    skips = folder.Skips()

    def inputs() -> list[Input]:
        return describe_inputs([str(Path(name, file.path)) for file in folder.list_files(name)])

    documents = partial(folder.iter_documents, name, skips, fields, processes, ids, skips.leave)
    return Source(name, documents, inputs, skips.counts, skips.left_out)


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
    return SplitSource(*readers, lambda: describe_inputs([*hugging_face.files(name), *hugging_face.files(judged)]))
