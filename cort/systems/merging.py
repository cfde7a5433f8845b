"""Systems that merge the rankings of others: interleaving and other methods of fusion."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, TypeAlias

from pydantic import Field

from cort.config.entries import Config
from cort.config.systems import Folds, Merged
from cort.retrieval.fusion import FUSIONS, Interleaving, fuse
from cort.runtime.sections import FIRST_FITTING, UNIQUE, Names, Section, Several, Text, plain
from cort.systems.base import System
from cort.systems.mistakes import check_tuning

if TYPE_CHECKING:
    from cort.formats.records import Ranking
    from cort.retrieval.pool import FusionSettings
    from cort.systems.live import Batch, Case, Reason, Rows

# A sentence about a method, additional columns of the table of parts, and their cells per part.
Explanation: TypeAlias = "tuple[str, list[str], Rows]"


if TYPE_CHECKING:
    AnyFusion: TypeAlias = Merged
else:
    AnyFusion = Annotated[reduce(or_, (fusion.section for fusion in FUSIONS.values())), FIRST_FITTING]


def _by_turns(_: FusionSettings, parts: Sequence[Case]) -> Explanation:
    about = "First come the first results of the parts, in their order, then the second ones; the score is 1 / rank."
    return about, [], [[] for _ in parts]


def _by_ranks(settings: FusionSettings, parts: Sequence[Case]) -> Explanation:
    ranks = [part.place()[0] for part in parts]
    rows: Rows = [[1 / (settings.k + rank) if rank else 0.0] for rank in ranks]
    return f"Each part adds 1 / ({settings.k:g} + rank).", ["adds"], rows


def _by_scores(settings: FusionSettings, parts: Sequence[Case]) -> Explanation:
    from cort.retrieval.pool import normalize

    weights = settings.weights or (1 / len(parts),) * len(parts)
    rows: Rows = []
    for weight, part, from_zero in zip(weights, parts, settings.from_zero, strict=True):
        scores = part.ranking.scores
        scores, missing = normalize(scores, settings.normalization, from_zero and len(scores) < settings.depth)
        rank = part.place()[0]
        normalized = float(scores[rank - 1]) if rank else missing
        rows.append([normalized, float(weight), float(weight) * normalized])
    about = f"Each part adds its weight times its normalized score ({settings.normalization})."
    return about, ["normalized", "weight", "adds"], rows


#: explains each method of `FUSIONS`
EXPLANATIONS: Mapping[str, Callable[[FusionSettings, Sequence[Case]], Explanation]] = {
    "interleave": _by_turns,
    "rrf": _by_ranks,
    "linear": _by_scores,
}


class Merging(System):
    """Rankings merged by a method, whose settings are options of the stage by their names."""

    rule = "fuse"
    merges = True
    any_depth = True

    @property
    @abstractmethod
    def merged(self) -> Merged:
        """The systems, the method and its settings."""

    @cached_property
    def fusion(self) -> Config:
        """The same by their names."""
        return plain(self.merged)

    @property
    def method(self) -> str:
        """Name the method."""
        return str(self.fusion["method"])

    def parts(self) -> list[str]:
        """Name the merged systems."""
        return list(self.fusion["systems"])

    def given_files(self) -> list[tuple[str, str]]:
        """Return the file of weights that another experiment tuned."""
        weights = self.fusion.get("weights")
        return [(f"{self.place}.fuse.weights", weights)] if isinstance(weights, str) else []

    def tuned_files(self, split: str = "") -> list[str]:
        """Name the file of tuned weights, which may be that of another experiment."""
        return [file for _, file in self.given_files()] or super().tuned_files(split)

    def fits_engines(self) -> bool:
        """Tell whether engines have the method: reciprocal ranks, or min-max scores and weights."""
        return self.method == "rrf" or (self.method == "linear" and self.fusion["normalization"] == "min-max")

    @property
    def tune(self) -> str | Folds | None:
        """How weights are tuned."""
        tune: str | Folds | None = getattr(self.merged, "tune", None)
        return tune

    @property
    def tune_place(self) -> str:
        """Path of this key in the config."""
        return f"{self.place}.fuse.tune"

    def check(self) -> Iterator[str]:
        """Check the names of method and normalization, and that weights fit."""
        place, fusion, parts = f"{self.place}.fuse", self.fusion, len(self.parts())
        weights = None if self.given_files() else fusion.get("weights")
        if weights is not None and len(weights) != parts:
            yield f"{place}.weights: found {len(weights)} weights, expected {parts}, one per system; add or remove some"
        elif weights is not None and not any(weights):
            yield f"{place}.weights: found 0 alone, expected one above 0; raise one"
        if {"weights", "tune"} <= fusion.keys():
            found = "found weights beside tune"
            yield f"{place}.weights: {found}, expected one of them, as tune chooses the weights; remove one"
        yield from check_tuning(self.tune_place, self.tune, self.results)

    def describe(self) -> str:
        """Name the systems, the method and its settings."""
        fusion, method, keys = self.fusion, self.method, FUSIONS[self.method].settings
        if "k" in keys:
            method = f"{method}, k = {fusion['k']}"
        elif "weights" in keys:
            method = f"{method} combination of {fusion['normalization']} scores, {self._describe_weights()}"
        return f"{' and '.join(self.parts())} merged by {method}"

    def _describe_weights(self) -> str:
        if self.tune:
            return f"weights {self.describe_tuning()}"
        for _, file in self.given_files():
            return f"weights of {file}"
        if "weights" in self.fusion:
            return f"weights {', '.join(f'{weight:g}' for weight in self.fusion['weights'])}"
        return "equal weights"

    def inputs(self, split: str) -> dict[str, str | list[str]]:
        """Name the runs of the systems, in order, and tuned weights."""
        runs = [self.results.run(split, part) for part in self.parts()]
        return {"runs": runs, "weights": self.tuned_files(split)}

    def _own(self) -> Config:
        """Select the method and its settings, without what is tuned."""
        left_out = ("systems", "tune", *(["weights"] if self.given_files() else []))
        return {key: value for key, value in self.fusion.items() if key not in left_out}

    def options(self, split: str) -> Config:
        """Give the method and its settings."""
        return self._own() | self.tuned(split) | self.term_based()

    def term_based(self) -> Config:
        """Name the systems whose scores begin at 0, where scores are added."""
        is_added = "normalization" in FUSIONS[self.method].settings
        return {"term_based": [*filter(self.results.is_term_based, self.parts())]} if is_added else {}

    def tuning(self) -> Config:
        """Name the systems, and give normalization, depth and measure."""
        own = {"normalization": self.fusion["normalization"], "depth": self.results.depth}
        return {"parts": self.parts(), **own, **self.term_based(), **super().tuning()}

    def files(self) -> Iterator[str]:
        """Yield tuned weights."""
        yield from self.tuned_files()

    @property
    def needs_all(self) -> bool:
        """Tell whether the method needs all scores."""
        return FUSIONS[self.method].needs_all

    @cached_property
    def settings(self) -> FusionSettings:
        """Settings of the method, with weights that are tuned, given, or equal."""
        from cort.retrieval.pool import FusionSettings
        from cort.retrieval.weights import read_weights

        given = {key: value for key, value in self._own().items() if key != "method"}
        for file in self.tuned_files():
            given["weights"] = tuple(read_weights(file, self.parts()))
        from_zero = tuple(map(self.results.is_term_based, self.parts()))
        return FusionSettings(**given, from_zero=from_zero, depth=self.results.depth)

    def combine(self, batch: Batch, parts: Sequence[Sequence[Ranking]], depth: int) -> list[Ranking]:
        """Merge the rankings of each query."""
        from cort.formats.runs import run_of

        with batch.timed("merge"):
            runs = [run_of([batch.as_in_run(ranking) for ranking in rankings]) for rankings in parts]
            return list(fuse(self.method, runs, depth, self.settings))

    def explain(self, case: Case) -> Reason:
        """Explain the ranks in the parts, and what each adds."""
        if (explanation := EXPLANATIONS.get(self.method)) is None:
            return super().explain(case)
        parts = [case.part(name) for name in self.parts()]
        about, columns, cells = explanation(self.settings, parts)
        rows: Rows = [[part.name, *part.place(), *more] for part, more in zip(parts, cells, strict=True)]
        reasons = [part.explain() for part in parts]
        columns = ["part", "rank", "score", *columns]
        return case.reason(about, columns=columns, rows=rows, total="adds" in columns, parts=reasons)


class Fuse(Merging):
    """Rankings merged by a chosen method."""

    class Settings(Section):
        """Keys of this kind."""

        fuse: AnyFusion
        """Systems whose rankings are merged by a chosen method."""

    entry: Settings

    @property
    def merged(self) -> Merged:
        """What the entry says."""
        return self.entry.fuse


class Interleave(Merging):
    """Rankings merged position by position, the first-named first (CoRT, section 3.4): `fuse` in fewer words.

    The config keeps the words, because messages name the keys that somebody wrote.
    """

    class Settings(Section):
        """Keys of this kind."""

        interleave: Annotated[Several[Text], Names("systems"), UNIQUE] = Field(min_length=2)
        """Systems whose rankings are merged position by position, the first-named first."""

    entry: Settings

    @property
    def merged(self) -> Merged:
        """The same in the words of `fuse`."""
        return Interleaving(systems=self.entry.interleave)

    def describe(self) -> str:
        """Name the systems."""
        return f"{' and '.join(self.parts())} interleaved"
