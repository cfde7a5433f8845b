"""Fidelity of a reproduction as an artifact: our value for each published number, and whether claims hold for ours."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from cort.evaluation.curves import Consistency, Depths, saturation
from cort.evaluation.measures import FIRST, Measures
from cort.formats.artifacts import Node, read_json
from cort.reporting.labels import measure_label
from cort.reporting.reproduction.paper import Claim, Comparison, Number, Operand, Quantity
from cort.runtime.errors import shorten

WITHIN, OFF, NOT_RUN, CANNOT = "within", "off", "not run", "cannot be computed"
HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "not computed"
# The measure that determines the rank of the only relevant passage.
RANKED = "RR@1000"
# Known for every run: precision, and the share of unjudged passages, at the top.
PRECISION, UNJUDGED = f"P@{FIRST}", f"unjudged@{FIRST}"
# Decimal numbers are not exact in binary: 0.271 - 0.27 is slightly more than 0.001.
ROUNDING = 1e-9
BATCH_SIZE = re.compile("[1-9][0-9]{0,8}")


@dataclass(frozen=True)
class Counts:
    """How many published numbers are within tolerance, off, not run, and cannot be computed."""

    within: int
    off: int
    not_run: int = field(metadata={"key": "not run"})
    impossible: int = field(metadata={"key": CANNOT})

    @property
    def computed(self) -> int:
        """Numbers with a value of ours."""
        return self.within + self.off

    @property
    def total(self) -> int:
        """All numbers."""
        return self.computed + self.not_run + self.impossible


@dataclass(frozen=True)
class NumberResult:
    """A published number and ours; `within` is the tolerance and `because` its reason."""

    where: str
    row: str
    column: str
    system: str | None
    split: str
    quantity: str
    measure: str
    depth: int | None
    published: float
    ours: float | None
    difference: float | None
    within: float
    because: str
    mark: str
    not_run_because: str | None = field(metadata={"key": "not run because"})
    why: list[str] = field(metadata={"key": "why ours may differ"})


@dataclass(frozen=True)
class ComparisonResult:
    """Two values in words, the second either ours or the paper's, and whether they compare as claimed."""

    first: str
    relation: str
    second: str
    ours: list[float | None]
    by: float
    outcome: str


@dataclass(frozen=True)
class ClaimResult:
    """A claim of a paper, and whether it holds for our values."""

    section: str
    text: str
    note: str
    outcome: str
    comparisons: list[ComparisonResult]


@dataclass(frozen=True)
class PaperResult:
    """All numbers and claims of a paper."""

    name: str
    title: str
    reference: str
    counts: Counts
    numbers: list[NumberResult]
    claims: list[ClaimResult]


@dataclass(frozen=True)
class Reproduction:
    """All papers."""

    papers: list[PaperResult]


@dataclass(frozen=True)
class Latency:
    """Latency of a system in milliseconds by batch size: "1" for a single query, "32" for a batch of 32."""

    system: str
    split: str
    milliseconds: dict[str, float | None]

    def check(self, node: Node) -> None:
        """Refuse invalid batch sizes and negative times."""
        for size, time in self.milliseconds.items():
            if not BATCH_SIZE.fullmatch(size):
                found = f"the batch size {shorten(size)}"
                raise node["milliseconds"][size].complain(found, "a whole number from 1")
            if time is not None:
                node["milliseconds"][size].within(float, 0, sys.maxsize)


@dataclass(frozen=True)
class Results:
    """All our results by (system, split)."""

    measures: Mapping[tuple[str, str], Measures]
    depths: Mapping[tuple[str, str], Depths] = field(default_factory=dict)
    consistency: Mapping[tuple[str, str], Consistency] = field(default_factory=dict)
    latencies: Mapping[tuple[str, str], Latency] = field(default_factory=dict)


def read_latencies(path: str | Path) -> list[Latency]:
    """Read one `Latency`, or the list `latencies` that the stage `latency` wrote."""
    node = read_json(path)
    is_list = "latencies" in node.of(dict)
    latencies: list[Latency] = node["latencies"].read(list[Latency]) if is_list else [node.read(Latency)]
    if len({(latency.system, latency.split) for latency in latencies}) < len(latencies):
        raise node["latencies"].complain("a system and split twice", "each once")
    return latencies


def compare(number: Number, results: Results) -> NumberResult:
    """Look up our value and judge the difference."""
    value = find(number, results)
    ours, reason = (None, value) if isinstance(value, str) else (value, None)
    difference = None if ours is None else ours - number.published
    mark = NOT_RUN
    if reason and number.not_computed:
        mark, reason = CANNOT, number.not_computed
    if difference is not None:
        mark = WITHIN if abs(difference) <= number.within + ROUNDING else OFF
    same = {name: value for name, value in vars(number).items() if name in NumberResult.__annotations__}
    return NumberResult(**same, ours=ours, difference=difference, mark=mark, not_run_because=reason)


def find(number: Quantity, results: Results) -> float | str:
    """Return our value, or the reason why there is none."""
    if number.system is None:
        return "none of our systems corresponds to it"
    place = number.system, number.split
    if number.measure.startswith("latency"):
        latency = results.latencies.get(place)
        batch = number.measure.partition("@")[2] or "1"
        value = None if latency is None else latency.milliseconds.get(batch)
        return "its latency was not measured" if value is None else value
    if number.measure == "consistency":
        return _factor(number, results.consistency.get(place))
    if number.quantity == "saturation" or number.depth is not None:
        return _on_curve(number, results.depths.get(place))
    measures = results.measures.get(place)
    if measures is None:
        return f"no results of {number.system} on {number.split}"
    if number.measure == "rank":
        return _rank(measures)
    value = _means(measures).get(number.measure)
    return f"{number.measure} of {number.system} on {number.split} was not measured" if value is None else value


def _means(measures: Measures) -> Mapping[str, float | None]:
    """Return the means, and what is known about the top results of every run."""
    judged = measures.judged
    if judged is None or not judged.results:
        return measures.mean
    return {PRECISION: judged.mean.get(PRECISION), UNJUDGED: judged.unjudged / judged.results, **measures.mean}


def _rank(measures: Measures) -> float | str:
    """Return the rank of the relevant passage of a split's only query."""
    reciprocal = measures.mean.get(RANKED)
    if measures.queries != 1 or reciprocal is None:
        return f"rank of {measures.system} on {measures.split} was not measured"
    return 1 / reciprocal if reciprocal else f"not among the results of {measures.system} on {measures.split}"


def _factor(number: Quantity, consistency: Consistency | None) -> float | str:
    """Return the consistency factor at a depth."""
    factors = {} if consistency is None else dict(zip(consistency.depths, consistency.consistency, strict=True))
    value = factors.get(number.depth or 0)
    reason = f"no consistency factor of {number.system} on {number.split} at {number.depth}"
    return reason if value is None else value


def _on_curve(number: Quantity, curve: Depths | None) -> float | str:
    """Return the value at a number of candidates, or the saturation point."""
    if curve is None:
        return f"no curve of {number.system} by candidates on {number.split}"
    if number.measure not in curve.measures:
        return f"{number.measure} of {number.system} was not measured by candidates on {number.split}"
    pairs = zip(curve.depths, curve.measures[number.measure], strict=True)
    values = {depth: value for depth, value in pairs if value is not None}
    if number.depth is not None:
        reason = f"the curve of {number.system} on {number.split} has no point at {number.depth} candidates"
        return values.get(number.depth, reason)
    depths = [depth for depth in values if not number.depths or depth in number.depths]
    saturated = saturation(depths, [values[depth] for depth in depths])
    return f"{number.system} on {number.split} does not saturate on its curve" if saturated is None else saturated


def count(numbers: Iterable[NumberResult]) -> Counts:
    """Count the marks."""
    counted = Counter(number.mark for number in numbers)
    return Counts(*(counted[mark] for mark in (WITHIN, OFF, NOT_RUN, CANNOT)))


def judge(claim: Claim, results: Results) -> ClaimResult:
    """Judge a claim: it fails if any comparison fails; otherwise, it is unknown if any comparison lacks a value."""
    comparisons = [_compare_values(comparison, results) for comparison in claim.comparisons]
    outcomes = {comparison.outcome for comparison in comparisons}
    outcome = next(outcome for outcome in (FAILS, UNKNOWN, HOLDS) if outcome in outcomes)
    return ClaimResult(claim.section, claim.text, claim.note, outcome, comparisons)


def _compare_values(comparison: Comparison, results: Results) -> ComparisonResult:
    relation, by, second = comparison.relation, comparison.by, comparison.second
    first = _value(comparison.first, results)
    other, words = (
        (second, "the paper's number") if isinstance(second, float) else (_value(second, results), describe(second))
    )
    outcome = UNKNOWN
    if first is not None and other is not None:
        gap = {"higher": first - other, "lower": other - first, "near": -abs(first - other)}[relation]
        # Without `by`, equal values are neither higher nor lower.
        least = -by if relation == "near" else by or 2 * ROUNDING
        outcome = HOLDS if gap >= least - ROUNDING else FAILS
    return ComparisonResult(describe(comparison.first), relation, words, [first, other], by, outcome)


def _value(operand: Operand, results: Results) -> float | None:
    value, minus = (
        find(operand, results),
        find(replace(operand, system=operand.minus), results) if operand.minus else 0.0,
    )
    return None if isinstance(value, str) or isinstance(minus, str) else value - minus


def describe(operand: Operand) -> str:
    """Describe a value."""
    depth = "" if operand.depth is None else f" at {operand.depth}"
    minus = f" minus that of {operand.minus}" if operand.minus else ""
    return f"{measure_label(operand.measure)}{depth} of {operand.system}{minus} on {operand.split}"
