"""The page: one self-contained HTML document, without scripts and without anything fetched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from cort import __version__
from cort.reporting import audits, labels
from cort.reporting.comparisons import (
    Contrasts,
    legend,
    p_value,
    shown_interval,
    significant_differences,
    wanted_recall,
)
from cort.reporting.curves import Summary
from cort.reporting.highlight import highlight
from cort.reporting.inputs import Comparison, Depths, Filter, Measures
from cort.reporting.latency import Block as LatencyBlock
from cort.reporting.latency import Published
from cort.reporting.provenance import Origin
from cort.reporting.stages import Stage
from cort.reporting.tables import best_shown, names_of_measures, splits_of

LONGEST_PASSAGE = 700
"""Characters of a passage shown; the file of examples has all of it."""


@dataclass(frozen=True)
class Value:
    """One number of the systems table as shown; `difference` to the baseline is empty where there is none.

    `significant` is whether that difference gets an asterisk.
    """

    text: str
    difference: str
    best: bool
    significant: bool = False


@dataclass(frozen=True)
class Block:
    """Build the systems table of one split."""

    split: str
    queries: str
    relevance_level: int | None
    measures: list[str]
    rows: list[tuple[str, list[Value]]]
    legend: str = ""


@dataclass(frozen=True)
class Saturation:
    """One row of the table below the depth figure."""

    system: str
    split: str
    measure: str
    depth: str
    value: str
    deepest: str
    value_at_deepest: str


@dataclass(frozen=True)
class Gate:
    """How many published numbers of a paper are reproduced, are not, and were not run."""

    title: str
    within: int
    off: int
    not_run: int


@dataclass(frozen=True)
class Page:
    """All that the page shows; what is empty is left out."""

    title: str
    dataset: str
    headlines: list[str]
    baseline: str | None
    blocks: list[Block]
    descriptions: dict[str, str] = field(default_factory=dict)
    contrasts: list[Contrasts] = field(default_factory=list)
    recall: list[Markup] = field(default_factory=list)
    depth: list[Markup] = field(default_factory=list)
    saturation: list[Saturation] = field(default_factory=list)
    training: list[Markup] = field(default_factory=list)
    trainings: list[Summary] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    filters: list[Filter] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    origin: Origin | None = None
    reproduction: list[Gate] = field(default_factory=list)
    audit: list[Markup] = field(default_factory=list)
    audits: list[audits.Block] = field(default_factory=list)
    latencies: list[LatencyBlock] = field(default_factory=list)
    published_latencies: list[Published] = field(default_factory=list)


def systems_blocks(
    measures: Sequence[Measures], baseline: str | None, contrasts: Sequence[Contrasts] = ()
) -> list[Block]:
    """Build the systems table of each split, with differences to the baseline."""
    blocks = []
    significant = significant_differences(contrasts)
    for split in splits_of(measures):
        block = [one for one in measures if one.split == split]
        names = names_of_measures(block)
        base = next((one for one in block if one.system == baseline), None)
        best = {name: best_shown([one.mean.get(name) for one in block]) for name in names}
        rows = [
            (
                one.system,
                [
                    _value(one, name, base, row in best[name], (split, one.system, name) in significant)
                    for name in names
                ],
            )
            for row, one in enumerate(block)
        ]
        levels = {one.relevance_level for one in block}
        level = levels.pop() if len(levels) == 1 else None
        marks = legend([one for one in contrasts if one.split == split])
        blocks.append(Block(split, _queries(block), level, [labels.measure_label(name) for name in names], rows, marks))
    return blocks


def _queries(block: Sequence[Measures]) -> str:
    numbers = [one.queries for one in block]
    least, most = min(numbers), max(numbers)
    shown = labels.plural(most, "query", "queries")
    return shown if least == most else f"{labels.count(least)} to {shown}"


def _value(one: Measures, name: str, base: Measures | None, best: bool, significant: bool) -> Value:
    value = one.mean.get(name)
    before = None if base is None or base is one else base.mean.get(name)
    difference = "" if value is None or before is None else labels.signed(value - before)
    return Value(labels.fixed(value), difference, best, significant and bool(difference))


def saturation_rows(depths: Sequence[Depths]) -> list[Saturation]:
    """Say where each re-ranked system saturates, and what is reached there and at the deepest candidates."""
    rows = []
    for one in depths:
        for name, values in one.measures.items():
            depth = one.saturation.get(name)
            value = None if depth is None else values[one.depths.index(depth)]
            shown = labels.count(depth) if depth is not None or name not in one.saturation else "not reached"
            rows.append(
                Saturation(
                    one.system,
                    one.split,
                    labels.measure_label(name),
                    shown,
                    labels.fixed(value),
                    labels.count(one.depths[-1]),
                    labels.fixed(values[-1]),
                )
            )
    return rows


def render(page: Page) -> str:
    """Render the page as HTML; everything is escaped but the figures, which were escaped when drawn."""
    return environment().get_template("report.html.jinja").render(page=page)


def environment() -> Environment:
    """Make what renders the templates of this folder."""
    found = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters.update(
        count=labels.count,
        fixed=labels.fixed,
        duration=labels.duration,
        memory=labels.memory,
        clip=clip,
        signed=labels.signed,
        measure=labels.measure_label,
        p_value=p_value,
        interval=shown_interval,
        wanted=wanted_recall,
        audited=audits.caption,
    )
    found.globals.update(highlight=highlight, version=__version__, missing=labels.MISSING)
    return found


def clip(text: str, limit: int = LONGEST_PASSAGE) -> str:
    """Keep the beginning of a long text, ended at a word."""
    if len(text) <= limit:
        return text
    head = text[:limit]
    return f"{head.rsplit(None, 1)[0] if ' ' in head else head} …"
