"""The sources of documents behind one interface."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

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
    documents: Iterator[Document]
    inputs: Callable[[], list[Input]]
    skipped: Counter[str] = field(default_factory=Counter)
    left_out: Callable[[], dict[str, int]] = dict


def open_source(kind: str, name: str, fields: Mapping[str, Any], ids: folder.Ids | None, processes: int) -> Source:
    """Open documents.

    :param kind: "folder", "irds" or "hf".
    :param fields: names of the fields of CSV and JSON lines in a folder.
    :param ids: what the ids of documents in a folder are.
    :param processes: parse the files of a folder.
    """
    if kind == "irds":
        return Source(name, irds.iter_documents(name), partial(irds.describe, name, ("docs",)))
    if kind == "hf":
        return Source(name, hugging_face.iter_documents(name), lambda: describe_inputs(hugging_face.files(name)))
    skips = folder.Skips()

    def inputs() -> list[Input]:
        return describe_inputs([str(Path(name, file.path)) for file in folder.list_files(name)])

    documents = folder.iter_documents(name, skips, fields, processes, ids)
    return Source(name, documents, inputs, skips.counts, skips.left_out)
