"""Take in weighted documents that somebody published for this collection, as DeepCT's authors did.

A document is the id of a passage and its words, each as often as it weighs. A passage without a document has none that
weigh anything.

Reads:  JSON lines of `id` and `contents` (.jsonl, .jsonl.gz, or a .zip of such files), passages.parquet
Writes: doc_id, terms and their weights, as parquet, in the order of the passages
Usage:  python -m cort.import_term_weights --documents sample_100_jsonl.zip --passages passages.parquet
            --output term_weights.parquet
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.formats import tables
from cort.formats.ids import positions, unknown_ids
from cort.formats.raw import refuse_duplicates
from cort.formats.weighted import Weighted, iter_documents, to_batch
from cort.system import cli
from cort.system.errors import input_error, shorten
from cort.system.files import temporary_folder
from cort.system.options import required
from cort.system.progress import track

log = logging.getLogger(__name__)


def in_order(documents: pa.Table, doc_ids: pa.ChunkedArray, source: str) -> Iterator[pa.Table]:
    """Yield documents in the order of the passages, some at a time; a passage without one gets no terms.

    :raises InputError: names `source`, which has a document twice, or of another collection.
    """
    refuse_duplicates(source, documents["doc_id"], "id")
    unknown = unknown_ids(documents["doc_id"].combine_chunks(), doc_ids)
    if len(unknown):
        found = f"document {shorten(unknown[0].as_py())} ({len(unknown)} are no passages)"
        raise input_error(source, found, "documents of this collection only", "name those of the same collection")
    rows = positions(doc_ids, documents["doc_id"].combine_chunks())
    rows[rows < 0] = len(documents)
    batches = [*documents.to_batches(), to_batch([Weighted("", [], [])])]
    for start in range(0, len(rows), tables.ROW_GROUP):
        found = take(batches, rows[start : start + tables.ROW_GROUP])
        yield found.set_column(0, documents.schema.field(0), doc_ids.slice(start, len(found)))


def take(batches: Sequence[pa.RecordBatch], rows: npt.NDArray[np.int64]) -> pa.Table:
    """Take rows of batches that lie one after the other; Arrow would first put all of them together in memory."""
    first = np.cumsum([0, *map(len, batches)])
    numbers = np.searchsorted(first, rows, side="right") - 1
    order = np.argsort(numbers, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
    taken = [batches[numbers[part[0]]].take(pa.array(rows[part] - first[numbers[part[0]]])) for part in parts]
    return pa.Table.from_batches(taken).combine_chunks().take(pa.array(np.argsort(order)))


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of this stage."""

    documents: str = required("FILE", "weighted documents, .jsonl, .jsonl.gz, or a .zip of such files")
    passages: str = required("PARQUET", "the collection")
    output: str = required("PARQUET")


def stage(options: Options) -> None:
    """Read, check, write; meanwhile the documents lie on the disk."""
    with temporary_folder(options.output) as folder:
        documents = keep(options.documents, folder / "documents.arrow")
        doc_ids = tables.read_table(options.passages, tables.PASSAGES.remove(1))["doc_id"]
        with tables.open_writer(options.output, tables.TERM_WEIGHTS) as writer:
            for table in in_order(documents, doc_ids, options.documents):
                writer.write_table(table)
        log.info("%d weighted documents for %d passages", len(documents), len(doc_ids))


def keep(source: str, path: Path) -> pa.Table:
    """Write the documents to a file, and map it."""
    with tables.arrow_writer(path, tables.TERM_WEIGHTS) as file:
        for batch in track(iter_documents(source), None, "documents", size=len):
            file.write_batch(batch)
    documents = tables.open_arrow(path, "table of documents", "run the stage again")
    if not len(documents):
        raise input_error(source, "no document", "JSON lines of id and contents", "name another file")
    return documents


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
