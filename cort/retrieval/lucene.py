"""Search with Lucene in a process of its own, for single queries and for runs: BM25, or impacts of tokens (SPLADE).

Analysis, query and order of ties are Anserini's, through pyjnius. In a single process, BM25 and the dense ranker would
wait for each other's hold on Python's lock: at 1,000 results, both together took half as long again as the slower one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, reduce
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.config.lexical import FixedIndex
from cort.formats import runs
from cort.formats.artifacts import read_artifact
from cort.formats.cleaning import FORMS, convert
from cort.formats.ordering import ranked
from cort.formats.records import Ranking, in_blocks
from cort.retrieval.anserini import IMPACTS, Form, check_manifest, fat_jar, java_options
from cort.retrieval.options import HEAP_MB
from cort.runtime.errors import InputError, input_error, shorten
from cort.runtime.machine import java_home
from cort.runtime.sections import default_of

ROOT = Path(__file__).parents[2]
# Not `-m`: objects of this module would be pickled as those of `__main__`, and the parent could not read them.
PROGRAM = f"from {__name__} import main; main()"
# Anserini treats scores as tied if they are no further apart than TIE, and lowers each one by STEP more than the last.
TIE, STEP = np.float32(1e-4), np.float32(runs.STEP)
# Lucene's single-precision sums of impacts are exact below this.
EXACT = 2**24
# Queries that are searched together while the results of those before them are written.
QUERIES_AT_ONCE = 256
# Lines of an explanation: what a term adds, and the numbers that this is computed from.
TERM = re.compile(r" *(?P<score>\S+) = weight\(\w+:(?P<term>.*) in \d+\)")
DETAIL = re.compile(r" *(?P<value>\S+) = (?P<name>boost|idf|freq|n)\b")

#: a class of Lucene or Anserini that scores passages, and its parameters
Similarity: TypeAlias = tuple[str | float, ...]
BY_IMPACTS: Similarity = ("ImpactSimilarity",)

# Classes of Java, by package.
PACKAGES = {
    "io.anserini": """analysis.AnalyzerMap analysis.DefaultEnglishAnalyzer search.query.BagOfWordsQueryGenerator
        search.similarity.ImpactSimilarity""",
    "java.io": "File",
    "java.lang": "CharSequence Class Integer Object String",
    "java.lang.invoke": "MethodHandleProxies MethodHandles MethodType",
    "java.util": """Arrays function.Function function.ToDoubleFunction logging.Level logging.Logger stream.Collector
        stream.Collectors stream.DoubleStream stream.Stream""",
    "org.apache.lucene": """analysis.core.WhitespaceAnalyzer index.DirectoryReader index.IndexReader index.Term
        search.FieldDoc search.IndexSearcher search.ScoreDoc search.Sort search.SortField search.SortField$Type
        search.TermQuery search.TopDocs search.similarities.BM25Similarity search.similarities.LMDirichletSimilarity
        store.FSDirectory util.BytesRef""",
}
CLASSES = [f"{package}.{name}" for package, names in PACKAGES.items() for name in names.split()]
# Types as the signatures of class files spell them.
TYPES = {"double": "D", "float": "F", "int": "I"}
TYPES |= {path.rpartition(".")[2]: f"L{path.replace('.', '/')};" for path in CLASSES}


class Parameters(NamedTuple):
    """Those of BM25: term frequency saturation, strength of length normalisation; by default Anserini's."""

    k1: float = default_of(FixedIndex, "k1")
    b: float = default_of(FixedIndex, "b")

    @property
    def similarity(self) -> Similarity:
        """How Lucene scores passages with them."""
        return ("BM25Similarity", *self)


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


@dataclass(frozen=True)
class Tuned:
    """What `tune bm25` chose for all queries, or for those of a fold."""

    k1: float
    b: float
    queries: list[str] = field(default_factory=list)
    folds: list[Tuned] = field(default_factory=list)


def read_parameters(path: str | Path) -> Parameters:
    """Read ``{"k1": ..., "b": ...}``; other keys are ignored."""
    tuned = read_artifact(path, Tuned)
    return Parameters(tuned.k1, tuned.b)


def parameters_of_folds(path: str | Path) -> dict[str, Parameters]:
    """Read the parameters of each query that is in a fold."""
    folds = read_artifact(path, Tuned).folds
    return {query_id: Parameters(fold.k1, fold.b) for fold in folds for query_id in fold.queries}


class LuceneProcess:
    """An index, open in another process."""

    def __init__(
        self,
        index: str | Path,
        threads: int,
        memory_mb: int,
        forms: Sequence[str] = (*FORMS, IMPACTS),
        *,
        brief: bool = False,
    ) -> None:
        """Start the process and wait until the index is open.

        :param threads: number of queries of a batch that are searched at a time.
        :param memory_mb: heap of Java.
        :param forms: how the texts of the index may have been cleaned, or `IMPACTS`.
        :param brief: as of `java_options`.
        :raises InputError: if the index is incomplete or of another form, or Java does not start.
        """
        self.form: Form = check_manifest(index, forms)
        self._connection, theirs = Pipe()
        python_path = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, *map(str, (theirs.fileno(), index, threads, memory_mb, int(brief)))],
                stdin=subprocess.DEVNULL,
                # Java's output must not end up among the answers on this process's standard output.
                stdout=2,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(python_path)},
                # The terminal's signals go to this process alone, which then closes the connection.
                start_new_session=True,
            )
        try:
            self._receive()
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> LuceneProcess:
        return self

    def __exit__(self, raised: type[BaseException] | None, *_: object) -> None:
        self.kill() if raised else self.close()

    def search(self, texts: Sequence[str], similarity: Similarity, depth: int) -> list[Ranking]:
        """Rank the passages for each text; rankings have no name.

        :param similarity: with `BY_IMPACTS`, a text repeats each token as often as its impact says.
        :raises InputError: if Lucene refuses a query, or the process has ended.
        """
        rankings: list[Ranking] = self._call("search", list(texts), similarity, depth)
        return rankings

    def explain(self, text: str, similarity: Similarity, doc_id: str) -> list[TermScore]:
        """Return what each term of both the query and the passage adds to the score."""
        terms: list[TermScore] = self._call("explain", text, similarity, doc_id)
        return terms

    def close(self) -> None:
        """End the process once it is idle."""
        self._connection.close()
        self._process.wait()

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self.close()

    def _call(self, method: str, *arguments: object) -> Any:
        with suppress(BrokenPipeError):
            self._connection.send((method, *arguments))
        return self._receive()

    def _receive(self) -> Any:
        try:
            answer = self._connection.recv()
        except (EOFError, ConnectionError):
            found = f"its process ended with status {self._process.wait()}"
            raise input_error("Lucene", found, "answers", "see its messages above and start again") from None
        if isinstance(answer, InputError):
            raise answer
        return answer


def rank_all(
    lucene: LuceneProcess,
    queries: Iterable[tuple[str, str]],
    similarity: Similarity,
    depth: int,
    own: Mapping[str, Similarity] | None = None,
) -> Iterator[Ranking]:
    """Rank the passages for queries, (query_id, text), in their order; Lucene searches for the next ones meanwhile.

    :param own: similarities of queries that have one of their own.
    """

    def search(block: Sequence[tuple[str, str]]) -> list[Ranking]:
        found: dict[str, Ranking] = {}
        of_query = {query_id: (own or {}).get(query_id, similarity) for query_id, _ in block}
        for chosen in dict.fromkeys(of_query.values()):
            texts = {query_id: text for query_id, text in block if of_query[query_id] == chosen}
            found |= zip(texts, lucene.search([*texts.values()], chosen, depth), strict=True)
        return [found[query_id]._replace(query_id=query_id) for query_id, _ in block]

    with ThreadPoolExecutor(1, "lucene") as ahead:
        before: list[Future[list[Ranking]]] = []
        for block in in_blocks(queries, lambda _: 1, QUERIES_AT_ONCE):
            before.append(ahead.submit(search, block))
            if len(before) > 1:
                yield from before.pop(0).result()
        yield from before.pop().result() if before else ()


class Lucene:
    """An index, open in this process."""

    def __init__(self, index: str | Path, threads: int = 1, memory_mb: int = HEAP_MB, brief: bool = False) -> None:
        """Open the index, and start Java if this process has none yet; only then do its options have an effect."""
        self._text, language = check_manifest(index, (*FORMS, IMPACTS))
        java = self._java = start_java(memory_mb, threads, brief)
        self._index = index
        path = java.File(str(Path(index).resolve())).toPath()
        with self._one_line_errors():
            self._reader = java.cast(java.IndexReader, java.DirectoryReader.open(java.FSDirectory.open(path)))
        if self._text == IMPACTS:
            self._analyzer = java.WhitespaceAnalyzer()
        elif language == default_of(FixedIndex, "language"):
            self._analyzer = java.DefaultEnglishAnalyzer.newDefaultInstance()
        else:
            self._analyzer = java.AnalyzerMap.getLanguageSpecificAnalyzer(language)
        self._generator = java.BagOfWordsQueryGenerator()
        self._sort = java.Sort(java.SortField.FIELD_SCORE, java.SortField("id", java.Type.STRING_VAL))
        self._searchers: dict[Similarity, Any] = {}
        self._pool = ThreadPoolExecutor(threads, "lucene")

    def search(self, texts: Sequence[str], similarity: Similarity, depth: int) -> list[Ranking]:
        """Rank the passages for each text."""
        converted, searcher = self._convert(texts), self._searcher(similarity)
        if len(converted) == 1:
            return [self._search(searcher, converted[0], depth)]
        return list(self._pool.map(lambda text: self._search(searcher, text, depth), converted))

    def explain(self, text: str, similarity: Similarity, doc_id: str) -> list[TermScore]:
        """Return what each term of both the query and the passage adds to the score."""
        java, searcher, [converted] = self._java, self._searcher(similarity), self._convert([text])
        with self._one_line_errors():
            named = searcher.search(java.TermQuery(java.Term("id", doc_id)), 1, self._sort, True)
            # The index does not contain passages without a term.
            numbers = [hit.doc for hit in named.scoreDocs]
            explanations = [searcher.explain(self._query(converted), number).toString() for number in numbers]
        return [term for explanation in explanations for term in read_explanation(explanation)]

    def close(self) -> None:
        """End the threads; Java stays, as a process can start it only once."""
        self._pool.shutdown()

    def _convert(self, texts: Sequence[str]) -> list[str]:
        if self._text == IMPACTS:
            return list(texts)
        converted: list[str] = convert(pa.array(texts, pa.string()), self._text).to_pylist()
        return converted

    def _searcher(self, similarity: Similarity) -> Any:
        if similarity not in self._searchers:
            searcher = self._searchers[similarity] = self._java.IndexSearcher(self._reader)
            name, *parameters = similarity
            searcher.setSimilarity(getattr(self._java, str(name))(*parameters))
        return self._searchers[similarity]

    def _query(self, converted: str) -> Any:
        return self._generator.buildQuery("contents", self._analyzer, converted)

    def _search(self, searcher: Any, text: str, depth: int) -> Ranking:
        with self._one_line_errors():
            top = searcher.search(self._query(text), depth, self._sort, True)
            scores = np.array(self._java.scores_of.apply(top), dtype=np.float32)
            # Anserini reads a stored document for each id, which takes four times as long.
            doc_ids = self._java.ids_of.apply(top).split("\n") if len(scores) else []
        if self._text != IMPACTS:
            return as_printed(doc_ids, lower_ties(scores))
        if len(scores) and scores[0] >= EXACT:
            expected = f"scores below {EXACT:,}, which Lucene computes exactly"
            fix = "train with more FLOPS regularisation"
            raise input_error(self._index, f"the score {scores[0]:,.0f}", expected, fix)
        return Ranking("", doc_ids, scores.astype(np.float64))

    @contextmanager
    def _one_line_errors(self) -> Iterator[None]:
        try:
            yield
        except self._java.JavaException as error:
            found = f"what Lucene cannot read ({shorten(str(error), 200)})"
            raise input_error(
                self._index, found, "the index that was built", "delete the index and build it again"
            ) from None


@cache
def start_java(memory_mb: int, threads: int = 1, brief: bool = False) -> SimpleNamespace:
    """Start Java if this process has none yet; return `CLASSES` by their short names, and what `_readers` makes."""
    import jnius_config

    if not jnius_config.vm_running:
        os.environ["JAVA_HOME"] = str(java_home())
        jnius_config.add_classpath(str(fat_jar()))
        # -Xrs leaves signals to Python.
        jnius_config.add_options(*java_options(memory_mb, threads, brief), "-Xrs")
    try:
        import jnius
    except SystemError as error:
        found, expected = f"no Java with a heap of {memory_mb} MB ({error})", "one that starts"
        fix = "give at least 16 and no more than this machine's memory"
        raise input_error("--memory-mb", found, expected, fix) from error

    java = SimpleNamespace(JavaException=jnius.JavaException, cast=jnius.cast)
    for path in CLASSES:
        # Reflection on what is not public would take seconds.
        found = jnius.autoclass(path, include_protected=False, include_private=False)
        setattr(java, re.split(r"[.$]", path)[-1], found)
    # Queries may have any number of terms.
    java.IndexSearcher.setMaxClauseCount(2**31 - 1)
    # Otherwise Lucene reports on stderr how it maps files.
    java.Logger.getLogger("").setLevel(java.Level.WARNING)
    java.scores_of, java.ids_of = _readers(java)
    return java


def _readers(java: SimpleNamespace) -> tuple[Any, Any]:
    """Make functions that read all scores, and all ids, one a line, of a search's results.

    They run in Java, because a call from Python per result would take longer than the search::

        top -> Arrays.stream(top.scoreDocs).mapToDouble(hit -> hit.score).toArray()
        top -> Arrays.stream(top.scoreDocs).map(hit -> hit.fields[1].utf8ToString()).collect(joining(newline))
    """
    handles, lookup = java.MethodHandles, java.MethodHandles.publicLookup()

    def types(words: str) -> Any:
        return java.MethodType.fromMethodDescriptorString(re.sub(r"[\w$]+", lambda word: TYPES[word[0]], words), None)

    def named(word: str) -> Any:
        return java.cast(java.Class, types(f"(){word}").returnType())

    def as_interface(name: str, handle: Any) -> Any:
        return java.cast(getattr(java, name), java.MethodHandleProxies.asInterfaceInstance(named(name), handle))

    def field(owner: str, name: str, kind: str) -> Any:
        return lookup.findGetter(named(owner), name, named(kind))

    def method(owner: str, name: str, words: str, *given: Any) -> Any:
        found = lookup.findVirtual(named(owner), name, types(words))
        return handles.insertArguments(found, 1, *given) if given else found

    def chained(*steps: Any) -> Any:
        return reduce(lambda before, step: before.andThen(step), (as_interface("Function", step) for step in steps))

    score_of = as_interface("ToDoubleFunction", field("ScoreDoc", "score", "float"))
    second = handles.insertArguments(handles.arrayElementGetter(named("[Object")), 1, java.Integer(1))
    id_of = chained(field("FieldDoc", "fields", "[Object"), second, method("BytesRef", "utf8ToString", "()String"))
    stream = lookup.findStatic(named("Arrays"), "stream", types("([Object)Stream"))
    hits = field("TopDocs", "scoreDocs", "[ScoreDoc"), stream
    scores = method("Stream", "mapToDouble", "(ToDoubleFunction)DoubleStream", score_of)
    ids = method("Stream", "map", "(Function)Stream", id_of)
    lines = method("Stream", "collect", "(Collector)Object", java.Collectors.joining(java.String("\n")))
    return chained(*hits, scores, method("DoubleStream", "toArray", "()[double")), chained(*hits, ids, lines)


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
    """Order results by the six decimals that Anserini prints (halves rounded up), then by doc_id."""
    shown = np.floor(scores * 1e6 + 0.5) / 1e6
    if (shown[1:] < shown[:-1]).all():
        return Ranking("", doc_ids, shown)
    by = ranked(shown, pa.array(doc_ids, "string"))
    return Ranking("", [doc_ids[position] for position in by], shown[by])


def main() -> None:
    """Open the index and answer the parent process, with an `InputError` if need be, until it closes the connection."""
    descriptor, index, threads, memory_mb, brief = sys.argv[1:]
    with Connection(int(descriptor)) as requests, suppress(EOFError, ConnectionError):
        try:
            lucene = Lucene(index, int(threads), int(memory_mb), bool(int(brief)))
        except InputError as error:
            requests.send(error)
            return
        with closing(lucene):
            requests.send(None)
            while True:
                method, *arguments = requests.recv()
                try:
                    requests.send(getattr(lucene, method)(*arguments))
                except InputError as error:
                    requests.send(error)
