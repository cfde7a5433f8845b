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
from dataclasses import dataclass

import pyarrow as pa

from cort.formats import tables
from cort.formats.ids import positions, unknown_ids
from cort.formats.raw import refuse_duplicates
from cort.formats.weighted import Weighted, iter_documents, to_batch
from cort.system import cli
from cort.system.errors import input_error, shorten
from cort.system.options import required
from cort.system.progress import track

log = logging.getLogger(__name__)


def in_order(documents: pa.Table, doc_ids: pa.ChunkedArray, source: str) -> pa.Table:
    """Bring documents into the order of the passages; a passage without one gets no terms.

    :raises InputError: names `source`, which has a document twice, or of another collection.
    """
    refuse_duplicates(source, documents["doc_id"], "id")
    unknown = unknown_ids(documents["doc_id"].combine_chunks(), doc_ids)
    if len(unknown):
        found = f"document {shorten(unknown[0].as_py())} ({len(unknown)} are no passages)"
        raise input_error(source, found, "documents of this collection only", "name those of the same collection")
    rows = positions(doc_ids, documents["doc_id"].combine_chunks())
    nothing = to_batch([Weighted("", [], [])])
    rows[rows < 0] = len(documents)
    found = pa.concat_tables([documents, pa.Table.from_batches([nothing])]).take(pa.array(rows))
    return found.set_column(0, documents.schema.field(0), doc_ids)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of this stage."""

    documents: str = required("FILE", "weighted documents, .jsonl, .jsonl.gz, or a .zip of such files")
    passages: str = required("PARQUET", "the collection")
    output: str = required("PARQUET")


def stage(options: Options) -> None:
    """Read, check, write."""
    read = track(iter_documents(options.documents), None, "documents", size=len)
    documents = pa.Table.from_batches(read, tables.TERM_WEIGHTS)
    if not len(documents):
        raise input_error(options.documents, "no document", "JSON lines of id and contents", "name another file")
    doc_ids = tables.read_table(options.passages, tables.PASSAGES.remove(1))["doc_id"]
    tables.write_table(options.output, in_order(documents, doc_ids, options.documents))
    log.info("%d weighted documents for %d passages", len(documents), len(doc_ids))


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
