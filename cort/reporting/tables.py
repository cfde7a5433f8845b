"""Tables, written as CSV (full precision), Markdown and LaTeX (three decimals, best values bold)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence, Set
from dataclasses import dataclass, fields
from typing import TypeAlias, TypeVar

from cort.evaluation.comparisons import Comparison, Comparisons
from cort.evaluation.measures import Measures
from cort.formats.artifacts import csv_text
from cort.reporting.inputs import Measured, Stage
from cort.reporting.labels import MINUS, MISSING, count, fixed, measure_label

Cell: TypeAlias = str | int | float | None
Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)

HEADINGS = {
    "baseline_mean": "baseline's mean",
    "randomization_test": "randomisation",
    "low": "from",
    "high": "to",
    "holm": "corrected",
    "queries_needed": "queries needed",
}
MARKDOWN_SPECIAL = str.maketrans({character: f"\\{character}" for character in "\\`*_[]<>|"} | {"\n": " "})
LATEX_SPECIAL = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\n": " "}
    # TeX would turn these into ligatures or other characters.
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", MISSING: "--", MINUS: "$-$"}
)


@dataclass(frozen=True)
class Column:
    """A column: its name in CSV, its heading in other formats if different, the decimals of its numbers."""

    key: str
    heading: str = ""
    digits: int = 3


def columns(digits: int = 3, /, **headings: str) -> list[Column]:
    """Make columns from headings by key; an empty heading means the key."""
    return [Column(key, heading, digits) for key, heading in headings.items()]


@dataclass(frozen=True)
class Table:
    """Rows of cells; consecutive rows with equal values in the first `block` columns form a block.

    `best` holds (row, column) of the bold cells, `marked` those of cells with an asterisk, which `note` explains.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    block: int = 0
    best: Set[tuple[int, int]] = frozenset()
    marked: Set[tuple[int, int]] = frozenset()
    note: str = ""


def in_formats(name: str, table: Table) -> dict[str, str]:
    """Write a table in all formats: file name -> text."""
    return {f"{name}.csv": to_csv(table), f"{name}.md": to_markdown(table), f"{name}.tex": to_latex(table)}


def names_of_measures(measures: Iterable[Measures]) -> list[str]:
    """List all measures, in the order in which they first appear."""
    return list(dict.fromkeys(name for system in measures for name in system.mean))


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Group items by key, in the order in which the keys first appear."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def by_split(results: Iterable[Measured]) -> dict[str, list[Measured]]:
    """Group results by split."""
    return grouped(results, lambda result: result.split)


def best_systems(systems: Sequence[Measures], measure: str) -> set[int]:
    """Find the positions of the best systems: all whose value agrees with the largest to three decimals."""
    values = [system.mean.get(measure) for system in systems]
    rounded = {position: round(value, 3) for position, value in enumerate(values) if value is not None}
    return {position for position, value in rounded.items() if value == max(rounded.values())}


def systems_table(measures: Sequence[Measures], comparisons: Sequence[Comparisons] = ()) -> Table:
    """Tabulate all systems by all measures; the best of a split are bold, significant differences marked.

    Numbers of queries without results, and without a relevant passage, have a column unless all are 0.
    """
    names, significant = names_of_measures(measures), significant_differences(comparisons)
    heads = columns(split="", system="", queries="", relevance_level="relevant from")
    lacking = [name for name in ("without_results", "without_relevant") if any(getattr(row, name) for row in measures)]
    heads += [Column(name, name.replace("_", " ")) for name in lacking]
    places = list(enumerate(names, start=len(heads)))
    heads += [Column(name, measure_label(name)) for name in names]
    rows: list[list[Cell]] = []
    best: set[tuple[int, int]] = set()
    marked: set[tuple[int, int]] = set()
    for split, systems in by_split(measures).items():
        for column, name in places:
            best |= {(len(rows) + row, column) for row in best_systems(systems, name)}
        for system in systems:
            marked |= {(len(rows), column) for column, name in places if (split, system.system, name) in significant}
            lacks = [getattr(system, name) for name in lacking]
            first: list[Cell] = [split, system.system, system.queries, system.relevance_level]
            rows.append([*first, *lacks, *map(system.mean.get, names)])
    return Table(heads, rows, 1, best, marked, legend(comparisons) if marked else "")


def stages_table(stages: Iterable[Stage]) -> Table:
    """Tabulate wall time and memory per stage."""
    headings = {"seconds": "total (s)", "longest_seconds": "longest job (s)", "peak_memory_mb": "peak memory (MB)"}
    return Table(columns(stage="", jobs="", **headings), list(stages))


def comparisons_table(comparisons: Iterable[Comparisons]) -> Table:
    """Tabulate all comparisons, a block per split."""
    heads = columns(split="", baseline="")
    names = [field.name for field in fields(Comparison) if field.name != "baseline"]
    for name in names:
        heading = HEADINGS.get(name) or HEADINGS.get(name.rpartition("_")[2], "")
        heads.append(Column(name, heading, 4 if "test" in name else 3))
    rows = []
    for split in comparisons:
        for row in split.comparisons:
            values = vars(row) | {
                "measure": measure_label(row.measure),
                "significant": "yes" if row.significant else "no",
            }
            rows.append([split.split, row.baseline, *map(values.get, names)])
    return Table(heads, rows, 1)


def lengths_table(comparisons: Iterable[Comparisons]) -> Table:
    """Tabulate the shortest lists that reach the recall of the baseline's longest."""
    heads = columns(split="", system="", depth="shortest list", recall="its recall", baseline="")
    heads += columns(baseline_depth="baseline's list", baseline_recall="its recall")
    rows = [
        [split.split, row.system, row.depth, row.recall, split.baseline, row.baseline_depth, row.baseline_recall]
        for split in comparisons
        for row in split.list_lengths
    ]
    return Table(heads, rows)


def significant_differences(comparisons: Iterable[Comparisons]) -> set[tuple[str, str, str]]:
    """List (split, system, measure) of all significant differences from the baseline of the split."""
    return {
        (split.split, row.system, row.measure)
        for split in comparisons
        for row in split.comparisons
        if row.significant and row.baseline == split.baseline
    }


def legend(comparisons: Sequence[Comparisons]) -> str:
    """Explain the mark of a significant difference; empty if nothing was compared."""
    if not comparisons:
        return ""
    first = comparisons[0]
    return (
        f"* differs significantly from {first.baseline}: p of the paired randomisation test ({count(first.resamples)} "
        f"random signs), corrected by Holm's method over the comparisons of the split for each measure, is at most "
        f"{first.alpha:g}."
    )


def to_csv(table: Table) -> str:
    """Write comma-separated values in full precision; an unknown value is an empty cell."""
    return csv_text((column.key for column in table.columns), table.rows)


def to_markdown(table: Table) -> str:
    """Write a pipe table, with columns aligned in the source."""
    grid = _shown(table, lambda text: text.translate(MARKDOWN_SPECIAL), "**{}**")
    padded = []
    for number, cells in zip(_numeric_columns(table), zip(*grid, strict=True), strict=True):
        width = max(3, *map(len, cells))
        heading, *rest = (cell.rjust(width) if number else cell.ljust(width) for cell in cells)
        padded.append([heading, "-" * (width - 1) + ":" if number else "-" * width, *rest])
    note = f"\n{table.note.translate(MARKDOWN_SPECIAL)}\n" if table.note else ""
    return "".join(f"| {' | '.join(line)} |\n" for line in zip(*padded, strict=True)) + note


def to_latex(table: Table) -> str:
    """Write a tabular with the rules of the booktabs package."""
    grid = _shown(table, lambda text: text.translate(LATEX_SPECIAL), r"\textbf{{{}}}")
    alignment = "".join("r" if number else "l" for number in _numeric_columns(table))
    lines = [rf"\begin{{tabular}}{{{alignment}}}", r"\toprule", " & ".join(grid[0]) + r" \\", r"\midrule"]
    for row, cells in enumerate(grid[1:]):
        if row > 0 and table.rows[row][: table.block] != table.rows[row - 1][: table.block]:
            lines.append(r"\midrule")
        lines.append(" & ".join(cells) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    if table.note:
        # It belongs in the caption, which the author writes.
        lines.append(f"% {table.note}")
    return "\n".join(lines) + "\n"


def _shown(table: Table, escape: Callable[[str], str], bold: str) -> list[list[str]]:
    grid = [[escape(column.heading or column.key) for column in table.columns]]
    for row, cells in enumerate(table.rows):
        line = []
        for position, (column, cell) in enumerate(zip(table.columns, cells, strict=True)):
            digits = 0 if isinstance(cell, int) else column.digits
            shown = escape(cell if isinstance(cell, str) else fixed(cell, digits))
            shown = bold.format(shown) if (row, position) in table.best else shown
            line.append(shown + escape("*") if (row, position) in table.marked else shown)
        grid.append(line)
    return grid


def _numeric_columns(table: Table) -> list[bool]:
    places = range(len(table.columns))
    return [not any(isinstance(row[place], str) for row in table.rows) for place in places]
