"""The searcher: any system of a manifest, for one query or a batch, with the time that each part takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from cort.formats.records import Ranking
from cort.formats.runs import strictly_decreasing
from cort.online.lucene import LuceneProcess
from cort.online.manifest import Manifest, System
from cort.online.models import Models
from cort.online.passages import Passages
from cort.online.timing import timed
from cort.retrieval.bm25 import Parameters, make_grid, read_parameters
from cort.retrieval.fusion import FUSIONS, Settings, fuse
from cort.retrieval.graphs import GRAPHS
from cort.retrieval.rerank import mix, rerank
from cort.retrieval.weights import read_weights, weight_of
from cort.system.errors import input_error, shorten

# Java compiles what runs often, and the first search of any kind reads what later ones find in memory.
WARM_UP = ("warm up",) * 3
# What stands for bytes that are no UTF-8, or is half of a pair.
LONE = re.compile("[\ud800-\udfff]+")


class Result(NamedTuple):
    """One document of an answer; ranks begin at 1."""

    doc_id: str
    score: float
    rank: int


@dataclass(frozen=True)
class Answer:
    """What a system found for one query, best first.

    `milliseconds` has the parts that ran (`timing.PARTS`) and `total`, less than their sum where some ran side by side.
    """

    system: str
    results: list[Result]
    milliseconds: dict[str, float]


class Searcher:
    """Systems that are open, but for the models of some. Not to be called by several threads at a time."""

    def __init__(
        self,
        manifest: Manifest,
        systems: Sequence[str],
        lucene: Mapping[str, LuceneProcess],
        open_models: Callable[[], Models],
        passages: Passages,
    ) -> None:
        """Take what `open_searcher` opened for `systems`; `lucene` has the term-based indexes by name.

        `open_models` is called once, by the first search that needs them.

        By name of the system: `parameters` of BM25, `settings` of fusions, `weights` of re-rankers.
        """
        self.manifest, self.systems = manifest, list(systems)
        self.lucene, self.passages, self._open_models = lucene, passages, open_models
        self._known = manifest.needed(systems)
        bm25 = {name: system for name, system in self._known.items() if system["kind"] == "bm25"}
        self.parameters = {name: _parameters(system) for name, system in bm25.items()}
        merged = {name: system for name, system in self._known.items() if system["kind"] in FUSIONS}
        self.settings = {name: _settings(system) for name, system in merged.items()}
        reranked = {name: system for name, system in self._known.items() if system["kind"] == "rerank"}
        self.weights = {
            name: weight_of(one.get("weight", 1.0), one.get("tuned"), one["candidates"])
            for name, one in reranked.items()
        }
        self._beside = ThreadPoolExecutor(1, "beside")

    @cached_property
    def models(self) -> Models:
        """What computes, open from now on.

        :raises InputError: a file that is missing or not what it was.
        """
        return self._open_models()

    def warm_up(self, system: str) -> None:
        """Search a few times with a system, which opens what it needs of models."""
        for text in WARM_UP:
            self.search(system, text, self.manifest.depth)

    def search(self, system: str, text: str, depth: int, *, concurrent: bool = True) -> Answer:
        """Search for one query.

        :param depth: results wanted; the first of those of the workflow's run, but for rounding.
        :param concurrent: whether BM25 runs beside the dense ranker, where a system has both.
        :raises InputError: a system that is not open, an empty query.
        """
        [ranking], milliseconds = self.search_batch(system, [text], depth, concurrent=concurrent)
        found = enumerate(zip(ranking.doc_ids, ranking.scores.tolist(), strict=True), start=1)
        return Answer(system, [Result(doc_id, score, rank) for rank, (doc_id, score) in found], milliseconds)

    def search_batch(
        self, system: str, texts: Sequence[str], depth: int, *, concurrent: bool = True
    ) -> tuple[list[Ranking], dict[str, float]]:
        """Search for several queries together: their rankings, and the milliseconds of all together."""
        if system not in self._known:
            raise input_error("system", shorten(system), f"one of {', '.join(self.systems)}", "name one of these")
        for text in texts:
            check_query(text)
        if depth < 1:
            raise input_error("depth", str(depth), "1 or more", "give the number of results")
        times: dict[str, float] = {}
        with timed(times, "total"):
            found = self._retrieve(self._leaves(system, depth), texts, times, concurrent)
            rankings = self._combine(system, depth, found, texts, times)
        return [one._replace(scores=strictly_decreasing(one.scores)) for one in rankings], times

    def close(self) -> None:
        """End all threads."""
        self._beside.shutdown()
        for lucene in self.lucene.values():
            lucene.close()

    def kill(self) -> None:
        """End the processes, also while another thread searches."""
        for lucene in self.lucene.values():
            lucene.kill()

    def _leaves(self, name: str, depth: int) -> dict[str, int]:
        """Find the retrieving systems below a system, with the number of results that is needed of each."""
        depth = self.needed(name, depth)
        parts = self.manifest.parts_of(name)
        leaves = {} if parts else {name: depth}
        for part in parts:
            for leaf, needed in self._leaves(part, depth).items():
                leaves[leaf] = max(leaves.get(leaf, 0), needed)
        return leaves

    def needed(self, name: str, depth: int) -> int:
        """Tell how many results a system has to retrieve, or to have of each of its parts, for the first `depth`."""
        system = self._known[name]
        kind = system["kind"]
        if kind == "rerank":
            return max(depth, int(system["depth"]))
        # An approximate search finds others at another depth, and some fusions rank others first: this is the runs'.
        as_in_runs = kind in GRAPHS or (kind in FUSIONS and FUSIONS[kind].needs_all)
        return max(depth, self.manifest.depth) if as_in_runs else depth

    def _retrieve(
        self, leaves: Mapping[str, int], texts: Sequence[str], times: dict[str, float], concurrent: bool
    ) -> dict[str, list[Ranking]]:
        terms = {name: depth for name, depth in leaves.items() if name in self.parameters}
        dense = {name: depth for name, depth in leaves.items() if name not in terms}
        if not (concurrent and terms and dense):
            return self._by_terms(terms, texts, times) | self._by_vectors(dense, texts, times)
        waiting = self._beside.submit(self._by_terms, terms, texts, times)
        try:
            found = self._by_vectors(dense, texts, times)
        finally:
            beside = waiting.result()
        return beside | found

    def _by_terms(
        self, leaves: Mapping[str, int], texts: Sequence[str], times: dict[str, float]
    ) -> dict[str, list[Ranking]]:
        found: dict[str, list[Ranking]] = {}
        for name, depth in leaves.items():
            lucene = self.lucene[self._known[name]["lexical"]]
            with timed(times, "bm25"):
                found[name] = lucene.search(texts, self.parameters[name], depth)
        return found

    def _by_vectors(
        self, leaves: Mapping[str, int], texts: Sequence[str], times: dict[str, float]
    ) -> dict[str, list[Ranking]]:
        found = {}
        vectors: dict[int, Any] = {}
        for name, depth in leaves.items():
            encoder, opened = self.models.retriever(name, self._known[name])
            if id(encoder) not in vectors:
                with timed(times, "tokenize"):
                    tokens = encoder.tokenize(texts)
                with timed(times, "encode"):
                    vectors[id(encoder)] = encoder.encode(tokens)
            # Vectors are of the kind that is searched, as both are of one encoder.
            search: Callable[[Any, int], list[Ranking]] = opened.search
            with timed(times, "search"):
                found[name] = search(vectors[id(encoder)], depth)
        return found

    def _combine(
        self, name: str, depth: int, found: Mapping[str, list[Ranking]], texts: Sequence[str], times: dict[str, float]
    ) -> list[Ranking]:
        system, needed = self._known[name], self.needed(name, depth)
        parts = [self._combine(part, needed, found, texts, times) for part in self.manifest.parts_of(name)]
        if system["kind"] in FUSIONS:
            with timed(times, "merge"):
                ranked = ([_as_in_run(one) for one in each] for each in zip(*parts, strict=True))
                return [fuse(system["kind"], "", each, depth, self.settings[name]) for each in ranked]
        if system["kind"] == "rerank":
            model, scored = self.models.rerankers[system["reranker"]], int(system["depth"])
            rankings = []
            with timed(times, "rerank"):
                for text, candidates in zip(texts, parts[0], strict=True):
                    scores = model.score(text, self.passages.rows(candidates.doc_ids[:scored]))
                    mixed = mix(_as_in_run(candidates), scores, scored, self.weights[name])
                    rankings.append(rerank(candidates, mixed, scored))
        else:
            rankings = found[name]
        return [Ranking(one.query_id, one.doc_ids[:depth], one.scores[:depth]) for one in rankings]


def _as_in_run(ranking: Ranking) -> Ranking:
    """Give a ranking the scores that a run file would have."""
    return ranking._replace(scores=strictly_decreasing(ranking.scores))


def check_query(text: str) -> None:
    """Refuse a query without a word, and one that is no text: half a character of UTF-16, bytes that are no UTF-8."""
    if not text.strip():
        raise input_error("query", "no word", "a query", "write one")
    if wrong := LONE.search(text):
        raise input_error("query", f"{shorten(wrong[0])} in it, no character", "text in UTF-8", "write it anew")


def _parameters(system: System) -> Parameters:
    if "parameters" in system:
        return read_parameters(system["parameters"])
    return make_grid([float(system["k1"])], [float(system["b"])])[0]


def _settings(system: System) -> Settings:
    weights = read_weights(system["tuned"], system["parts"]) if "tuned" in system else system.get("weights", ())
    default = Settings()
    return Settings(system.get("k", default.k), system.get("normalization", default.normalization), tuple(weights))
