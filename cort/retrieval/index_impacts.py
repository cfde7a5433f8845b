"""A Lucene index of impacts: integer weights of tokens, by a sparse encoder (SPLADE).

Terms are token ids, because tokens of some vocabularies have white space in them.

Reads:  the impacts of the passages (parquet)
Writes: a folder with the index and manifest.json, which says how to treat queries
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain

import pyarrow as pa

from cort.formats import tables
from cort.retrieval import anserini
from cort.retrieval.options import JavaOptions
from cort.runtime.sections import FolderPath, ParquetFile, Several

log = logging.getLogger(__name__)


class Options(JavaOptions):
    """Options of this stage."""

    passages: Several[ParquetFile]
    """All shards of their impacts."""
    output: FolderPath
    """The index."""


def _impacts(options: Options) -> Iterator[pa.RecordBatch]:
    size = anserini.DOCUMENTS_PER_SHARD
    return chain.from_iterable(tables.iter_batches(file, tables.IMPACTS, size) for file in options.passages)


def stage(options: Options) -> None:
    """Build the index; it does not depend on how passages are divided into shards."""
    rows, terms = 0, 0
    for batch in _impacts(options):
        rows, terms = rows + len(batch), terms + len(batch["tokens"].flatten())
    log.info("%.1f terms per passage, which decide how long searches take", terms / max(rows, 1))
    kind = ["-collection", "JsonVectorCollection", "-impact", "-pretokenized"]
    documents = anserini.vectors_of(_impacts(options))
    anserini.build(options, options.output, rows, options.passages[0], documents, kind, (anserini.IMPACTS, ""))
