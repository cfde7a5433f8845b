"""Pages: self-contained HTML documents, without scripts and without anything fetched, and what they say of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cort import __version__
from cort.evaluation.comparisons import Comparison, Comparisons
from cort.evaluation.depths import Depths
from cort.evaluation.measures import Measures
from cort.evaluation.verdicts import by_pair, disagreement, needed
from cort.reporting import labels
from cort.reporting.explorer.links import link
from cort.reporting.tables import best_shown, by_split, legend, names_of_measures, significant_differences


@dataclass(frozen=True)
class Value:
    """One number of the systems table as shown; a significant `difference` to the baseline gets an asterisk."""

    text: str
    difference: str
    best: bool
    significant: bool = False


@dataclass(frozen=True)
class Block:
    """The systems table of one split as shown; `relevance_level` is None where systems differ in it."""

    split: str
    queries: str
    relevance_level: int | None
    measures: list[str]
    rows: list[tuple[str, list[Value]]]
    legend: str
    lacking: str


def systems_blocks(
    measures: Sequence[Measures], baseline: str | None, comparisons: Sequence[Comparisons] = ()
) -> list[Block]:
    """Build the systems table of each split, with differences to the baseline."""
    blocks = []
    significant = significant_differences(comparisons)
    for split, block in by_split(measures).items():
        names = names_of_measures(block)
        base = next((one.mean for one in block if one.system == baseline), {})
        best = {name: best_shown([one.mean.get(name) for one in block]) for name in names}
        rows = []
        for row, one in enumerate(block):
            values = []
            for name in names:
                value, before = one.mean.get(name), base.get(name)
                difference = ""
                if value is not None and before is not None and one.system != baseline:
                    difference = labels.signed(value - before)
                marked = bool(difference) and (split, one.system, name) in significant
                values.append(Value(labels.fixed(value), difference, row in best[name], marked))
            rows.append((one.system, values))
        numbers = sorted({one.queries for one in block})
        queries = labels.plural(numbers[-1], "query", "queries")
        if len(numbers) > 1:
            queries = f"{labels.count(numbers[0])} to {queries}"
        levels = {one.relevance_level for one in block}
        level = levels.pop() if len(levels) == 1 else None
        note = legend([one for one in comparisons if one.split == split])
        shown = [labels.measure_label(name) for name in names]
        blocks.append(Block(split, queries, level, shown, rows, note, what_queries_lack(block)))
    return blocks


def what_queries_lack(block: Sequence[Measures]) -> str:
    """Say how many of the queries that the means of a split are over have no result, or no relevant passage."""
    found = []
    if without := max(one.without_relevant for one in block):
        found.append(f"without a relevant passage ({labels.count(without)})")
    if empty := [f"{one.system} {labels.count(one.without_results)}" for one in block if one.without_results]:
        found.append(f"without results ({', '.join(empty)})")
    return f"Means include queries {' and '.join(found)}." if found else ""


def saturation_rows(depths: Sequence[Depths]) -> list[tuple[str, ...]]:
    """List system, split, measure, depth of its saturation, value there, deepest depth, and value there."""
    rows: list[tuple[str, ...]] = []
    for one in depths:
        for name, values in one.measures.items():
            depth = one.saturation.get(name)
            value = None if depth is None else values[one.depths.index(depth)]
            shown = labels.count(depth) if depth is not None or name not in one.saturation else "not reached"
            deepest = labels.count(one.depths[-1]), labels.fixed(values[-1])
            rows.append((one.system, one.split, labels.measure_label(name), shown, labels.fixed(value), *deepest))
    return rows


@dataclass(frozen=True)
class VerdictBlock:
    """The verdicts on one split: a row of comparisons per pair, in the order of these measures.

    `disagrees` explains, where there are such, intervals that seem to contradict their verdicts.
    """

    about: Comparisons
    measures: list[str]
    rows: list[list[Comparison]]
    disagrees: str


def verdict_blocks(comparisons: Sequence[Comparisons]) -> list[VerdictBlock]:
    """Put the comparisons of each split together by pair."""
    blocks = []
    for one in comparisons:
        if rows := list(by_pair(one.comparisons).values()):
            why = disagreement(len(rows)) if any(row[0].disagrees for row in rows) else ""
            blocks.append(VerdictBlock(one, [labels.measure_label(row.measure) for row in rows[0]], rows, why))
    return blocks


def wanted_recall(comparisons: Comparisons) -> str:
    """Say what the lists must hold: the recall of the baseline's longest list."""
    first = comparisons.list_lengths[0]
    passages = labels.plural(first.baseline_depth, "passage", "passages")
    return f"the first {passages} of {comparisons.baseline} (recall {labels.fixed(first.baseline_recall)})"


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
    shared = (labels.count, labels.fixed, labels.signed, labels.duration, labels.memory, labels.clip, labels.p_value)
    environment.filters |= {one.__name__: one for one in shared}
    environment.filters |= {"measure": labels.measure_label, "wanted": wanted_recall, "needed": needed}
    known = {"link": link, "highlight": labels.highlight, "interval": labels.shown_interval, "version": __version__}
    environment.globals |= {**known, "missing": labels.MISSING}
    return environment.get_template(template).render(shown)
