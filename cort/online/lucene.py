"""BM25 with Lucene in this process: Anserini's analyser, query and ties, called through pyjnius.

pyjnius lets other Python threads run while a Java method does (its calls are made without Python's lock), so a search
overlaps with whatever Python does. The Java classes are described here by hand: pyjnius would find out the same by
reflection, which takes seconds for those of Anserini, and pyserini loads more of them still.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.formats.cleaning import convert
from cort.formats.records import Ranking
from cort.formats.runs import order
from cort.retrieval import anserini
from cort.retrieval.bm25 import Parameters
from cort.retrieval.options import HEAP_MB
from cort.system.errors import input_error
from cort.system.machine import java_home

INDEX = "Lorg/apache/lucene/"
SEARCH = "org/apache/lucene/search/"
# Score and, in hexadecimal bytes, id of a result, as Lucene describes one sorted by both.
RESULT = re.compile(r"fields=\[([^,]*), \[([^\]]*)\]\]")
BREAK = " 0a "
# Of a number in single precision, several times over.
ROUNDING = np.float32(2.0**-22)

_starting = threading.Lock()


class Lucene:
    """An open index, searched with one pair of parameters per call."""

    def __init__(self, index: str | Path, threads: int = 1, memory_mb: int = HEAP_MB) -> None:
        """Start Java, if this process has none yet, and open the index.

        :param threads: queries of a batch that are searched at a time.
        :param memory_mb: heap of Java; the first index that is opened decides.
        :raises InputError: an index that is not whole, no Java.
        """
        self.form = anserini.check_manifest(index)
        with _starting:
            self._java = _start(memory_mb)
        java = self._java
        path = java.File(str(Path(index).resolve())).toPath()
        self._reader = java.DirectoryReader.open(java.FSDirectory.open(path))
        self._analyzer = java.Analyzer.newDefaultInstance()
        self._generator = java.Generator()
        ids = java.SortField("id", java.FieldType.STRING_VAL)
        self._sort = java.Sort([java.SortField.FIELD_SCORE, ids])
        self._searchers: dict[Parameters, Any] = {}
        self._pool = ThreadPoolExecutor(threads, "bm25")

    def search(self, texts: Sequence[str], parameters: Parameters, depth: int) -> list[Ranking]:
        """Rank the passages for each text; the order and the scores are those of the stage `bm25`."""
        converted = convert(pa.array(texts, pa.string()), self.form).to_pylist()
        searcher = self._searcher(parameters)
        if len(converted) == 1:
            return [self._search(searcher, converted[0], depth)]
        return list(self._pool.map(lambda text: self._search(searcher, text, depth), converted))

    def close(self) -> None:
        """End the threads; Java stays, as a process can start it only once."""
        self._pool.shutdown()

    def _searcher(self, parameters: Parameters) -> Any:
        if parameters not in self._searchers:
            searcher = self._java.IndexSearcher(self._reader)
            searcher.setSimilarity(self._java.BM25Similarity(*parameters))
            self._searchers[parameters] = searcher
        return self._searchers[parameters]

    def _search(self, searcher: Any, text: str, depth: int) -> Ranking:
        java = self._java
        try:
            query = self._generator.buildQuery("contents", self._analyzer, text)
            top = searcher.search(query, depth, self._sort, True)
            # One call for all results: Anserini reads a stored document for each id, which takes four times as long,
            # and pyjnius several calls per result. The words are those of Lucene's own classes.
            listed = java.ToStringBuilder.reflectionToString(top)
        except java.JavaException as error:
            if "TooManyClauses" in str(error):
                raise input_error("query", "too many words", "1,024 different words at most", "shorten it") from None
            raise
        found = RESULT.findall(listed)
        # All at once, as Python's lock is held meanwhile; an id has no line break.
        doc_ids = bytes.fromhex(BREAK.join(name for _, name in found)).decode().split("\n") if found else []
        return printed(doc_ids, adjusted(np.array([score for score, _ in found], dtype=np.float32)))


def adjusted(scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Round scores to four decimals and lower ties by .000001 each, in single precision, as Anserini does.

    A tie is a score that is at most .0001 below the one before it, as far as that one is lowered.
    """
    if not len(scores):
        return np.empty(0)
    unit, step = np.float32(1e-4), np.float32(1e-6)
    found = np.floor(scores.astype(np.float64) * 1e4 + 0.5).astype(np.float32) / np.float32(1e4)
    gaps = found[:-1] - found[1:]
    # Stretches of equal scores, which are ties, whatever the first one is.
    starts = np.concatenate([[0], np.flatnonzero(gaps) + 1])
    sizes = np.diff(starts, append=len(found))
    ties = np.zeros(len(starts), dtype=np.int64)  # of the first of each stretch
    for number in _near(gaps[starts[1:] - 1], sizes, unit + found.max() * ROUNDING, step).tolist():
        last = ties[number - 1] + sizes[number - 1] - 1
        start = starts[number]
        if found[start - 1] - step * np.float32(last) - found[start] <= unit:
            ties[number] = last + 1
    lowered = np.repeat(ties - starts, sizes) + np.arange(len(found))
    return (found - step * lowered.astype(np.float32)).astype(np.float64)


def _near(
    gaps: npt.NDArray[np.float32], sizes: npt.NDArray[np.intp], limit: np.float32, step: np.float32
) -> npt.NDArray[np.intp]:
    """Numbers of the stretches that may be ties of those before them, which are lowered once for each tie in a row.

    :param gaps: between the stretches, one less than `sizes`, their lengths.
    :param limit: the gap of a tie of a score that is not lowered, at most.
    """
    ends = np.cumsum(sizes)
    longest = 0
    while True:
        near = gaps <= limit + 1.01 * longest * step
        # Ties in a row begin with a stretch that is not near.
        first = np.concatenate([[0], np.flatnonzero(~near) + 1])
        found = int(np.diff(np.concatenate([[0], ends])[np.append(first, len(sizes))]).max(initial=0))
        if found <= longest:
            return np.flatnonzero(near) + 1
        longest = found


def printed(doc_ids: list[str], scores: npt.NDArray[np.float64]) -> Ranking:
    """Order results as `bm25` reads them from Anserini's runs, where scores have six decimals (halves go up)."""
    shown = np.floor(scores * 1e6 + 0.5) / 1e6
    if (shown[1:] < shown[:-1]).all():
        return Ranking("", doc_ids, shown)
    by = order(doc_ids, shown)
    return Ranking("", [doc_ids[position] for position in by], shown[by])


@cache
def _start(memory_mb: int) -> SimpleNamespace:
    """Start Java and describe the classes used here; later calls get what the first one got."""
    import jnius_config

    if not jnius_config.vm_running:
        os.environ["JAVA_HOME"] = str(java_home())
        jnius_config.add_classpath(str(anserini.fat_jar()))
        # -Xrs: signals stay Python's.
        jnius_config.add_options(f"-Xmx{memory_mb}m", "-XX:+UseParallelGC", "-XX:-UsePerfData", "-Xrs")
    java = _describe()
    # Lucene tells on stderr how it maps files.
    java.Logger.getLogger("").setLevel(java.Level.WARNING)
    return java


@cache
def _describe() -> SimpleNamespace:
    from jnius import (
        JavaClass,
        JavaException,
        JavaMethod,
        JavaStaticField,
        JavaStaticMethod,
        MetaJavaClass,
    )

    def java(name: str, *constructors: str, **members: Any) -> Any:
        known = {"__javaclass__": name, "__javaconstructor__": [(f"({one})V", False) for one in constructors]}
        return MetaJavaClass(name.rsplit("/", 1)[1], (JavaClass,), {**known, **members})

    def named(package: str, *names: str) -> None:
        """Classes whose objects only pass through."""
        for name in names:
            java(f"{package}{name}")

    named("java/nio/file/", "Path")
    named(SEARCH, "Query", "TopFieldDocs", "similarities/Similarity")
    path = "Ljava/nio/file/Path;"
    directory, reader = f"{INDEX}store/FSDirectory;", f"{INDEX}index/DirectoryReader;"
    analyzer, query = f"{INDEX}analysis/Analyzer;", f"L{SEARCH}Query;"
    field, kind, sort = f"L{SEARCH}SortField;", f"L{SEARCH}SortField$Type;", f"L{SEARCH}Sort;"
    logger, level = "Ljava/util/logging/Logger;", "Ljava/util/logging/Level;"
    return SimpleNamespace(
        JavaException=JavaException,
        Level=java(level[1:-1], WARNING=JavaStaticField(level)),
        Logger=java(
            logger[1:-1],
            getLogger=JavaStaticMethod(f"(Ljava/lang/String;){logger}"),
            setLevel=JavaMethod(f"({level})V"),
        ),
        File=java("java/io/File", "Ljava/lang/String;", toPath=JavaMethod(f"(){path}")),
        FSDirectory=java(f"{directory[1:-1]}", open=JavaStaticMethod(f"({path}){directory}")),
        DirectoryReader=java(f"{reader[1:-1]}", open=JavaStaticMethod(f"({INDEX}store/Directory;){reader}")),
        Analyzer=java(
            "io/anserini/analysis/DefaultEnglishAnalyzer",
            newDefaultInstance=JavaStaticMethod("()Lio/anserini/analysis/DefaultEnglishAnalyzer;"),
        ),
        Generator=java(
            "io/anserini/search/query/BagOfWordsQueryGenerator",
            "",
            buildQuery=JavaMethod(f"(Ljava/lang/String;{analyzer}Ljava/lang/String;){query}"),
        ),
        FieldType=java(kind[1:-1], STRING_VAL=JavaStaticField(kind)),
        SortField=java(field[1:-1], f"Ljava/lang/String;{kind}", FIELD_SCORE=JavaStaticField(field)),
        Sort=java(sort[1:-1], f"[{field}"),
        BM25Similarity=java(f"{SEARCH}similarities/BM25Similarity", "FF"),
        IndexSearcher=java(
            f"{SEARCH}IndexSearcher",
            f"{INDEX}index/IndexReader;",
            setSimilarity=JavaMethod(f"(L{SEARCH}similarities/Similarity;)V"),
            search=JavaMethod(f"({query}I{sort}Z)L{SEARCH}TopFieldDocs;"),
        ),
        ToStringBuilder=java(
            "org/apache/commons/lang3/builder/ToStringBuilder",
            reflectionToString=JavaStaticMethod("(Ljava/lang/Object;)Ljava/lang/String;"),
        ),
    )
