"""Build the Lucene index of the passages with Anserini, as its authors' recipe for MS MARCO does.

JsonCollection and DefaultEnglishAnalyzer: Porter stemming and Lucene's stop words. Only what BM25 needs is stored: with
positions, document vectors and raw text the index of 20,958 paragraphs took 23 MB instead of 3, and searching it twice
as long, for the same run. Segments depend on how threads were scheduled; rankings do not, because BM25's statistics
are those of the whole collection.

Reads: the passages (parquet). Writes: a folder with the index and manifest.json, which lists its files.
Usage: python -m cort.bm25_index --passages passages.parquet --output lucene --threads 2 --memory-mb 2000
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from cort.formats import tables
from cort.formats.cleaning import FORMS, convert
from cort.retrieval import anserini
from cort.retrieval.options import JavaOptions, choice
from cort.system import cli
from cort.system.errors import input_error
from cort.system.files import atomic_folder, temporary_folder
from cort.system.options import required
from cort.system.progress import track

# A part is the unit that Anserini's threads share out.
ROWS_PER_PART = 16_384
MAIN_CLASS = "io.anserini.index.IndexCollection"
COUNTER = re.compile(r" - (indexed|unindexable|empty|skipped|errors):\s+([\d,]+)$")

log = logging.getLogger(__name__)


def write_parts(batches: Iterable[pa.RecordBatch], form: str, folder: Path) -> None:
    """Write each batch of (doc_id, text) as one JSON lines file for Anserini's JsonCollection."""
    for number, batch in enumerate(batches):
        with open(folder / f"{number:06d}.jsonl", "w", encoding="ascii", newline="\n") as part:
            texts = convert(batch["text"], form).to_pylist()
            for doc_id, text in zip(batch["doc_id"].to_pylist(), texts, strict=True):
                part.write(json.dumps({"id": doc_id, "contents": text}) + "\n")


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
    cleaning: str = choice(FORMS, "raw", "what is done to the texts, and to queries later")
    output: str = required("FOLDER", "the index")


def stage(options: Options) -> None:
    """Stream the passages to temporary JSON lines, index them, compare the counts."""
    rows = tables.count_rows(options.passages, tables.PASSAGES)
    batches = tables.iter_batches(options.passages, tables.PASSAGES, ROWS_PER_PART)
    with temporary_folder(options.output) as parts, atomic_folder(options.output) as index:
        write_parts(track(batches, -(-rows // ROWS_PER_PART), "parts"), options.cleaning, parts)
        arguments = ["-collection", "JsonCollection", "-generator", "DefaultLuceneDocumentGenerator"]
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
