"""A Lucene index, built with Anserini as in its recipe for MS MARCO.

Texts go through JsonCollection and Anserini's analyser of the language; of English, that is Porter stemming and
Lucene's stop words. The manifest has the language, for queries. Only what BM25 needs is stored. With positions,
document vectors and raw text, the index of 20,958 paragraphs took 23 MB instead of 3 and was half as fast to
search, for the same run.

Predicted queries are appended to their passage. Term weights replace the text: Anserini repeats each term as often
as its weight says (JsonVectorCollection), which gives the texts that DeepCT's authors indexed.

Reads:  the passages, their expansions or term weights (parquet)
Writes: a folder with the index and manifest.json, which says how to treat queries
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from cort.config.fields import Cleaning
from cort.config.lexical import Index, Language
from cort.formats import tables
from cort.formats.cleaning import convert
from cort.formats.expansions import iter_beside, iter_expanded
from cort.retrieval import anserini
from cort.retrieval.options import JavaOptions
from cort.runtime.errors import input_error
from cort.runtime.sections import FolderPath, ParquetFile, Several, same_as


class Options(JavaOptions):
    """Options of this stage."""

    passages: ParquetFile
    expansions: Several[ParquetFile] = ()
    """Predicted queries to append to the passages."""
    term_weights: Several[ParquetFile] = ()
    """Term weights, instead of the passages' texts."""
    cleaning: Cleaning = same_as(Index, "cleaning")
    """How texts and, at search time, queries are cleaned; with term weights only queries."""
    language: Language = same_as(Index, "language")
    """Of texts and, at search time, queries."""
    output: FolderPath
    """The index."""


def texts_of(batches: Iterable[pa.RecordBatch], form: str) -> Iterator[list[dict[str, Any]]]:
    """Turn batches of (doc_id, text) into documents for JsonCollection."""
    for batch in batches:
        texts = convert(batch["text"], form).to_pylist()
        yield [
            {"id": doc_id, "contents": text} for doc_id, text in zip(batch["doc_id"].to_pylist(), texts, strict=True)
        ]


def documents_of(options: Options) -> tuple[str, Iterator[list[dict[str, Any]]]]:
    """Choose Anserini's collection class, and yield the documents of each shard."""
    if options.expansions and options.term_weights:
        raise input_error("--expansions, --term-weights", "both", "one of them", "leave one out")
    if options.term_weights:
        beside = iter_beside(options.passages, options.term_weights, tables.TERM_WEIGHTS, anserini.DOCUMENTS_PER_SHARD)
        return "JsonVectorCollection", anserini.vectors_of(weighted for _, weighted in beside)
    batches = (
        iter_expanded(options.passages, options.expansions, anserini.DOCUMENTS_PER_SHARD)
        if options.expansions
        else tables.iter_batches(options.passages, tables.PASSAGES, anserini.DOCUMENTS_PER_SHARD)
    )
    return "JsonCollection", texts_of(batches, options.cleaning)


def stage(options: Options) -> None:
    """Write the passages as temporary JSON lines, index them, and compare the counts."""
    rows = tables.count_rows(options.passages, tables.PASSAGES)
    collection, documents = documents_of(options)
    # Predicted queries are several times as long as the passages, and compress well.
    compress = bool(options.expansions)
    kind, form = ["-collection", collection, "-language", options.language], (options.cleaning, options.language)
    anserini.build(options, options.output, rows, options.passages, documents, kind, form, compress)
