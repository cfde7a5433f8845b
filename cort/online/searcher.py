"""The searcher: any system of a manifest, for one query or a batch, with the time of each part."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from cort.formats.records import Ranking
from cort.formats.runs import strictly_decreasing
from cort.online.lucene import LuceneProcess
from cort.online.manifest import KINDS, REMEDY, LexicalIndex, Manifest, System, of_family
from cort.online.passages import Passages
from cort.online.timing import timed
from cort.retrieval.bm25 import Parameters, make_grid, read_parameters
from cort.retrieval.fusion import Settings, fuse
from cort.retrieval.options import HEAP_MB
from cort.retrieval.rerank import mix, rerank
from cort.retrieval.weights import read_weights, weight_of
from cort.system.checksums import verify
from cort.system.errors import input_error, shorten
from cort.system.imports import uncollected

if TYPE_CHECKING:
    from cort.online.neural import Models

# Java compiles what runs often, and the first search of each kind reads what later ones find in memory.
WARM_UP = ("warm up",) * 3
# What stands for bytes that are not UTF-8, or is half of a surrogate pair.
LONE = re.compile("[\ud800-\udfff]+")
# Seconds after which a waiting thread gets Python's lock: the one that receives BM25's answer must not wait longer.
SWITCH = 0.0005
#: opens models; importing it takes longer than opening them
NEURAL = "cort.online.neural"


class Result(NamedTuple):
    """One document of an answer; ranks begin at 1."""

    doc_id: str
    score: float
    rank: int


@dataclass(frozen=True)
class Answer:
    """The results of a system for one query, best first.

    `milliseconds` has the parts that ran (`timing.PARTS`) and `total`, less than their sum where some ran in parallel.
    """

    system: str
    results: list[Result]
    milliseconds: dict[str, float]


class Searcher:
    """Open systems; their models are opened when first needed. Not thread-safe."""

    def __init__(
        self,
        manifest: Manifest,
        systems: Sequence[str],
        lucene: Mapping[str, LuceneProcess],
        open_models: Callable[[], Models],
        passages: Passages,
    ) -> None:
        """Take what `open_searcher` opened for `systems`; `lucene` has the term-based indexes by name.

        By name of the system: `parameters` of BM25, `settings` of fusions, `weights` of re-rankers.
        """
        self.manifest, self.systems = manifest, list(systems)
        self.lucene, self.passages, self._open_models = lucene, passages, open_models
        needed = self._needed = manifest.needed(systems)
        self.parameters = {name: _parameters(system) for name, system in of_family(needed, "terms").items()}
        self.settings = {name: _settings(system) for name, system in of_family(needed, "fusion").items()}
        self.weights = {
            name: weight_of(system.get("weight", 1.0), system.get("tuned"), system["candidates"])
            for name, system in of_family(needed, "rerank").items()
        }
        self._bm25_thread = ThreadPoolExecutor(1, "bm25")

    @cached_property
    def models(self) -> Models:
        """The models, opened when they are first needed.

        :raises InputError: if a file is missing or has changed.
        """
        return self._open_models()

    def warm_up(self, system: str) -> None:
        """Search a few times with a system, which opens the models it needs."""
        for text in WARM_UP:
            self.search(system, text, self.manifest.depth)

    def search(self, system: str, text: str, depth: int, *, concurrent: bool = True) -> Answer:
        """Search for one query.

        :param depth: number of results; up to rounding, they are the first ones of the workflow's run.
        :param concurrent: whether BM25 and the dense ranker run in parallel, where a system has both.
        :raises InputError: for a system that is not open, or an empty query.
        """
        [ranking], milliseconds = self.search_batch(system, [text], depth, concurrent=concurrent)
        ranked = enumerate(zip(ranking.doc_ids, ranking.scores.tolist(), strict=True), start=1)
        return Answer(system, [Result(doc_id, score, rank) for rank, (doc_id, score) in ranked], milliseconds)

    def search_batch(
        self, system: str, texts: Sequence[str], depth: int, *, concurrent: bool = True
    ) -> tuple[list[Ranking], dict[str, float]]:
        """Search for several queries together; return their rankings, and the milliseconds of the batch."""
        if system not in self._needed:
            raise input_error("system", shorten(system), f"one of {', '.join(self.systems)}", "name one of these")
        for text in texts:
            check_query(text)
        if depth < 1:
            raise input_error("depth", str(depth), "1 or more", "give the number of results")
        times: dict[str, float] = {}
        with timed(times, "total"):
            retrieved = self._retrieve(self._retrieving(system, depth), texts, times, concurrent)
            rankings = self._combine(system, depth, retrieved, texts, times)
        return [_as_in_run(ranking) for ranking in rankings], times

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
        system = self._needed[name]
        if KINDS[system["kind"]].needs_all:
            # The first results must be those of the workflow's runs.
            return max(depth, self.manifest.depth)
        # Of systems, only re-rankers have a depth.
        return max(depth, int(system.get("depth", 0)))

    def _retrieving(self, name: str, depth: int) -> dict[str, int]:
        """Return the retrieving systems below a system, with the number of results that each must retrieve."""
        depth = self.needed(name, depth)
        parts = self.manifest.parts_of(name)
        depths = {} if parts else {name: depth}
        for part in parts:
            for leaf, needed in self._retrieving(part, depth).items():
                depths[leaf] = max(depths.get(leaf, 0), needed)
        return depths

    def _retrieve(
        self, depths: Mapping[str, int], texts: Sequence[str], times: dict[str, float], concurrent: bool
    ) -> dict[str, list[Ranking]]:
        vectors: dict[int, Any] = {}

        def search(names: Sequence[str]) -> dict[str, list[Ranking]]:
            return {name: self._search(name, depths[name], texts, vectors, times) for name in names}

        terms = [name for name in depths if name in self.parameters]
        dense = [name for name in depths if name not in self.parameters]
        if not (concurrent and terms and dense):
            return search([*terms, *dense])
        bm25 = self._bm25_thread.submit(search, terms)
        try:
            rankings = search(dense)
        finally:
            by_terms = bm25.result()
        return by_terms | rankings

    def _search(
        self, name: str, depth: int, texts: Sequence[str], vectors: dict[int, Any], times: dict[str, float]
    ) -> list[Ranking]:
        """Search with a system that retrieves; `vectors` has those of the queries by id of their encoder."""
        if name in self.parameters:
            lucene = self.lucene[self._needed[name]["lexical"]]
            with timed(times, "bm25"):
                return lucene.search(texts, self.parameters[name], depth)
        encoder, index = self.models.retrievers[name]
        if id(encoder) not in vectors:
            with timed(times, "tokenize"):
                tokens = encoder.tokenize(texts)
            with timed(times, "encode"):
                vectors[id(encoder)] = encoder.encode(tokens)
        with timed(times, "search"):
            return index.search(vectors[id(encoder)], depth)

    def _combine(
        self,
        name: str,
        depth: int,
        retrieved: Mapping[str, list[Ranking]],
        texts: Sequence[str],
        times: dict[str, float],
    ) -> list[Ranking]:
        system, needed = self._needed[name], self.needed(name, depth)
        parts = [self._combine(part, needed, retrieved, texts, times) for part in self.manifest.parts_of(name)]
        if name in self.settings:
            with timed(times, "merge"):
                queries = ([_as_in_run(ranking) for ranking in rankings] for rankings in zip(*parts, strict=True))
                return [fuse(system["kind"], "", rankings, depth, self.settings[name]) for rankings in queries]
        if name in self.weights:
            model, scored = self.models.rerankers[system["reranker"]], int(system["depth"])
            rankings = []
            with timed(times, "rerank"):
                for text, candidates in zip(texts, parts[0], strict=True):
                    scores = model.score(text, self.passages.rows(candidates.doc_ids[:scored]))
                    mixed = mix(_as_in_run(candidates), scores, scored, self.weights[name])
                    rankings.append(rerank(candidates, mixed, scored))
        else:
            rankings = retrieved[name]
        return [Ranking(one.query_id, one.doc_ids[:depth], one.scores[:depth]) for one in rankings]


def _as_in_run(ranking: Ranking) -> Ranking:
    """Give a ranking the scores that a run file would have."""
    return ranking._replace(scores=strictly_decreasing(ranking.scores))


def check_query(text: str) -> None:
    """Refuse a query without a word, and one with surrogates: half a UTF-16 character, or bytes that are not UTF-8."""
    if not text.strip():
        raise input_error("query", "no word", "a query", "write one")
    if wrong := LONE.search(text):
        raise input_error("query", f"{shorten(wrong[0])} in it, no character", "text in UTF-8", "write it again")


def _parameters(system: System) -> Parameters:
    if "parameters" in system:
        return read_parameters(system["parameters"])
    return make_grid([float(system["k1"])], [float(system["b"])])[0]


def _settings(system: System) -> Settings:
    weights = read_weights(system["tuned"], system["parts"]) if "tuned" in system else system.get("weights", ())
    given = {key: system[key] for key in ("k", "normalization") if key in system}
    return Settings(**given, weights=tuple(weights))


def open_searcher(
    manifest: Manifest,
    systems: Sequence[str],
    *,
    devices: Sequence[str] = ("cpu",),
    threads: int = 1,
    memory_mb: int = HEAP_MB,
    models_later: bool = False,
) -> Searcher:
    """Open what the systems need, and search a few times with each.

    Java starts in its process while this one imports torch and sorts the passages' ids.

    :param devices: torch's names; the vectors are spread over all of them, the models are on the first one.
    :param memory_mb: heap of Java.
    :param models_later: whether to start importing torch, but leave models and warm-up to `Searcher.warm_up`.
    :raises InputError: for an unknown system, or a file that is missing or has changed.
    """
    manifest.check_names(systems)
    sys.setswitchinterval(SWITCH)
    needed = manifest.needed(systems)
    verify(manifest.opened(needed))
    by_terms = of_family(needed, "terms")
    # A core is left for BM25, which runs in parallel.
    open_models = partial(_open_models, manifest, needed, devices, max(1, threads - bool(by_terms)))
    with _naming_missing_files(), ExitStack() as opened, ThreadPoolExecutor(2, "opening") as pool:
        lucene = {
            name: pool.submit(_open_lucene, manifest.lexical[name], threads, memory_mb, opened)
            for name in dict.fromkeys(system["lexical"] for system in by_terms.values())
        }
        passages = pool.submit(Passages, manifest.passages)
        if of_family(needed, "vectors", "tokens", "rerank"):
            importing = ThreadPoolExecutor(1, "importing")
            importing.submit(_import_neural)
            importing.shutdown(wait=False)
        processes = {name: process.result() for name, process in lucene.items()}
        searcher = Searcher(manifest, systems, processes, open_models, passages.result())
        opened.callback(searcher.close)
        for name in () if models_later else systems:
            searcher.warm_up(name)
        opened.pop_all()
    return searcher


def _import_neural() -> None:
    with uncollected():
        import_module(NEURAL)


@contextmanager
def _naming_missing_files() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        missing = str(error.filename or error)
        raise input_error(missing, "no such file", "what the manifest names", "run `snakemake` first") from None


def _open_models(manifest: Manifest, needed: Mapping[str, System], devices: Sequence[str], threads: int) -> Models:
    from cort.online.neural import open_models

    with _naming_missing_files():
        return open_models(manifest, needed, devices, threads)


def _open_lucene(named: LexicalIndex, threads: int, memory_mb: int, opened: ExitStack) -> LuceneProcess:
    """Open an index; `opened` closes it again if something else is wrong."""
    process = LuceneProcess(named.index, threads, memory_mb)
    opened.callback(process.close)
    if process.form != named.cleaning:
        expected = f"the form {named.cleaning}"
        raise input_error(named.index, f"texts of the form {process.form}", expected, REMEDY)
    return process
