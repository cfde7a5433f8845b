"""Compare published numbers with ours: the difference, and whether it is within the tolerance of the paper's file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cort.depths import saturation
from cort.formats.artifacts import Node, read_json
from cort.reporting.inputs import Depths, Measures
from cort.reporting.reproduction.paper import Number, Paper, PaperTable

WITHIN, OFF, NOT_RUN = "within", "off", "not run"
MARKS = (WITHIN, OFF, NOT_RUN)
# Decimal numbers are not exact in binary: .271 - .27 is a little more than .001.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Consistency:
    """RepBERT's consistency factor of one run, by depth."""

    system: str
    split: str
    reference: str
    depths: list[int]
    values: list[float | None]


@dataclass(frozen=True)
class Latency:
    """Milliseconds of a system by the number of queries in a batch."""

    system: str
    split: str
    milliseconds: dict[int, float | None]


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


def read_consistency(path: str | Path) -> Consistency:
    """Read what the stage `consistency` wrote."""
    node = read_json(path)
    depths = [one.count() for one in node["depths"].items()]
    values = [one.number() for one in node["consistency"].items()]
    if len(depths) != len(values):
        raise node["consistency"].complain(f"{len(values)} values", f"{len(depths)}, one per depth")
    return Consistency(node["system"].text(), node["split"].text(), node["reference"].text(), depths, values)


def read_latencies(path: str | Path) -> list[Latency]:
    """Read ``{"system", "split", "milliseconds": {"1": of a single query, "32": of a batch of 32}}``.

    Or what the stage `latency` wrote, which has a list of these.
    """
    node = read_json(path)
    several = node.get("latencies")
    return [_latency_of(one) for one in several.items()] if several else [_latency_of(node)]


def _latency_of(node: Node) -> Latency:
    batches = node["milliseconds"].members()
    for size, value in batches:
        if not size.isdecimal() or not int(size):
            raise value.complain(f"the batch size {size!r}", "a whole number from 1")
    return Latency(node["system"].text(), node["split"].text(), {int(size): value.number() for size, value in batches})


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
    value = None if found is None else found.milliseconds.get(int(batch or 1))
    return value, "" if value is not None else "its latency was not measured"


def verdicts(paper: Paper, results: Results) -> dict[str, list[Verdict]]:
    """Judge every number of a paper, by the name of its table or figure, in the order of the paper's file."""
    tables = {one.name: [compare(number, results) for number in numbers_of(one)] for one in paper.tables}
    return tables | {one.name: [compare(number, results) for number in one.numbers] for one in paper.figures}


def numbers_of(table: PaperTable) -> list[Number]:
    """List the numbers of a table, row by row."""
    return [number for _, cells in table.rows for number in cells if number is not None]


def counts(found: Iterable[Verdict]) -> dict[str, int]:
    """Count the marks, each of `MARKS` also where there is none of it."""
    counted = Counter(one.mark for one in found)
    return {mark: counted[mark] for mark in MARKS}
