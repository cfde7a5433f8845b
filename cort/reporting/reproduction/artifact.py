"""What became of every published number, as the stage `reproduction` writes it and `report` reads it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Counts:
    """How many published numbers are reproduced, are not, and were not run."""

    within: int
    off: int
    not_run: int = field(metadata={"key": "not run"})


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
class PaperResult:
    """All numbers of a paper."""

    name: str
    title: str
    reference: str
    counts: Counts
    numbers: list[NumberResult]


@dataclass(frozen=True)
class Reproduction:
    """All papers."""

    papers: list[PaperResult]
