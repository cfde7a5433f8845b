"""BM25 or impacts with Lucene, in a process of its own: Anserini's analyzer, query and tie-breaking, through pyjnius.

In a single process, BM25 and the dense ranker would wait for each other's hold on Python's lock: at 1,000 results, both
together took half as long again as the slower one alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.formats.cleaning import FORMS, convert
from cort.formats.records import Ranking
from cort.formats.runs import order
from cort.retrieval import anserini
from cort.retrieval.bm25 import Parameters
from cort.retrieval.impacts import exact
from cort.retrieval.options import HEAP_MB
from cort.runtime.errors import InputError, input_error
from cort.runtime.machine import java_home
from cort.settings.lexical import LexicalIndex

ROOT = Path(__file__).parents[2]
# Not `-m`: objects of this module would be pickled as those of `__main__`, and the parent could not read them.
PROGRAM = f"from {__name__} import main; main()"
# Score and document id (in hexadecimal bytes) of a result, as Lucene describes one sorted by both.
RESULT = re.compile(r"fields=\[([^,]*), \[([^\]]*)\]\]")
# Lucene's number of a result.
NUMBER = re.compile(r"\bdoc=(\d+)")
BREAK = " 0a "
# Anserini treats scores as tied if they are no further apart than TIE, and lowers each one by STEP more than the last.
TIE, STEP = np.float32(1e-4), np.float32(1e-6)
# Lines of an explanation: what a term adds, and the numbers that this is computed from.
TERM = re.compile(r" *(?P<score>\S+) = weight\(\w+:(?P<term>.*) in \d+\)")
DETAIL = re.compile(r" *(?P<value>\S+) = (?P<name>boost|idf|freq|n)\b")

LUCENE = "org/apache/lucene/"
# The members used of each Java class, described by hand: pyjnius would find them by reflection, which takes seconds for
# Anserini's classes, and pyserini loads even more of them. Nothing is called on classes without members.
CLASSES: dict[str, dict[str, str]] = {
    "io/anserini/analysis/AnalyzerMap": {"static getLanguageSpecificAnalyzer": "(String)Analyzer"},
    "io/anserini/analysis/DefaultEnglishAnalyzer": {"static newDefaultInstance": "()DefaultEnglishAnalyzer"},
    "io/anserini/search/similarity/ImpactSimilarity": {"new": "()void"},
    "io/anserini/search/query/BagOfWordsQueryGenerator": {
        "new": "()void",
        "buildQuery": "(String, Analyzer, String)Query",
    },
    "java/io/File": {"new": "(String)void", "toPath": "()Path"},
    "java/nio/file/Path": {},
    "java/util/logging/Level": {"static WARNING": "Level"},
    "java/util/logging/Logger": {"static getLogger": "(String)Logger", "setLevel": "(Level)void"},
    "org/apache/commons/lang3/builder/ToStringBuilder": {"static reflectionToString": "(Object)String"},
    f"{LUCENE}analysis/Analyzer": {},
    f"{LUCENE}analysis/core/WhitespaceAnalyzer": {"new": "()void"},
    f"{LUCENE}index/DirectoryReader": {"static open": "(Directory)DirectoryReader"},
    f"{LUCENE}index/Term": {"new": "(String, String)void"},
    f"{LUCENE}search/Explanation": {"toString": "()String"},
    f"{LUCENE}search/IndexSearcher": {
        "new": "(IndexReader)void",
        "static setMaxClauseCount": "(int)void",
        "setSimilarity": "(Similarity)void",
        "search": "(Query, int, Sort, boolean)TopFieldDocs",
        "explain": "(Query, int)Explanation",
    },
    f"{LUCENE}search/Query": {},
    f"{LUCENE}search/Sort": {"new": "([SortField)void"},
    f"{LUCENE}search/SortField": {"new": "(String, SortField$Type)void", "static FIELD_SCORE": "SortField"},
    f"{LUCENE}search/SortField$Type": {"static STRING_VAL": "SortField$Type"},
    f"{LUCENE}search/TermQuery": {"new": "(Term)void"},
    f"{LUCENE}search/TopFieldDocs": {},
    f"{LUCENE}search/similarities/BM25Similarity": {"new": "(float, float)void"},
    f"{LUCENE}search/similarities/Similarity": {},
    f"{LUCENE}store/FSDirectory": {"static open": "(Path)FSDirectory"},
}
NAMED = [f"{LUCENE}{name}" for name in ("index/IndexReader", "store/Directory")]
NAMED += ["java/lang/Object", "java/lang/String", *CLASSES]
# Types as the signatures of class files spell them.
TYPES = {"boolean": "Z", "float": "F", "int": "I", "void": "V"}
TYPES |= {path.rpartition("/")[2]: f"L{path};" for path in NAMED}


class TermScore(NamedTuple):
    """What a term adds to a passage's score: `boost` (its count in the query) times `idf` times a factor below 1.

    `frequency` is the term's count in the passage, `passages` the number of passages with the term. The term is spelled
    as in the index. Of impacts, only `score` is known: the term's in the passage, without `boost`.
    """

    term: str
    boost: float
    frequency: float
    passages: int
    idf: float
    score: float


class LuceneProcess:
    """An index, open in another process; `Lucene` has the same methods."""

    def __init__(self, index: str | Path, threads: int, memory_mb: int) -> None:
        """Start the process and wait until the index is open.

        :param threads: number of queries of a batch that are searched at a time.
        :param memory_mb: heap of Java.
        :raises InputError: if the index is incomplete, or Java does not start.
        """
        self._connection, theirs = Pipe()
        python_path = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, *map(str, (theirs.fileno(), index, threads, memory_mb))],
                stdin=subprocess.DEVNULL,
                # Java's output must not end up among the answers on this process's standard output.
                stdout=2,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(python_path)},
                # The terminal's signals go to this process alone, which then closes the connection.
                start_new_session=True,
            )
        try:
            self.form: anserini.Form = self._receive()
        except BaseException:
            self.close()
            raise

    def search(self, texts: Sequence[str], parameters: Parameters | None, depth: int) -> list[Ranking]:
        """Rank the passages for each text, in the order and with the scores of the stage `bm25` or `impacts`.

        :param parameters: of BM25; None for impacts, where a text repeats each term as often as its weight says.
        :raises InputError: if Lucene refuses a query, or the process has ended.
        """
        rankings: list[Ranking] = self._call("search", list(texts), parameters, depth)
        return rankings

    def explain(self, text: str, parameters: Parameters | None, doc_id: str) -> list[TermScore]:
        """Return what each term of a query adds to the score of a passage."""
        terms: list[TermScore] = self._call("explain", text, parameters, doc_id)
        return terms

    def close(self) -> None:
        """End the process once it is idle."""
        self._connection.close()
        self._process.wait()

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()

    def _call(self, method: str, *arguments: object) -> Any:
        with suppress(BrokenPipeError):
            self._connection.send((method, *arguments))
        return self._receive()

    def _receive(self) -> Any:
        try:
            answer = self._connection.recv()
        except (EOFError, ConnectionError):
            found = f"its process ended with status {self._process.wait()}"
            raise input_error("BM25", found, "answers", "see its messages above and start again") from None
        if isinstance(answer, InputError):
            raise answer
        return answer


class Lucene:
    """An index, open in this process."""

    def __init__(self, index: str | Path, threads: int = 1, memory_mb: int = HEAP_MB) -> None:
        """Open the index, and start Java if this process has none yet; only then does `memory_mb` have an effect."""
        self.form = anserini.check_manifest(index, (*FORMS, anserini.IMPACTS))
        self._text, language = self.form
        java = self._java = start_java(memory_mb)
        self._index = index
        path = java.File(str(Path(index).resolve())).toPath()
        with self._one_line_errors():
            self._reader = java.DirectoryReader.open(java.FSDirectory.open(path))
        if self._text == anserini.IMPACTS:
            self._analyzer = java.WhitespaceAnalyzer()
        elif language == LexicalIndex.language:
            self._analyzer = java.DefaultEnglishAnalyzer.newDefaultInstance()
        else:
            self._analyzer = java.AnalyzerMap.getLanguageSpecificAnalyzer(language)
        self._generator = java.BagOfWordsQueryGenerator()
        self._sort = java.Sort([java.SortField.FIELD_SCORE, java.SortField("id", java.Type.STRING_VAL)])
        self._searchers: dict[Parameters | None, Any] = {}
        self._pool = ThreadPoolExecutor(threads, "bm25")

    def search(self, texts: Sequence[str], parameters: Parameters | None, depth: int) -> list[Ranking]:
        """Rank the passages for each text."""
        converted, searcher = self._convert(texts), self._searcher(parameters)
        if len(converted) == 1:
            return [self._search(searcher, converted[0], depth)]
        return list(self._pool.map(lambda text: self._search(searcher, text, depth), converted))

    def explain(self, text: str, parameters: Parameters | None, doc_id: str) -> list[TermScore]:
        """Return what each term of both the query and the passage adds to the score."""
        java, searcher, [converted] = self._java, self._searcher(parameters), self._convert([text])
        with self._one_line_errors():
            query, named = self._query(converted), java.TermQuery(java.Term("id", doc_id))
            number = NUMBER.search(java.ToStringBuilder.reflectionToString(searcher.search(named, 1, self._sort, True)))
            # The index does not contain passages without a term.
            return read_explanation(searcher.explain(query, int(number[1])).toString()) if number else []

    def close(self) -> None:
        """End the threads; Java stays, as a process can start it only once."""
        self._pool.shutdown()

    def _convert(self, texts: Sequence[str]) -> list[str]:
        if self._text == anserini.IMPACTS:
            return list(texts)
        converted: list[str] = convert(pa.array(texts, pa.string()), self._text).to_pylist()
        return converted

    def _searcher(self, parameters: Parameters | None) -> Any:
        if parameters not in self._searchers:
            searcher = self._searchers[parameters] = self._java.IndexSearcher(self._reader)
            java = self._java
            searcher.setSimilarity(java.BM25Similarity(*parameters) if parameters else java.ImpactSimilarity())
        return self._searchers[parameters]

    def _query(self, converted: str) -> Any:
        return self._generator.buildQuery("contents", self._analyzer, converted)

    def _search(self, searcher: Any, text: str, depth: int) -> Ranking:
        with self._one_line_errors():
            top = searcher.search(self._query(text), depth, self._sort, True)
            # One call for all results: Anserini reads a stored document for each id, which takes four times as long,
            # and pyjnius needs several calls per result. Lucene's own classes define this text.
            results = RESULT.findall(self._java.ToStringBuilder.reflectionToString(top))
        scores = np.array([score for score, _ in results], dtype=np.float32)
        doc_ids = decode_ids([doc_id for _, doc_id in results])
        if self._text == anserini.IMPACTS:
            return exact(Ranking("", doc_ids, scores.astype(np.float64)), self._index)
        return as_printed(doc_ids, lower_ties(scores))

    @contextmanager
    def _one_line_errors(self) -> Iterator[None]:
        try:
            yield
        except self._java.JavaException as error:
            raise anserini.unreadable(self._index, str(error)) from None


@cache
def start_java(memory_mb: int) -> SimpleNamespace:
    """Start Java if this process has none yet, and return `CLASSES` by their short names."""
    import jnius_config

    if not jnius_config.vm_running:
        os.environ["JAVA_HOME"] = str(java_home())
        jnius_config.add_classpath(str(anserini.fat_jar()))
        # -Xrs leaves signals to Python.
        jnius_config.add_options(f"-Xmx{memory_mb}m", "-XX:+UseParallelGC", "-XX:-UsePerfData", "-Xrs")
    try:
        import jnius
    except SystemError as error:
        found, expected = f"no Java with a heap of {memory_mb} MB ({error})", "one that starts"
        fix = "give at least 16 and no more than this machine's memory"
        raise input_error("--memory-mb", found, expected, fix) from error

    java = SimpleNamespace(JavaException=jnius.JavaException)
    for path, members in CLASSES.items():
        described: dict[str, Any] = {"__javaclass__": path, "__javaconstructor__": []}
        for words, types in members.items():
            signature = re.sub(r"[\w$]+", lambda word: TYPES[word[0]], types).replace(", ", "")
            name = words.removeprefix("static ")
            if name == "new":
                described["__javaconstructor__"].append((signature, False))
            elif name == words:
                described[name] = jnius.JavaMethod(signature)
            else:
                static = jnius.JavaStaticMethod if "(" in signature else jnius.JavaStaticField
                described[name] = static(signature)
        short = re.split(r"[/$]", path)[-1]
        setattr(java, short, jnius.MetaJavaClass(short, (jnius.JavaClass,), described))
    # Queries may have any number of terms, as in the stage.
    java.IndexSearcher.setMaxClauseCount(2**31 - 1)
    # Otherwise Lucene reports on stderr how it maps files.
    java.Logger.getLogger("").setLevel(java.Level.WARNING)
    return java


def read_explanation(text: str) -> list[TermScore]:
    """Read Lucene's explanation of a score: a line per number, followed by the indented numbers it is computed from."""
    terms: list[dict[str, Any]] = []
    for line in text.splitlines():
        if term := TERM.match(line):
            terms.append(term.groupdict())
        elif terms and (detail := DETAIL.match(line)):
            terms[-1].setdefault(detail["name"], detail["value"])
    return [
        TermScore(
            term["term"],
            float(term.get("boost", 1)),
            float(term.get("freq", 0)),
            int(term.get("n", 0)),
            float(term.get("idf", 0)),
            float(term["score"]),
        )
        for term in terms
    ]


def decode_ids(names: list[str]) -> list[str]:
    """Decode document ids that are given as hexadecimal bytes."""
    try:
        # All at once, because this holds Python's lock.
        doc_ids = bytes.fromhex(BREAK.join(names)).decode().split("\n") if names else []
    except ValueError:
        doc_ids = []
    # Java writes bytes below 0x10 with one digit; a line break is one of them.
    if len(doc_ids) == len(names):
        return doc_ids
    return [bytes(int(byte, 16) for byte in name.split()).decode(errors="replace") for name in names]


def lower_ties(scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Round scores to four decimals and lower ties by 0.000001 each, in single precision, as Anserini does.

    A score is tied if it is at most 0.0001 below the lowered score before it.
    """
    rounded = np.floor(scores.astype(np.float64) * 1e4 + 0.5).astype(np.float32) / np.float32(1e4)
    ties = np.zeros_like(rounded)  # in a row
    # Each result lowers a score by at most one step, which rounding may double, so other pairs cannot be ties.
    near = rounded[:-1] - rounded[1:] <= TIE + 2 * STEP * np.float32(len(rounded))
    for at in (np.flatnonzero(near) + 1).tolist():
        if rounded[at - 1] - STEP * ties[at - 1] - rounded[at] <= TIE:
            ties[at] = ties[at - 1] + 1
    return (rounded - STEP * ties).astype(np.float64)


def as_printed(doc_ids: list[str], scores: npt.NDArray[np.float64]) -> Ranking:
    """Order results as `bm25` reads them from Anserini's runs, whose scores have six decimals (halves rounded up)."""
    shown = np.floor(scores * 1e6 + 0.5) / 1e6
    if (shown[1:] < shown[:-1]).all():
        return Ranking("", doc_ids, shown)
    by = order(doc_ids, shown)
    return Ranking("", [doc_ids[position] for position in by], shown[by])


def main() -> None:
    """Open the index and answer the parent process, with an `InputError` if need be, until it closes the connection."""
    descriptor, index, threads, memory_mb = sys.argv[1:]
    with Connection(int(descriptor)) as requests, suppress(EOFError, ConnectionError):
        try:
            lucene = Lucene(index, int(threads), int(memory_mb))
        except InputError as error:
            requests.send(error)
            return
        with closing(lucene):
            requests.send(lucene.form)
            while True:
                method, *arguments = requests.recv()
                try:
                    requests.send(getattr(lucene, method)(*arguments))
                except InputError as error:
                    requests.send(error)
