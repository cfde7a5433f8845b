"""Sentences of a paper that say which of two values is higher, or that they are alike, as data."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Part: TypeAlias = Mapping[str, Any]
"""A mapping in a file of published numbers."""

# The key of the first value -> those of the second one, and of the difference.
RELATIONS = {"higher": ("than", "by"), "lower": ("than", "by"), "near": ("to", "within")}


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """Something that is measured of a system on a split, at a number of re-ranked candidates if `depth` is given.

    A `quantity` is "measure", or "saturation" of a measure, which is a number of candidates, one of `depths` where
    these are given.
    """

    system: str | None
    split: str
    quantity: str = "measure"
    measure: str
    depth: int | None = None
    depths: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Operand(Quantity):
    """One side of a comparison, less the same of the system `minus` if that is named."""

    minus: str | None = None


@dataclass(frozen=True)
class Comparison:
    """Two values: the first is `higher` or `lower` by at least `by`, or `near` the second, at most `by` from it."""

    relation: str
    first: Operand
    second: Operand | float
    by: float


@dataclass(frozen=True)
class Claim:
    """A sentence of a section, which holds if all its comparisons do."""

    section: str
    text: str
    note: str
    comparisons: list[Comparison]


def read_claim(claim: Part) -> Claim:
    """Read a sentence without mistakes."""
    comparisons = [one for test in claim["tests"] for one in _comparisons(test, claim)]
    return Claim(claim["section"], claim["text"], claim.get("note", ""), comparisons)


def mistakes_of_claim(place: str, claim: Part) -> Iterator[str]:
    """Yield a line for each thing that a comparison lacks, or has beside what it takes."""
    for number, test in enumerate(claim["tests"]):
        inside = f"{place}.tests.{number}"
        relations = sorted(test.keys() & RELATIONS)
        if len(relations) != 1:
            found = " and ".join(relations) or "neither"
            yield f"{inside}: found {found}, expected one of {', '.join(RELATIONS)}; keep one"
            continue
        second, by = RELATIONS[relations[0]]
        if second not in test:
            yield f"{inside}: found no key {second}, expected it with {relations[0]}; add it"
        for key in sorted(test.keys() - {relations[0], second, by, "depths"}):
            yield f"{inside}.{key}: found {key} with {relations[0]}, expected {second} or {by}; remove it"
        for side in (test[relations[0]], *_listed(test.get(second, []))):
            for key in ("system", "split", "measure") if isinstance(side, Mapping) else ():
                if key not in side and key not in claim:
                    yield f"{inside}: found no {key}, expected the value or the sentence to name it; add {key}"


def _listed(value: Part | float | Sequence[Part | float]) -> Sequence[Part | float]:
    return value if isinstance(value, list) else [value]  # type: ignore[list-item]  # a list is no mapping


def _comparisons(test: Part, claim: Part) -> Iterator[Comparison]:
    """Yield a comparison with each second value, at each depth."""
    relation = next(iter(test.keys() & RELATIONS))
    second, by = RELATIONS[relation]
    for depth in test.get("depths", [None]):
        for other in _listed(test[second]):
            value = _operand(other, claim, depth) if isinstance(other, Mapping) else float(other)
            yield Comparison(relation, _operand(test[relation], claim, depth), value, float(test.get(by, 0)))


def _operand(side: Part, claim: Part, depth: int | None) -> Operand:
    said: Part = ChainMap(side, claim)  # type: ignore[arg-type]  # nothing is written to it
    names = {key: said[key] for key in ("system", "split", "measure")}
    return Operand(**names, depth=said.get("depth", depth), minus=said.get("minus"))
