"""What became of published numbers, as an artifact: ours, the difference, and if it is within the tolerance.

And what became of the sentences that compare values: whether they hold of ours.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from cort.evaluation.depths import Consistency, Depths, saturation
from cort.evaluation.judged import FIRST
from cort.evaluation.measures import Measures
from cort.formats.artifacts import Node, read_json
from cort.reporting.labels import measure_label
from cort.reporting.reproduction.claims import Claim, Comparison, Operand, Quantity
from cort.reporting.reproduction.paper import Number
from cort.system.errors import shorten

WITHIN, OFF, NOT_RUN, CANNOT = "within", "off", "not run", "cannot be computed"
HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "not computed"
# Ranks are looked for so far.
RANKED = "RR@1000"
# Measured of every run: precision, and the share of the first results that is not judged.
PRECISION, UNJUDGED = f"P@{FIRST}", f"unjudged@{FIRST}"
# Decimal numbers are not exact in binary: .271 - .27 is a little more than .001.
ROUNDING = 1e-9
BATCH_SIZE = re.compile("[1-9][0-9]{0,8}")


@dataclass(frozen=True)
class Counts:
    """How many published numbers are reproduced, are not, were not run, and cannot be computed."""

    within: int
    off: int
    not_run: int = field(metadata={"key": "not run"})
    impossible: int = field(metadata={"key": CANNOT})

    @property
    def computed(self) -> int:
        """How many have a value of ours."""
        return self.within + self.off

    @property
    def total(self) -> int:
        """How many there are."""
        return self.computed + self.not_run + self.impossible


@dataclass(frozen=True)
class NumberResult:
    """One published number and ours; `within` is the tolerance and `because` its reason."""

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
    """Two values in words, both of ours or the second one the paper's, and whether they compare as claimed."""

    first: str
    relation: str
    second: str
    ours: list[float | None]
    by: float
    outcome: str


@dataclass(frozen=True)
class ClaimResult:
    """A sentence of a paper, and what became of it."""

    section: str
    text: str
    note: str
    outcome: str
    comparisons: list[ComparisonResult]


@dataclass(frozen=True)
class PaperResult:
    """All numbers of a paper, and its sentences."""

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
    """Milliseconds of a system by the number of queries in a batch: "1" of a single query, "32" of a batch of 32."""

    system: str
    split: str
    milliseconds: dict[str, float | None]

    def check(self, node: Node) -> None:
        """Refuse batch sizes that are none, and times below 0."""
        for size, time in self.milliseconds.items():
            if not BATCH_SIZE.fullmatch(size):
                found = f"the batch size {shorten(size)}"
                raise node["milliseconds"][size].complain(found, "a whole number from 1")
            if time is not None:
                node["milliseconds"][size].within(float, 0, sys.maxsize)


@dataclass(frozen=True)
class Results:
    """All of ours, each by (system, split)."""

    measures: Mapping[tuple[str, str], Measures]
    depths: Mapping[tuple[str, str], Depths] = field(default_factory=dict)
    consistency: Mapping[tuple[str, str], Consistency] = field(default_factory=dict)
    latencies: Mapping[tuple[str, str], Latency] = field(default_factory=dict)


def read_latencies(path: str | Path) -> list[Latency]:
    """Read a `Latency`, or what the stage `latency` wrote, which has a list of these as `latencies`."""
    node = read_json(path)
    several = "latencies" in node.of(dict)
    found: list[Latency] = node["latencies"].read(list[Latency]) if several else [node.read(Latency)]
    if len({(one.system, one.split) for one in found}) < len(found):
        raise node["latencies"].complain("a system and split twice", "each once")
    return found


def compare(number: Number, results: Results) -> NumberResult:
    """Find ours and judge the difference."""
    found = find(number, results)
    ours, reason = (None, found) if isinstance(found, str) else (found, None)
    difference = None if ours is None else ours - number.published
    mark = NOT_RUN
    if reason and number.not_computed:
        mark, reason = CANNOT, number.not_computed
    if difference is not None:
        mark = WITHIN if abs(difference) <= number.within + ROUNDING else OFF
    names = {one.name for one in fields(Number)} & {one.name for one in fields(NumberResult)}
    same = {name: getattr(number, name) for name in names}
    return NumberResult(**same, ours=ours, difference=difference, mark=mark, not_run_because=reason)


def find(number: Quantity, results: Results) -> float | str:
    """Our value, or the reason why there is none."""
    if number.system is None:
        return "no system of ours stands for it"
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
    found = results.measures.get(place)
    if found is None:
        return f"no results of {number.system} on {number.split}"
    if number.measure == "rank":
        return _rank(found)
    value = _means(found).get(number.measure)
    return f"{number.measure} of {number.system} on {number.split} was not measured" if value is None else value


def _means(found: Measures) -> Mapping[str, float | None]:
    """Means of the measures that were asked for, and what is known of the first results of every run."""
    judged = found.judged
    if judged is None or not judged.results:
        return found.mean
    return {PRECISION: judged.mean.get(PRECISION), UNJUDGED: judged.unjudged / judged.results, **found.mean}


def _rank(found: Measures) -> float | str:
    """Rank of the relevant passage of the only query of a split."""
    reciprocal = found.mean.get(RANKED)
    if found.queries != 1 or reciprocal is None:
        return f"rank of {found.system} on {found.split} was not measured"
    return 1 / reciprocal if reciprocal else f"not among the results of {found.system} on {found.split}"


def _factor(number: Quantity, found: Consistency | None) -> float | str:
    """Consistency factor at a depth."""
    factors = {} if found is None else dict(zip(found.depths, found.consistency, strict=True))
    value = factors.get(number.depth or 0)
    none = f"no consistency factor of {number.system} on {number.split} at {number.depth}"
    return none if value is None else value


def _on_curve(number: Quantity, curve: Depths | None) -> float | str:
    """Value or saturation of a re-ranked system by the number of its candidates."""
    if curve is None:
        return f"no curve of {number.system} by candidates on {number.split}"
    if number.measure not in curve.measures:
        return f"{number.measure} of {number.system} was not measured by candidates on {number.split}"
    pairs = zip(curve.depths, curve.measures[number.measure], strict=True)
    values = {depth: value for depth, value in pairs if value is not None}
    if number.depth is not None:
        none = f"the curve of {number.system} on {number.split} has no point at {number.depth} candidates"
        return values.get(number.depth, none)
    # CoRT's footnote 4: the smallest number of candidates that doubling raises the measure by less than 0.5 %.
    depths = [depth for depth in values if not number.depths or depth in number.depths]
    found = saturation(depths, [values[depth] for depth in depths])
    return f"{number.system} on {number.split} does not saturate on its curve" if found is None else found


def count(found: Iterable[NumberResult]) -> Counts:
    """Count the marks."""
    counted = Counter(one.mark for one in found)
    return Counts(counted[WITHIN], counted[OFF], counted[NOT_RUN], counted[CANNOT])


def judge(claim: Claim, results: Results) -> ClaimResult:
    """Tell whether a sentence holds: not if one comparison fails, and it is not known if one has not been made."""
    found = [_make(one, results) for one in claim.comparisons]
    outcomes = {one.outcome for one in found}
    outcome = next(one for one in (FAILS, UNKNOWN, HOLDS) if one in outcomes)
    return ClaimResult(claim.section, claim.text, claim.note, outcome, found)


def _make(one: Comparison, results: Results) -> ComparisonResult:
    first, second = _operand(one.first, results), one.second
    other = second if isinstance(second, float) else _operand(second, results)
    outcome = UNKNOWN
    if first is not None and other is not None:
        gap = {"higher": first - other, "lower": other - first, "near": -abs(first - other)}[one.relation]
        # What is higher by nothing is not higher.
        least = -one.by if one.relation == "near" else one.by or 2 * ROUNDING
        outcome = HOLDS if gap >= least - ROUNDING else FAILS
    words = "the paper's number" if isinstance(second, float) else describe(second)
    return ComparisonResult(describe(one.first), one.relation, words, [first, other], one.by, outcome)


def _operand(one: Operand, results: Results) -> float | None:
    values = [find(one, results)] + ([find(replace(one, system=one.minus), results)] if one.minus else [])
    known = [value for value in values if not isinstance(value, str)]
    return None if len(known) < len(values) else known[0] - sum(known[1:])


def describe(one: Operand) -> str:
    """Say what a value is."""
    depth = "" if one.depth is None else f" at {one.depth}"
    minus = f" less that of {one.minus}" if one.minus else ""
    return f"{measure_label(one.measure)}{depth} of {one.system}{minus} on {one.split}"
