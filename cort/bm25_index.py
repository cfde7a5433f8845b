"""Build the Lucene index of the passages with Anserini, as its authors' recipe for MS MARCO does.

JsonCollection and DefaultEnglishAnalyzer: Porter stemming and Lucene's stop words. Only what BM25 needs is stored: with
positions, document vectors and raw text the index of 20,958 paragraphs took 23 MB instead of 3, and searching it twice
as long, for the same run. Segments depend on how threads were scheduled; rankings do not, because BM25's statistics
are those of the whole collection.

Queries that were predicted of a passage are appended to it. Weighted terms take the place of its words: Anserini writes
each as often as it weighs (JsonVectorCollection), which are the texts that DeepCT's authors indexed.

Reads: the passages, their expansions or term weights (parquet). Writes: a folder with the index and manifest.json, the
list of its files.
Usage: python -m cort.bm25_index --passages passages.parquet --output lucene --threads 2 --memory-mb 2000
"""

from __future__ import annotations

import gzip
import json
import logging
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from cort.formats import tables
from cort.formats.cleaning import FORMS, convert
from cort.formats.expansions import iter_beside, iter_expanded
from cort.retrieval import anserini
from cort.retrieval.options import JavaOptions, choice
from cort.system import cli
from cort.system.errors import input_error
from cort.system.files import atomic_folder, temporary_folder
from cort.system.options import optional, required
from cort.system.progress import track

# A part is the unit that Anserini's threads share out.
ROWS_PER_PART = 16_384
MAIN_CLASS = "io.anserini.index.IndexCollection"
COUNTER = re.compile(r" - (indexed|unindexable|empty|skipped|errors):\s+([\d,]+)$")

log = logging.getLogger(__name__)


def write_parts(parts: Iterable[list[dict[str, Any]]], folder: Path, compress: bool = False) -> None:
    """Write each list of documents as one JSON lines file for Anserini, as ``.gz`` if wanted."""
    for number, documents in enumerate(parts):
        path = folder / f"{number:06d}.jsonl"
        text = "".join(json.dumps(document) + "\n" for document in documents).encode("ascii")
        if compress:
            path.with_suffix(".jsonl.gz").write_bytes(gzip.compress(text, compresslevel=1))
        else:
            path.write_bytes(text)


def texts_of(batches: Iterable[pa.RecordBatch], form: str) -> Iterator[list[dict[str, Any]]]:
    """Yield batches of (doc_id, text) as documents of JsonCollection."""
    for batch in batches:
        texts = convert(batch["text"], form).to_pylist()
        yield [
            {"id": doc_id, "contents": text} for doc_id, text in zip(batch["doc_id"].to_pylist(), texts, strict=True)
        ]


def vectors_of(batches: Iterable[tuple[pa.RecordBatch, pa.RecordBatch]]) -> Iterator[list[dict[str, Any]]]:
    """Yield passages with their (doc_id, terms, weights) as documents of JsonVectorCollection."""
    for _, weighted in batches:
        columns = (column.to_pylist() for column in weighted.columns)
        yield [
            {"id": doc_id, "vector": dict(zip(terms, weights, strict=True))}
            for doc_id, terms, weights in zip(*columns, strict=True)
        ]


def read_counters(lines: Iterable[str], rows: int, source: str | Path) -> dict[str, int]:
    """Read the "Final Counter Values" that IndexCollection ends with: documents indexed, empty, skipped, ...

    :raises InputError: the index lacks passages. Empty ones, which no query can match, are left out rightly.
    """
    matches = filter(None, map(COUNTER.search, lines))
    counters = {match[1]: int(match[2].replace(",", "")) for match in matches}
    if counters.get("indexed", 0) + counters.get("empty", 0) != rows or not counters.get("indexed"):
        found = ", ".join(f"{count} {name}" for name, count in counters.items()) or "no counts"
        expected = f"{rows} indexed or empty, and some indexed"
        raise input_error(source, f"after indexing {found}", expected, "fix these passages")
    return counters


@dataclass(frozen=True, kw_only=True)
class Options(JavaOptions):
    """Options of this stage."""

    passages: str = required("PARQUET")
    expansions: tuple[str, ...] = optional((), "queries that are appended to the passages", "PARQUET")
    term_weights: tuple[str, ...] = optional((), "weighted terms, in the place of the passages' words", "PARQUET")
    cleaning: str = choice(
        FORMS, "raw", "what is done to the texts, and to queries later; of weighted terms, to queries"
    )
    output: str = required("FOLDER", "the index")


def documents_of(options: Options) -> tuple[str, Iterator[list[dict[str, Any]]]]:
    """Name the kind of Anserini's collection, and yield its documents in parts."""
    if options.expansions and options.term_weights:
        raise input_error("--expansions, --term-weights", "both", "one of them", "leave one out")
    if options.term_weights:
        beside = iter_beside(options.passages, options.term_weights, tables.TERM_WEIGHTS, ROWS_PER_PART)
        return "JsonVectorCollection", vectors_of(beside)
    batches = (
        iter_expanded(options.passages, options.expansions, ROWS_PER_PART)
        if options.expansions
        else tables.iter_batches(options.passages, tables.PASSAGES, ROWS_PER_PART)
    )
    return "JsonCollection", texts_of(batches, options.cleaning)


def stage(options: Options) -> None:
    """Stream the passages to temporary JSON lines, index them, compare the counts."""
    rows = tables.count_rows(options.passages, tables.PASSAGES)
    collection, documents = documents_of(options)
    with temporary_folder(options.output) as parts, atomic_folder(options.output) as index:
        # Predicted queries are several times as long as the passages, and mostly of the same words.
        write_parts(track(documents, -(-rows // ROWS_PER_PART), "parts"), parts, compress=bool(options.expansions))
        arguments = ["-collection", collection, "-generator", "DefaultLuceneDocumentGenerator"]
        arguments += ["-input", str(parts.resolve()), "-index", str(index.resolve())]
        # Lucene writes a segment when its buffer is full; the rest of the heap is for analysis and merging.
        arguments += ["-threads", str(options.threads), "-memoryBuffer", str(max(16, options.memory_mb // 4))]
        lines = anserini.run_java(MAIN_CLASS, arguments, options.memory_mb, options.threads)
        counters = read_counters(lines, rows, options.passages)
        anserini.write_manifest(index, counters["indexed"], options.cleaning)
    log.info("%d passages indexed, %d empty ones left out", counters["indexed"], counters.get("empty", 0))


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
