"""Systems that re-rank the top candidates of another one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from cort.config import paths
from cort.config.entries import Config, listed
from cort.config.systems import Folds, Reranking
from cort.retrieval.fusion import WEIGHT
from cort.systems.base import System
from cort.systems.live import Reason
from cort.systems.mistakes import check_tuning

if TYPE_CHECKING:
    from cort.formats.records import Ranking
    from cort.systems.live import Batch, Case, Rows


class Rerank(System):
    """The top candidates of a system in the order of a re-ranker's scores, or of a mix of these and its own."""

    rule = "rerank"
    batches = False

    Settings = Reranking
    entry: Reranking

    def parts(self) -> list[str]:
        """Name the system of the candidates."""
        return [self.entry.rerank]

    def models(self) -> list[tuple[str, str]]:
        """Name the re-ranker."""
        return [("rerankers", self._reranker)] if self._reranker in self.results.rerankers else []

    def reranker(self) -> str | None:
        """Name the re-ranker."""
        return self.entry.reranker

    @property
    def _reranker(self) -> str:
        return self.entry.reranker or ""

    @property
    def tune(self) -> str | Folds | None:
        """How the weight is tuned."""
        return self.entry.tune

    @property
    def fixed_weight(self) -> float:
        """Weight of the re-ranker's scores, unless it is tuned."""
        return WEIGHT if self.entry.weight is None else self.entry.weight

    def fill(self, entry: Config) -> None:
        """Add depth and weight."""
        if not self.tune:
            entry.setdefault("weight", self.fixed_weight)
        entry.setdefault("depth", self.candidates())

    def check(self) -> Iterator[str]:
        """Check that there is a re-ranker, the depth, the tuning."""
        if self.tune and self.entry.weight is not None:
            found = "found weight beside tune"
            yield f"{self.place}.weight: {found}, expected one of them, as tune chooses the weight; remove one"
        yield from check_tuning(self.tune_place, self.tune, self.results)
        if not self.entry.reranker:
            yield f"{self.place}: found no reranker, expected one of {listed(self.results.rerankers)}; name it"
            return
        if (self.entry.depth or 1) > (most := self.results.depth):
            yield (
                f"{self.place}.depth: found {self.entry.depth}, expected at most {most}, the candidates that are "
                "retrieved (depth); lower it or raise depth"
            )

    def describe(self) -> str:
        """Name system, re-ranker and depth, and the weight unless it is 1."""
        how = f"top {self.candidates()} of {self.entry.rerank} re-ranked by {self.entry.reranker}"
        if self.tune:
            return f"{how}, its weight {self.describe_tuning()}"
        return how if self.fixed_weight == 1 else f"{how}, its weight {self.fixed_weight:g}"

    def inputs(self, split: str) -> dict[str, str | list[str]]:
        """Run of the candidates, scores, and a tuned weight."""
        return {
            "candidates": self.results.run(split, self.entry.rerank),
            "scores": self.results.at(paths.SCORES, reranker=self._reranker, split=split),
            "weights": self.tuned_files(split),
        }

    def options(self, split: str) -> Config:
        """Give depth and weight."""
        return {"depth": self.candidates(), **self.weight(split)}

    def tuning(self) -> Config:
        """Name candidates and scores, and give depth and measure."""
        candidates, reranker = self.entry.rerank, self._reranker
        scores = f"{reranker} (re-ranker)" if reranker == candidates else reranker
        return {"parts": [candidates, scores], "depth": self.candidates(), **super().tuning()}

    def weight(self, split: str) -> Config:
        """Give the weight, or the file of a tuned one."""
        return self.tuned(split) or {"weight": self.fixed_weight}

    def files(self) -> Iterator[str]:
        """Yield the re-ranker, a tuned weight, the token cache of the passages."""
        yield from self.tuned_files()
        if not self.results.is_served("rerankers", self._reranker):
            yield self.results.weights("rerankers", self._reranker)
            yield self.results.tokens("rerankers", self._reranker, "passages")

    @cached_property
    def opened_weight(self) -> float:
        """Weight of the re-ranker's scores; read once if it is tuned."""
        from cort.retrieval.weights import weight_of

        return weight_of(self.fixed_weight, "".join(self.tuned_files()), self.entry.rerank)

    def candidates(self) -> int:
        """Count the candidates that are scored, at most the depth of a run."""
        return min(self.entry.depth or self.results.rerankers[self._reranker].depth, self.results.depth)

    def combine(self, batch: Batch, parts: Sequence[Sequence[Ranking]], depth: int) -> list[Ranking]:
        """Score the candidates of each query."""
        from cort.formats.runs import run_of, top
        from cort.retrieval.rerank import mix, rerank

        searcher, scored, rankings = batch.searcher, self.candidates(), []
        model = searcher.models.rerankers[self._reranker]
        with batch.timed("rerank"):
            for text, candidates in zip(batch.texts, parts[0], strict=True):
                scores = model.score(text, searcher.passages.rows(candidates.doc_ids[:scored]))
                scored_run = top(run_of([batch.as_in_run(candidates)]), scored)
                rankings.append(rerank(candidates, mix(scored_run, scores, scored, self.opened_weight), scored))
        return rankings

    def explain(self, case: Case) -> Reason:
        """Explain the first-stage score, the model's score, and what each adds."""
        from cort.retrieval.pool import normalize

        searcher, reranker, before = case.searcher, self._reranker, case.part(self.entry.rerank)
        doc_ids = before.ranking.doc_ids[: self.candidates()]
        about, reasons = f"{reranker} scores the top {self.candidates()} of {before.name} again", [before.explain()]
        if case.doc_id not in doc_ids:
            return case.reason(f"{about}; this passage is not among them and follows below.", parts=reasons)
        place = doc_ids.index(case.doc_id)
        scores = searcher.models.rerankers[reranker].score(case.text, searcher.passages.rows(doc_ids))
        rank = 1 + int((scores > scores[place]).sum())
        sides = [(before.name, place + 1, before.ranking.scores[: self.candidates()]), (reranker, rank, scores)]
        rows: Rows = [[name, at, float(values[place])] for name, at, values in sides]
        columns = ["by", "rank among these", "score"]
        if self.opened_weight == 1:
            about += ", and its scores replace the former ones."
        else:
            about += "; each adds its weight times its score, both normalized to 0 to 1 among these."
            columns += ["normalized", "weight", "adds"]
            for row, (_, _, values), share in zip(
                rows, sides, (1 - self.opened_weight, self.opened_weight), strict=True
            ):
                normalized = float(normalize(values, "min-max")[0][place])
                row += [normalized, share, share * normalized]
        model = f"{reranker} reads query and passage together: its score has no parts."
        kind = self.results.rerankers[reranker].kind
        reasons.insert(0, Reason(reranker, kind, rank, float(scores[place]), model))
        return case.reason(about, columns=columns, rows=rows, total=self.opened_weight < 1, parts=reasons)
