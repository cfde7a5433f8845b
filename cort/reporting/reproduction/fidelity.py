"""Compare published numbers with ours: the difference, and whether it is within the tolerance of the paper's file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cort.evaluation.depths import Consistency, Depths, saturation
from cort.evaluation.measures import Measures
from cort.formats.artifacts import Node, read_json
from cort.reporting.reproduction.artifact import Counts
from cort.reporting.reproduction.paper import Number, Paper, PaperTable

WITHIN, OFF, NOT_RUN = "within", "off", "not run"
# Decimal numbers are not exact in binary: .271 - .27 is a little more than .001.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Latency:
    """Milliseconds of a system by the number of queries in a batch: "1" of a single query, "32" of a batch of 32."""

    system: str
    split: str
    milliseconds: dict[str, float | None]

    def check(self, node: Node) -> None:
        """Refuse batch sizes that are none."""
        for size in self.milliseconds:
            if not size.isdecimal() or not int(size):
                found = f"the batch size {size!r}"
                raise node["milliseconds"][size].complain(found, "a whole number from 1")


@dataclass(frozen=True)
class Results:
    """All of ours, each by (system, split)."""

    measures: Mapping[tuple[str, str], Measures]
    depths: Mapping[tuple[str, str], Depths] = field(default_factory=dict)
    consistency: Mapping[tuple[str, str], Consistency] = field(default_factory=dict)
    latencies: Mapping[tuple[str, str], Latency] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """What became of a published number: ours is None, and `reason` says why, where it was not run."""

    number: Number
    ours: float | None
    mark: str
    reason: str = ""

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.ours is None else self.ours - self.number.paper


def read_latencies(path: str | Path) -> list[Latency]:
    """Read a `Latency`, or what the stage `latency` wrote, which has a list of these as `latencies`."""
    node = read_json(path)
    found: list[Latency] = (
        node["latencies"].read(list[Latency]) if "latencies" in node.of(dict) else [node.read(Latency)]
    )
    return found


def compare(number: Number, results: Results) -> Verdict:
    """Find ours and judge the difference."""
    ours, reason = find(number, results)
    if ours is None:
        return Verdict(number, None, NOT_RUN, reason)
    near = abs(ours - number.paper) <= number.tolerance.within + ROUNDING
    return Verdict(number, ours, WITHIN if near else OFF)


def find(number: Number, results: Results) -> tuple[float | None, str]:
    """Our value, or None and the reason why there is none."""
    if number.system is None:
        return None, "no system of ours stands for it"
    if number.quantity == "saturation":
        return _saturation(number, results)
    if number.measure.startswith("latency"):
        return _latency(number, results)
    if number.depth is not None:
        return _at_depth(number, results)
    found = results.measures.get((number.system, number.split))
    if found is None:
        return None, f"no results of {number.system} on {number.split}"
    value = found.mean.get(number.measure)
    return value, "" if value is not None else f"{number.measure} of {number.system} on {number.split} was not measured"


def _curve(number: Number, results: Results) -> tuple[dict[int, float], str]:
    """Depth -> value of a re-ranked system; empty, with the reason, if there is no such curve."""
    curve = results.depths.get((number.system or "", number.split))
    if curve is None:
        return {}, f"no curve of {number.system} by candidates on {number.split}"
    if number.measure not in curve.measures:
        return {}, f"{number.measure} of {number.system} was not measured by candidates on {number.split}"
    pairs = zip(curve.depths, curve.measures[number.measure], strict=True)
    return {depth: value for depth, value in pairs if value is not None}, ""


def _at_depth(number: Number, results: Results) -> tuple[float | None, str]:
    curve, reason = _curve(number, results)
    if reason or number.depth in curve:
        return curve.get(number.depth or 0), reason
    return None, f"the curve of {number.system} on {number.split} has no point at {number.depth} candidates"


def _saturation(number: Number, results: Results) -> tuple[float | None, str]:
    """CoRT's footnote 4: the smallest number of candidates that doubling raises the measure by less than 0.5 %."""
    curve, reason = _curve(number, results)
    if reason:
        return None, reason
    depths = [depth for depth in sorted(curve) if not number.depths or depth in number.depths]
    found = saturation(depths, [curve[depth] for depth in depths])
    return found, "" if found is not None else f"{number.system} on {number.split} does not saturate on its curve"


def _latency(number: Number, results: Results) -> tuple[float | None, str]:
    _, _, batch = number.measure.partition("@")
    found = results.latencies.get((number.system or "", number.split))
    value = None if found is None else found.milliseconds.get(batch or "1")
    return value, "" if value is not None else "its latency was not measured"


def verdicts_on(paper: Paper, results: Results) -> dict[str, list[Verdict]]:
    """Judge every number of a paper, by the name of its table or figure, in the order of the paper's file."""
    return {
        **{one.name: [compare(number, results) for number in numbers_of(one)] for one in paper.tables},
        **{one.name: [compare(number, results) for number in one.numbers] for one in paper.figures},
    }


def numbers_of(table: PaperTable) -> list[Number]:
    """List the numbers of a table, row by row."""
    return [number for _, cells in table.rows for number in cells if number is not None]


def count(found: Iterable[Verdict]) -> Counts:
    """Count the marks."""
    counted = Counter(one.mark for one in found)
    return Counts(counted[WITHIN], counted[OFF], counted[NOT_RUN])
