"""The searcher: any system of a manifest, for one query or a batch, with the time that each part takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from cort.formats.records import Ranking
from cort.formats.runs import strictly_decreasing
from cort.online.manifest import Manifest, System
from cort.online.timing import Stopwatch
from cort.retrieval.bm25 import Parameters, make_grid, read_parameters
from cort.retrieval.fusion import FUSIONS, fuse
from cort.retrieval.graphs import GRAPHS
from cort.retrieval.rerank import rerank
from cort.system.errors import input_error, shorten

if TYPE_CHECKING:
    from cort.online.dense import ExactSearch, GraphSearch, QueryEncoder
    from cort.online.lucene_process import LuceneProcess
    from cort.online.passages import Passages
    from cort.online.reranker import Reranker


class Result(NamedTuple):
    """One document of an answer; ranks begin at 1."""

    doc_id: str
    score: float
    rank: int


@dataclass(frozen=True)
class Answer:
    """What a system found for one query, best first.

    `milliseconds` has the parts that ran (see `timing.PARTS`) and `total`, which is less than their sum where some
    ran side by side.
    """

    system: str
    results: list[Result]
    milliseconds: dict[str, float]


@dataclass(frozen=True)
class Models:
    """What computes: by name of the encoder or re-ranker; graphs by name of the system.

    `storage` is the number format of the passages' vectors.
    """

    encoders: Mapping[str, QueryEncoder]
    storage: Mapping[str, str]
    exact: Mapping[str, ExactSearch]
    graphs: Mapping[str, GraphSearch]
    rerankers: Mapping[str, Reranker]


class Searcher:
    """Systems that are open and warm. Not to be called by several threads at a time."""

    def __init__(
        self,
        manifest: Manifest,
        systems: Sequence[str],
        lucene: LuceneProcess | None,
        models: Models,
        passages: Passages,
    ) -> None:
        """Take what `open_searcher` opened for `systems`."""
        self.manifest, self.systems = manifest, list(systems)
        self.lucene, self.models, self.passages = lucene, models, passages
        self._known = {part for name in systems for part in manifest.within(name)}
        self._parameters = {
            name: _parameters(system)
            for name, system in manifest.systems.items()
            if name in self._known and system["kind"] == "bm25"
        }
        self._beside = ThreadPoolExecutor(1, "beside")

    def search(self, system: str, text: str, depth: int, *, concurrent: bool = True) -> Answer:
        """Search for one query.

        :param depth: results wanted; the first of those of the workflow's run, but for rounding.
        :param concurrent: whether BM25 runs beside the dense ranker, where a system has both.
        :raises InputError: a system that is not open, an empty query.
        """
        rankings, milliseconds = self.search_batch(system, [text], depth, concurrent=concurrent)
        return Answer(system, _results(rankings[0]), milliseconds)

    def search_batch(
        self, system: str, texts: Sequence[str], depth: int, *, concurrent: bool = True
    ) -> tuple[list[Ranking], dict[str, float]]:
        """Search for several queries together: their rankings, and the milliseconds of all together."""
        if system not in self._known:
            raise input_error("system", shorten(system), f"one of {', '.join(self.systems)}", "name one of these")
        if any(not text.strip() for text in texts):
            raise input_error("query", "no word", "a query", "write one")
        if depth < 1:
            raise input_error("depth", str(depth), "1 or more", "give the number of results")
        watch = Stopwatch()
        with watch.part("total"):
            found = self._retrieve(self._leaves(system, depth), texts, watch, concurrent)
            rankings = self._combine(system, depth, found, texts, watch)
        return [one._replace(scores=strictly_decreasing(one.scores)) for one in rankings], watch.milliseconds

    def close(self) -> None:
        """End all threads."""
        self._beside.shutdown()
        if self.lucene is not None:
            self.lucene.close()

    def _leaves(self, name: str, depth: int) -> dict[str, int]:
        """Find the retrieving systems below a system, with the number of results that is needed of each."""
        depth = self._needed(name, depth)
        parts = self.manifest.parts_of(name)
        leaves = {} if parts else {name: depth}
        for part in parts:
            for leaf, needed in self._leaves(part, depth).items():
                leaves[leaf] = max(leaves.get(leaf, 0), needed)
        return leaves

    def _needed(self, name: str, depth: int) -> int:
        """Tell how many results a system has to retrieve, or to have of each of its parts, for the first `depth`."""
        system = self.manifest.systems[name]
        kind = system["kind"]
        if kind == "rerank":
            return max(depth, int(system["depth"]))
        # An approximate search finds others at another depth, and some fusions rank others first: this is the runs'.
        as_in_runs = kind in GRAPHS or (kind in FUSIONS and FUSIONS[kind].needs_all)
        return max(depth, self.manifest.depth) if as_in_runs else depth

    def _retrieve(
        self, leaves: Mapping[str, int], texts: Sequence[str], watch: Stopwatch, concurrent: bool
    ) -> dict[str, list[Ranking]]:
        terms = {name: depth for name, depth in leaves.items() if self.manifest.systems[name]["kind"] == "bm25"}
        dense = {name: depth for name, depth in leaves.items() if name not in terms}
        if concurrent and terms and dense:
            waiting = self._beside.submit(self._by_terms, terms, texts, watch)
            try:
                found = self._by_vectors(dense, texts, watch)
            finally:
                beside = waiting.result()
            return beside | found
        return self._by_terms(terms, texts, watch) | self._by_vectors(dense, texts, watch)

    def _by_terms(self, leaves: Mapping[str, int], texts: Sequence[str], watch: Stopwatch) -> dict[str, list[Ranking]]:
        found: dict[str, list[Ranking]] = {}
        for name, depth in leaves.items():
            if self.lucene is not None:
                with watch.part("bm25"):
                    found[name] = self.lucene.search(texts, self._parameters[name], depth)
        return found

    def _by_vectors(
        self, leaves: Mapping[str, int], texts: Sequence[str], watch: Stopwatch
    ) -> dict[str, list[Ranking]]:
        found = {}
        vectors: dict[str, npt.NDArray[np.float32]] = {}
        for name, depth in leaves.items():
            system = self.manifest.systems[name]
            encoder = system["encoder"]
            if encoder not in vectors:
                model = self.models.encoders[encoder]
                with watch.part("tokenize"):
                    tokens = model.tokenize(texts)
                with watch.part("encode"):
                    vectors[encoder] = model.encode(tokens, self.models.storage[encoder])
            with watch.part("search"):
                if system["kind"] == "exact":
                    found[name] = self.models.exact[encoder].search(vectors[encoder], depth)
                else:
                    found[name] = self.models.graphs[name].search(vectors[encoder], depth)
        return found

    def _combine(
        self,
        name: str,
        depth: int,
        found: Mapping[str, list[Ranking]],
        texts: Sequence[str],
        watch: Stopwatch,
    ) -> list[Ranking]:
        system = self.manifest.systems[name]
        if system["kind"] in FUSIONS:
            needed = self._needed(name, depth)
            parts = [self._combine(part, needed, found, texts, watch) for part in system["parts"]]
            with watch.part("merge"):
                ranked = ([one.doc_ids for one in each] for each in zip(*parts, strict=True))
                return [fuse(system["kind"], "", doc_ids, depth) for doc_ids in ranked]
        if system["kind"] == "rerank":
            scored = int(system["depth"])
            candidates = self._combine(system["candidates"], self._needed(name, depth), found, texts, watch)
            with watch.part("rerank"):
                pairs = zip(texts, candidates, strict=True)
                return [self._rerank(system["reranker"], text, one, scored, depth) for text, one in pairs]
        return [_cut(one, depth) for one in found[name]]

    def _rerank(self, reranker: str, text: str, candidates: Ranking, scored: int, depth: int) -> Ranking:
        model = self.models.rerankers[reranker]
        rows = self.passages.rows(candidates.doc_ids[:scored])
        scores = model.score(model.tokenize(text), rows)
        return _cut(rerank(candidates, scores, scored), depth)


def _cut(ranking: Ranking, depth: int) -> Ranking:
    return Ranking(ranking.query_id, ranking.doc_ids[:depth], ranking.scores[:depth])


def _results(ranking: Ranking) -> list[Result]:
    pairs = zip(ranking.doc_ids, ranking.scores.tolist(), strict=True)
    return [Result(doc_id, score, rank) for rank, (doc_id, score) in enumerate(pairs, start=1)]


def _parameters(system: System) -> Parameters:
    if "parameters" in system:
        return read_parameters(system["parameters"])
    return make_grid([float(system["k1"])], [float(system["b"])])[0]
