"""The searcher: any system of an experiment, for one query or a batch, with the time of each part."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from cort.config import paths
from cort.config.experiment import Experiment
from cort.config.stored import REMEDY, open_systems
from cort.formats.records import Ranking
from cort.formats.runs import run_of, strictly_decreasing
from cort.formats.visible import visible
from cort.online.passages import Passages
from cort.retrieval.documents import group_passages
from cort.retrieval.lucene import LuceneProcess
from cort.retrieval.options import HEAP_MB
from cort.runtime.errors import input_error, shorten
from cort.runtime.imports import uncollected
from cort.systems.base import LuceneIndex, System
from cort.systems.timing import timed

if TYPE_CHECKING:
    from cort.online.neural import Models, QueryEncoder, SparseQueryEncoder, TokenEncoder

# Java compiles code that runs often, and the first searches fill caches.
WARM_UP = ("warm up",) * 3
# Placeholders of bytes that are not UTF-8, and unpaired surrogates.
LONE = re.compile("[\ud800-\udfff]+")
# Seconds until a waiting thread gets Python's lock; the thread that receives BM25's answer must not wait longer.
SWITCH = 0.0005
#: opens models; importing it takes longer than opening them
NEURAL = "cort.online.neural"


class Result(NamedTuple):
    """One document of an answer; ranks begin at 1."""

    doc_id: str
    score: float
    rank: int


class DocumentResult(NamedTuple):
    """A document of an answer, the passage that counted, and what `cort.retrieval.documents` says of its passages."""

    doc_id: str
    score: float
    rank: int
    passage: str
    about: str | None


@dataclass(frozen=True)
class LiveAnswer:
    """The results of a system for one query, best first.

    `milliseconds` has the parts that ran (`timing.PARTS`) and `total`, less than their sum where some ran in parallel.
    """

    system: str
    results: Sequence[Result | DocumentResult]
    milliseconds: dict[str, float]


class Batch:
    """Queries that are searched together, and the vectors that systems share; `times` gets the time of each part."""

    def __init__(self, searcher: Searcher, texts: Sequence[str], times: dict[str, float]) -> None:
        self.searcher, self.texts, self._times = searcher, texts, times
        self._vectors: dict[int, Any] = {}

    def timed(self, part: str) -> AbstractContextManager[None]:
        """Measure the time of a part, one of `timing.PARTS`."""
        return timed(self._times, part)

    def vectors(self, encoder: QueryEncoder | SparseQueryEncoder | TokenEncoder) -> Any:
        """Encode the queries, once per encoder."""
        if id(encoder) not in self._vectors:
            with self.timed("tokenize"):
                tokens = encoder.tokenize(self.texts)
            with self.timed("encode"):
                self._vectors[id(encoder)] = encoder.encode(tokens)
        return self._vectors[id(encoder)]

    @staticmethod
    def as_in_run(ranking: Ranking) -> Ranking:
        """Give a ranking the scores that a run file would have."""
        return ranking._replace(scores=strictly_decreasing(ranking.scores))


class Searcher:
    """Open systems; their models are opened when first needed. Not thread-safe."""

    def __init__(
        self,
        results: Experiment,
        systems: Sequence[str],
        lucene: dict[str, LuceneProcess],
        open_models: Callable[[], Models],
        passages: Passages,
    ) -> None:
        """Take what `open_searcher` opened for `systems`; `lucene` has the term-based indexes by name.

        `opened` has these systems and all that they are made from, by name.
        """
        self.results, self.systems = results, list(systems)
        self.lucene, self.passages, self._open_models = lucene, passages, open_models
        self.opened = open_systems(results, systems)
        self.depth, self.aggregate = results.depth, results.collection.aggregate
        # As the queries of splits are.
        self.is_visible = results.source == "folder"
        self._bm25_thread = ThreadPoolExecutor(1, "bm25")

    @cached_property
    def models(self) -> Models:
        """The models, opened when they are first needed.

        :raises InputError: if a file is missing or has changed.
        """
        return self._open_models()

    def add(self, system: str, threads: int) -> None:
        """Open another system, which shares indexes and models with those that are open.

        :raises InputError: for an unknown system, or a file that is missing or has changed.
        """
        needed = open_systems(self.results, [system])
        with _naming_missing_files(), ExitStack() as opened:
            for index in filter(None, (one.lucene_index() for one in needed.values())):
                if index.name not in self.lucene:
                    self.lucene[index.name] = _open_lucene(index, threads, HEAP_MB, opened)
            opened.pop_all()
        self.opened |= needed
        self.systems.append(system)
        self.warm_up(system)

    def warm_up(self, system: str) -> None:
        """Search a few times with a system, which opens the models it needs.

        A model behind an API is not asked, which may cost money: only parts without one are searched.
        """
        if self._asks(system):
            for part in self.opened[system].parts():
                self.warm_up(part)
            return
        with _naming_missing_files():
            for text in WARM_UP:
                self.search(system, text, self.depth)

    def _asks(self, system: str) -> bool:
        """Tell whether a system, or a part of it, asks a model behind an API."""
        names = self.results.with_parts([system])
        return any(self.results.is_served(*model) for name in names for model in self.opened[name].models())

    def search(self, system: str, text: str, depth: int, *, concurrent: bool = True) -> LiveAnswer:
        """Search for one query.

        :param depth: number of results; up to rounding, they are the first ones of the workflow's run.
        :param concurrent: whether BM25 and the dense ranker run in parallel, where a system has both.
        :raises InputError: for a system that is not open, or an empty query.
        """
        [ranking], milliseconds = self.search_batch(system, [text], depth, concurrent=concurrent)
        ranked = enumerate(zip(ranking.doc_ids, ranking.scores.tolist(), strict=True), start=1)
        return LiveAnswer(system, [Result(doc_id, score, rank) for rank, (doc_id, score) in ranked], milliseconds)

    def answer(self, system: str, text: str, number: int) -> tuple[LiveAnswer, list[str]]:
        """Search for one query, and read the texts of the results.

        If the experiment measures documents, the results are these, and the texts those of the passages that counted.
        """
        if self.aggregate == "none":
            answer = self.search(system, text, number)
            return answer, self.passages.texts([result.doc_id for result in answer.results])
        # As many passages as in the workflow's runs.
        [ranking], milliseconds = self.search_batch(system, [text], self.depth)
        run, passages, about = group_passages(run_of([ranking]), self.aggregate)
        columns = run.doc_ids, pa.array(run.scores), pa.array(run.ranks()), passages, about
        rows = zip(*(column[:number].to_pylist() for column in columns), strict=True)
        results = [DocumentResult(*row) for row in rows]
        return LiveAnswer(system, results, milliseconds), self.passages.texts([result.passage for result in results])

    def search_batch(
        self, system: str, texts: Sequence[str], depth: int, *, concurrent: bool = True
    ) -> tuple[list[Ranking], dict[str, float]]:
        """Search for several queries together; return their rankings, and the milliseconds of the batch."""
        if system not in self.opened:
            raise input_error("system", shorten(system), f"one of {', '.join(self.systems)}", "name one of these")
        if self.is_visible:
            texts = [visible(text) for text in texts]
        for text in texts:
            check_query(text)
        if depth < 1:
            raise input_error("depth", str(depth), "1 or more", "give the number of results")
        times: dict[str, float] = {}
        with timed(times, "total"):
            batch = Batch(self, texts, times)
            retrieved = self._retrieve(self._retrieving(system, depth), batch, concurrent)
            rankings = self._combine(system, depth, retrieved, batch)
        return [batch.as_in_run(ranking) for ranking in rankings], times

    def close(self) -> None:
        """End all threads and processes."""
        self._bm25_thread.shutdown()
        for lucene in self.lucene.values():
            lucene.close()

    def kill(self) -> None:
        """End the processes, even while another thread searches."""
        for lucene in self.lucene.values():
            lucene.kill()

    def needed(self, name: str, depth: int) -> int:
        """Return how many results a system must retrieve, or needs from each of its parts, for the first `depth`."""
        system = self.opened[name]
        # The first results must be those of the workflow's runs.
        least = self.depth if system.needs_all else system.candidates()
        return max(depth, least)

    def _retrieving(self, name: str, depth: int) -> dict[str, int]:
        """Return the retrieving systems below a system, with the number of results that each must retrieve."""
        depth = self.needed(name, depth)
        parts = self.opened[name].parts()
        depths = {} if parts else {name: depth}
        for part in parts:
            for leaf, needed in self._retrieving(part, depth).items():
                depths[leaf] = max(depths.get(leaf, 0), needed)
        return depths

    def _retrieve(self, depths: Mapping[str, int], batch: Batch, concurrent: bool) -> dict[str, list[Ranking]]:
        def search(names: Sequence[str]) -> dict[str, list[Ranking]]:
            return {name: self.opened[name].search(batch, depths[name]) for name in names}

        terms = [name for name in depths if self.opened[name].lexical_index()]
        dense = [name for name in depths if name not in terms]
        if not (concurrent and terms and dense):
            return search([*terms, *dense])
        bm25 = self._bm25_thread.submit(search, terms)
        try:
            rankings = search(dense)
        finally:
            by_terms = bm25.result()
        return by_terms | rankings

    def _combine(self, name: str, depth: int, retrieved: Mapping[str, list[Ranking]], batch: Batch) -> list[Ranking]:
        system, needed = self.opened[name], self.needed(name, depth)
        parts = [self._combine(part, needed, retrieved, batch) for part in system.parts()]
        rankings = system.combine(batch, parts, depth) if parts else retrieved[name]
        return [
            ranking._replace(doc_ids=ranking.doc_ids[:depth], scores=ranking.scores[:depth]) for ranking in rankings
        ]


def check_query(text: str) -> None:
    """Refuse a query without words, or with surrogates, which stand for bytes that are not UTF-8."""
    if not text.strip():
        raise input_error("query", "no word", "a query", "write one")
    if wrong := LONE.search(text):
        raise input_error("query", f"{shorten(wrong[0])} in it, no character", "text in UTF-8", "write it again")


def open_searcher(
    results: Experiment,
    systems: Sequence[str],
    *,
    devices: Sequence[str] = ("cpu",),
    threads: int = 1,
    memory_mb: int = HEAP_MB,
    models_later: bool = False,
    once: bool = False,
) -> Searcher:
    """Open what the systems need, and search a few times with each.

    Java starts in its process while this one imports torch and sorts the passages' ids.

    :param devices: torch's names; the vectors are spread over all of them, the models are on the first one.
    :param memory_mb: heap of Java.
    :param models_later: whether to start importing torch, but leave models and warm-up to `Searcher.warm_up`.
    :param once: whether there is a single query, which is answered without torch where possible.
    :raises InputError: for an unknown system, or a file that is missing or has changed.
    """
    needed = open_systems(results, systems)
    sys.setswitchinterval(SWITCH)
    passages_file = Path(results.at(paths.PASSAGES))
    indexes = {index.name: index for system in needed.values() if (index := system.lucene_index())}
    with _naming_missing_files(), ExitStack() as opened, ThreadPoolExecutor(2, "opening") as pool:
        lucene = {name: pool.submit(_open_lucene, index, threads, memory_mb, opened) for name, index in indexes.items()}
        passages = pool.submit(Passages, passages_file)
        neural = any(system.models() for system in needed.values())
        light = _open_light(results, needed) if neural and once and devices == ["cpu"] else None
        if neural and not light:
            importing = ThreadPoolExecutor(1, "importing")
            importing.submit(uncollected()(import_module), NEURAL)
            importing.shutdown(wait=False)
        processes = {name: process.result() for name, process in lucene.items()}

        def open_models() -> Models:
            from cort.online.neural import open_models

            # A core is left for BM25, which runs in parallel.
            return open_models(results, searcher.opened, devices, max(1, threads - bool(indexes)), processes)

        searcher = Searcher(results, systems, processes, lambda: light or open_models(), passages.result())
        opened.callback(searcher.close)
        for name in () if models_later else systems:
            searcher.warm_up(name)
        opened.pop_all()
    return searcher


def _open_light(results: Experiment, needed: Mapping[str, System]) -> Any:
    from cort.online.light import open_light

    return open_light(results, needed)


@contextmanager
def _naming_missing_files() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        missing = str(error.filename or error)
        raise input_error(missing, "no such file", "what the systems need", "run `snakemake` first") from None


def _open_lucene(index: LuceneIndex, threads: int, memory_mb: int, opened: ExitStack) -> LuceneProcess:
    """Open an index; `opened` closes it again if opening fails elsewhere."""
    folder = Path(index.manifest).parent
    process = LuceneProcess(folder, threads, memory_mb)
    opened.callback(process.close)
    if process.form != index.form:
        found, expected = (" ".join(filter(None, form)) for form in (process.form, index.form))
        raise input_error(folder, f"texts of the form {found}", f"the form {expected}", REMEDY)
    return process
