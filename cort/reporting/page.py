"""Pages: self-contained HTML documents, without scripts and without anything fetched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cort import __version__
from cort.evaluation.comparisons import Comparisons
from cort.evaluation.depths import Depths
from cort.evaluation.measures import Measures
from cort.reporting import audits, labels
from cort.reporting.comparisons import legend, p_value, shown_interval, significant_differences, wanted_recall
from cort.reporting.highlight import highlight
from cort.reporting.tables import by_split, names_of_measures, systems_table

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
    """The systems table of one split as shown."""

    split: str
    queries: str
    relevance_level: int | None
    measures: list[str]
    rows: list[tuple[str, list[Value]]]
    legend: str = ""


def systems_blocks(
    measures: Sequence[Measures], baseline: str | None, comparisons: Sequence[Comparisons] = ()
) -> list[Block]:
    """Build the systems table of each split, with differences to the baseline."""
    blocks = []
    significant = significant_differences(comparisons)
    for split, block in by_split(measures).items():
        names = names_of_measures(block)
        base = next((one for one in block if one.system == baseline), None)
        table = systems_table(block, significant)
        first = len(table.columns) - len(names)
        rows = []
        for row, one in enumerate(block):
            places = [((row, column), name) for column, name in enumerate(names, start=first)]
            values = [_value(one, name, base, at in table.best, at in table.marked) for at, name in places]
            rows.append((one.system, values))
        levels = {one.relevance_level for one in block}
        level = levels.pop() if len(levels) == 1 else None
        marks = legend([one for one in comparisons if one.split == split])
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


def saturation_rows(depths: Sequence[Depths]) -> list[tuple[str, ...]]:
    """Say where each re-ranked system saturates, and what is reached there and at the deepest candidates.

    A row is system, split, measure, depth, value there, deepest depth, value there.
    """
    rows: list[tuple[str, ...]] = []
    for one in depths:
        for name, values in one.measures.items():
            depth = one.saturation.get(name)
            value = None if depth is None else values[one.depths.index(depth)]
            shown = labels.count(depth) if depth is not None or name not in one.saturation else "not reached"
            deepest = labels.count(one.depths[-1]), labels.fixed(values[-1])
            rows.append((one.system, one.split, labels.measure_label(name), shown, labels.fixed(value), *deepest))
    return rows


def render(template: str, **shown: Any) -> str:
    """Render a template as HTML; everything is escaped but the figures, which were escaped when drawn."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        count=labels.count,
        fixed=labels.fixed,
        duration=labels.duration,
        memory=labels.memory,
        clip=clip,
        signed=labels.signed,
        measure=labels.measure_label,
        p_value=p_value,
        wanted=wanted_recall,
        audited=audits.caption,
    )
    environment.globals.update(
        highlight=highlight, interval=shown_interval, version=__version__, missing=labels.MISSING
    )
    return environment.get_template(template).render(shown)


def clip(text: str, limit: int = LONGEST_PASSAGE) -> str:
    """Keep the beginning of a long text, ended at a word."""
    if len(text) <= limit:
        return text
    head = text[:limit]
    return f"{head.rsplit(None, 1)[0] if ' ' in head else head} …"
