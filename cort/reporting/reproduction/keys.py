"""All keys of a file of published numbers: tables and figures of one paper, what of our results corresponds to them.

The numbers have tolerances with their reasons, and reasons why ours may differ. Values that a figure shows only as a
curve are left out.
"""

from __future__ import annotations

from typing import Any, Literal

from cort.runtime.keys import named, section, setting
from cort.settings.fields import NAME

LARGEST, WIDEST = 1_000_000, 1_000_000_000
RANKING = r"((RR|nDCG|AP)(@[1-9][0-9]*)?|(R|P|Success)@[1-9][0-9]*|latency(@[1-9][0-9]*)?"


def count(default: Any = None) -> Any:
    """Declare a number of candidates."""
    return setting(default, ge=1, le=LARGEST)


@section
class Ours:
    """Which of our results corresponds to a number; a row's value overrides the column's, the column's the table's."""

    system: str | None = None
    """Our system; without one, the number is not run."""
    split: str | None = None
    """Our split."""
    measure: str | None = setting(None, pattern=rf"{RANKING}|rank|unjudged@10)")
    """Our measure as ir_measures names it, `latency` (ms of a single query), `latency@32` (ms of a batch of 32), `rank`
    (of the relevant passage of a split's only query), or `unjudged@10` (share of the first 10 results that is not
    judged)."""
    depth: int | None = count()
    """Number of re-ranked candidates; the number is then taken from the curve of the re-ranked system."""
    tolerance: str | None = None
    """Name under `tolerances`."""
    why: tuple[str, ...] = ()
    """Names under `reasons`; those of table, column, row and number add up."""


@section
class Tolerance:
    """How far from the paper still counts as reproduced."""

    within: float = setting(ge=0, le=LARGEST)
    """Largest absolute difference, in the unit of the measure (.01 is one point of a measure up to 1)."""
    because: str
    """The reason for it."""


@section
class Exhibit:
    """A table or figure."""

    number: str
    """What the paper calls it, as "Table 1"."""
    title: str
    """Its caption, in short."""
    note: str | None = None
    """What a reader needs to know to compare."""


@section
class Column(Ours):
    """A column."""

    label: str
    """The paper's heading."""
    scale: float = setting(1, gt=0, le=LARGEST)
    """What the paper multiplied the measure by; 100 for percent."""
    not_computed: str | None = None
    """Name under `reasons`: why we cannot reproduce the number. The number's own reason overrides the row's, and the
    row's overrides the column's."""


@section
class Cell:
    """A number with reasons of its own."""

    value: float = setting(ge=-WIDEST, le=WIDEST)
    """The number as printed."""
    why: tuple[str, ...] = ()
    """Names under `reasons`."""
    not_computed: str | None = None
    """As for columns."""


@section
class Row(Ours):
    """A row."""

    label: str
    """The paper's name of the row."""
    systems: tuple[str | None, ...] | None = None
    """Our systems, one per column, instead of `system`; null where there is none."""
    not_computed: str | None = None
    """As for columns."""
    change_from: str | None = None
    """Label of the column whose number `changes` are relative to."""
    changes: tuple[float | None, ...] | None = setting(None, ge=-1000, le=1000)
    """Relative changes in percent that the paper prints next to its numbers, one per column; null where it has none.
    They follow from the numbers and are not counted."""
    values: tuple[float | Cell | None, ...] = setting(ge=-WIDEST, le=WIDEST)
    """The numbers as printed, one per column; null where the paper has none."""


@section
class Table(Ours, Exhibit):
    """A table."""

    scale: float = setting(1, gt=0, le=LARGEST)
    """What the paper multiplied the measure by; 100 for percent."""
    columns: tuple[Column, ...] = setting(least=1)
    """The columns, left to right."""
    rows: tuple[Row, ...] = setting(least=1)
    """The rows, from the top."""


@section
class Point:
    """A system of a line of `systems`."""

    x: float = setting(ge=-WIDEST, le=WIDEST)
    """Place on the horizontal axis."""
    system: str
    """Our system."""


@section
class Series:
    """A line."""

    label: str
    """The paper's name of the line."""
    system: str | None = None
    """Our system; without one, the line is not run."""
    saturation: int | None = count()
    """Candidates at which the paper finds that doubling them adds less than 0.5 %."""
    points: tuple[Point, ...] | None = None
    """With `systems`, the systems of the line and their numbers."""
    published: tuple[tuple[float, float], ...] | None = setting(None, ge=-WIDEST, le=WIDEST)
    """Numbers the paper prints for the line, as pairs of x and y."""


@section
class Panel(Ours):
    """A pair of axes."""

    kind: Literal["depths", "consistency", "systems"]
    """`depths` plots a measure against the number of re-ranked candidates, `consistency` the consistency factor against
    the depth, `systems` a measure of several systems against a number given for each."""
    title: str
    """Heading of the panel."""
    split: str
    """Our split."""
    x_label: str | None = None
    """What the horizontal axis is; needed with `systems`."""
    scale: float = setting(1, gt=0, le=LARGEST)
    """What the paper multiplied the measure by; 100 for percent."""
    depths: tuple[int, ...] | None = count()
    """Numbers of candidates the paper draws, with `depths`; all of our curve without them."""
    series: tuple[Series, ...] = setting(least=1)
    """The lines."""


@section
class Figure(Exhibit):
    """A figure."""

    why: tuple[str, ...] = ()
    """Names under `reasons`."""
    panels: tuple[Panel, ...] = setting(least=1)
    """Pairs of axes."""


@section
class Claimed:
    """A value in a claim; keys that it lacks are those of the claim."""

    system: str | None = None
    """Our system."""
    split: str | None = None
    """Our split."""
    measure: str | None = setting(None, pattern=rf"{RANKING}|consistency)")
    """A measure as in tables, or `consistency` at a `depth`; `depth` is the number of re-ranked candidates of any
    other."""
    depth: int | None = count()
    """Number of re-ranked candidates, or depth of a consistency factor."""


@section
class Value(Claimed):
    """A side of a comparison."""

    minus: str | None = None
    """Another system, whose value is subtracted."""


@section
class Comparison:
    """Two values that the claim compares: one of `higher`, `lower` and `near`, and what belongs to it."""

    higher: Value | None = None
    """The value that is higher."""
    lower: Value | None = None
    """The value that is lower."""
    than: Value | float | tuple[Value | float, ...] | None = setting(None, ge=-WIDEST, le=WIDEST, least=1)
    """What it is compared with, a value or a number; each of a list."""
    by: float = setting(0, ge=0, le=LARGEST)
    """By at least so much."""
    near: Value | None = None
    """The value that is about as high."""
    to: Value | float | tuple[Value | float, ...] | None = setting(None, ge=-WIDEST, le=WIDEST, least=1)
    """As what, like `than`."""
    within: float = setting(0, ge=0, le=LARGEST)
    """Largest difference of values that are about as high."""
    depths: tuple[int, ...] | None = setting(None, ge=1, le=LARGEST, least=1)
    """Numbers of candidates at which the comparison is made, each instead of `depth`."""


@section
class Claim(Claimed):
    """A sentence of the paper that compares values; it is shown with our result."""

    section: str
    """Its section in the paper."""
    text: str
    """What it says, in short."""
    note: str | None = None
    """What a reader needs to know to judge it."""
    tests: tuple[Comparison, ...] = setting(least=1)
    """Comparisons, of which all must hold."""


@section
class Paper:
    """The published numbers of a paper."""

    title: str
    """Title of the paper."""
    reference: str
    """Authors, year, where it appeared."""
    reasons: dict[str, str] = named(NAME)
    """Why a number of ours may differ, by a short name that `why` refers to."""
    tolerances: dict[str, Tolerance] = named(NAME, required=True)
    """How far from the paper still counts as reproduced, by a short name that `tolerance` refers to."""
    tables: dict[str, Table] = named(NAME)
    """Tables by name, which is part of the names of their files."""
    figures: dict[str, Figure] = named(NAME)
    """Figures by name, which is part of the names of their files."""
    claims: tuple[Claim, ...] = ()
    """Sentences of the paper that compare values."""
