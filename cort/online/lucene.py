"""BM25 with Lucene, in a process of its own: Anserini's analyser, query and ties, called through pyjnius.

In one process BM25 and the dense ranker would hold Python's lock by turns: at 1,000 results both took half as long
again as the slower one alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.formats.cleaning import convert
from cort.formats.records import Ranking
from cort.formats.runs import order
from cort.online.java import start_java
from cort.online.terms import TermScore, read_explanation
from cort.retrieval import anserini
from cort.retrieval.bm25 import Parameters
from cort.retrieval.options import HEAP_MB
from cort.system.errors import InputError, input_error

ROOT = Path(__file__).parents[2]
# Score and, in hexadecimal bytes, id of a result, as Lucene describes one sorted by both.
RESULT = re.compile(r"fields=\[([^,]*), \[([^\]]*)\]\]")
# Lucene's number of a result.
NUMBER = re.compile(r"\bdoc=(\d+)")
BREAK = " 0a "
# Scores that Anserini takes for tied are no further apart; it lowers each by so much more than the one before.
TIE, STEP = np.float32(1e-4), np.float32(1e-6)


class LuceneProcess:
    """An index, open in another process; `Lucene` has the same methods."""

    def __init__(self, index: str | Path, threads: int, memory_mb: int) -> None:
        """Start the process and wait until the index is open.

        :param threads: queries of a batch that are searched at a time; `memory_mb` is the heap of Java.
        :raises InputError: an index that is not whole, no Java.
        """
        self._connection, theirs = Pipe()
        others = filter(None, [os.environ.get("PYTHONPATH")])
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, *map(str, (theirs.fileno(), index, threads, memory_mb))],
                stdin=subprocess.DEVNULL,
                # What Java writes to standard output is no answer of the process that asks.
                stdout=2,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *others])},
                # Signals of the terminal are for this process, which then closes the connection.
                start_new_session=True,
            )
        try:
            self.form = str(self._answer())
        except BaseException:
            self.close()
            raise

    def search(self, texts: Sequence[str], parameters: Parameters, depth: int) -> list[Ranking]:
        """Rank the passages for each text; the order and the scores are those of the stage `bm25`.

        :raises InputError: a query Lucene refuses; the process has ended.
        """
        found: list[Ranking] = self._ask("search", list(texts), parameters, depth)
        return found

    def explain(self, text: str, parameters: Parameters, doc_id: str) -> list[TermScore]:
        """Tell what each term of a query adds to the score of a passage."""
        found: list[TermScore] = self._ask("explain", text, parameters, doc_id)
        return found

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.wait()

    def kill(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.wait()

    def _ask(self, method: str, *arguments: object) -> Any:
        with suppress(BrokenPipeError):
            self._connection.send((method, *arguments))
        return self._answer()

    def _answer(self) -> Any:
        try:
            answer = self._connection.recv()
        except (EOFError, ConnectionError):
            found = f"its process ended with status {self._process.wait()}"
            raise input_error("BM25", found, "answers", "see what it said; open it again") from None
        if isinstance(answer, InputError):
            raise answer
        return answer


class Lucene:
    """An open index in this process, searched with one pair of parameters per call."""

    def __init__(self, index: str | Path, threads: int = 1, memory_mb: int = HEAP_MB) -> None:
        """Start Java, if this process has none yet, and open the index; the first one decides on the heap."""
        self.form = anserini.check_manifest(index)
        java = self._java = start_java(memory_mb)
        self._index = index
        path = java.File(str(Path(index).resolve())).toPath()
        try:
            self._reader = java.DirectoryReader.open(java.FSDirectory.open(path))
        except java.JavaException as error:
            raise anserini.unreadable(index, str(error)) from None
        self._analyzer = java.DefaultEnglishAnalyzer.newDefaultInstance()
        self._generator = java.BagOfWordsQueryGenerator()
        self._sort = java.Sort([java.SortField.FIELD_SCORE, java.SortField("id", java.Type.STRING_VAL)])
        self._searchers: dict[Parameters, Any] = {}
        self._pool = ThreadPoolExecutor(threads, "bm25")

    def search(self, texts: Sequence[str], parameters: Parameters, depth: int) -> list[Ranking]:
        """Rank the passages for each text."""
        converted, searcher = self._convert(texts), self._searcher(parameters)
        if len(converted) == 1:
            return [self._search(searcher, converted[0], depth)]
        return list(self._pool.map(lambda text: self._search(searcher, text, depth), converted))

    def explain(self, text: str, parameters: Parameters, doc_id: str) -> list[TermScore]:
        """Tell what each term of a query adds to the score of a passage, of those that are in both."""
        java, searcher, [converted] = self._java, self._searcher(parameters), self._convert([text])
        with self._refusing():
            query, named = self._query(converted), java.TermQuery(java.Term("id", doc_id))
            number = NUMBER.search(java.ToStringBuilder.reflectionToString(searcher.search(named, 1, self._sort, True)))
            # Passages without a term are in no index.
            return read_explanation(searcher.explain(query, int(number[1])).toString()) if number else []

    def close(self) -> None:
        """End the threads; Java stays, as a process can start it only once."""
        self._pool.shutdown()

    def _convert(self, texts: Sequence[str]) -> list[str]:
        converted: list[str] = convert(pa.array(texts, pa.string()), self.form).to_pylist()
        return converted

    def _searcher(self, parameters: Parameters) -> Any:
        if parameters not in self._searchers:
            searcher = self._searchers[parameters] = self._java.IndexSearcher(self._reader)
            searcher.setSimilarity(self._java.BM25Similarity(*parameters))
        return self._searchers[parameters]

    def _query(self, converted: str) -> Any:
        return self._generator.buildQuery("contents", self._analyzer, converted)

    def _search(self, searcher: Any, text: str, depth: int) -> Ranking:
        with self._refusing():
            top = searcher.search(self._query(text), depth, self._sort, True)
            # One call for all results: Anserini reads a stored document for each id, which takes four times as long,
            # and pyjnius several calls per result. The words are those of Lucene's own classes.
            listed = self._java.ToStringBuilder.reflectionToString(top)
        found = RESULT.findall(listed)
        scores = np.array([score for score, _ in found], dtype=np.float32)
        return printed(decoded([name for _, name in found]), adjusted(scores))

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Say in a line what Lucene refuses."""
        try:
            yield
        except self._java.JavaException as error:
            if "TooManyClauses" in str(error):
                raise input_error("query", "too many words", "1,024 different words at most", "shorten it") from None
            raise anserini.unreadable(self._index, str(error)) from None


def decoded(names: list[str]) -> list[str]:
    """Read ids that are given as hexadecimal bytes."""
    try:
        # All at once, as Python's lock is held meanwhile.
        found = bytes.fromhex(BREAK.join(names)).decode().split("\n") if names else []
    except ValueError:
        found = []
    # Java writes bytes below 0x10, of which a line break is one, with one digit.
    if len(found) == len(names):
        return found
    return [bytes(int(byte, 16) for byte in name.split()).decode(errors="replace") for name in names]


def adjusted(scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Round scores to four decimals and lower ties by .000001 each, in single precision, as Anserini does.

    A tie is a score that is at most .0001 below the one before it, as far as that one is lowered.
    """
    found = np.floor(scores.astype(np.float64) * 1e4 + 0.5).astype(np.float32) / np.float32(1e4)
    ties = np.zeros_like(found)  # in a row
    # A score is lowered by a step per result at most, which rounding may double; only what is nearer can be a tie.
    near = found[:-1] - found[1:] <= TIE + 2 * STEP * np.float32(len(found))
    for at in (np.flatnonzero(near) + 1).tolist():
        if found[at - 1] - STEP * ties[at - 1] - found[at] <= TIE:
            ties[at] = ties[at - 1] + 1
    return (found - STEP * ties).astype(np.float64)


def printed(doc_ids: list[str], scores: npt.NDArray[np.float64]) -> Ranking:
    """Order results as `bm25` reads them from Anserini's runs, where scores have six decimals (halves go up)."""
    shown = np.floor(scores * 1e6 + 0.5) / 1e6
    if (shown[1:] < shown[:-1]).all():
        return Ranking("", doc_ids, shown)
    by = order(doc_ids, shown)
    return Ranking("", [doc_ids[position] for position in by], shown[by])


def main() -> None:
    """Open the index and answer the process that started this one, until it closes the connection.

    A mistake of a request is an answer, too.
    """
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


if __name__ == "__main__":
    main()
