"""Tables, and the same table as CSV (all digits), Markdown and LaTeX (three decimals, best values bold)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import asdict, astuple, dataclass, fields
from typing import TypeAlias, TypeVar

from cort.evaluation.comparisons import Comparison, Comparisons
from cort.evaluation.depths import Depths
from cort.evaluation.measures import Measures
from cort.formats.artifacts import csv_text
from cort.reporting.inputs import Stage
from cort.reporting.labels import MINUS, MISSING, count, fixed, measure_label

Cell: TypeAlias = str | int | float | None
OfSplit = TypeVar("OfSplit", Measures, Depths)

HEADINGS = {
    "baseline_mean": "baseline's mean",
    "t_test": "t-test",
    "randomization_test": "randomisation",
    "low": "from",
    "high": "to",
    "holm": "corrected",
}
P_VALUES = ("t_test", "t_test_holm", "randomization_test", "randomization_test_holm")
MARKDOWN_SPECIAL = str.maketrans({one: f"\\{one}" for one in "\\`*_[]<>|"} | {"\n": " "})
LATEX_SPECIAL = str.maketrans(
    {one: f"\\{one}" for one in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\n": " "}
    # Typewriter habits of TeX: these would become ligatures or quotes of another shape.
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", MISSING: "--", MINUS: "$-$"}
)


@dataclass(frozen=True)
class Column:
    """One column: its name in CSV, its heading for readers if that is another, the decimals of its numbers."""

    key: str
    heading: str = ""
    digits: int = 3


def columns(digits: int = 3, /, **headings: str) -> list[Column]:
    """Make columns from their headings by key; an empty one is the key."""
    return [Column(key, heading, digits) for key, heading in headings.items()]


@dataclass(frozen=True)
class Table:
    """Rows of cells; `best` holds (row, column) of what is set bold, `blocks` the rows that begin a new block.

    `marked` holds (row, column) of what has an asterisk, which `note` explains, where text is shown to readers.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    best: Set[tuple[int, int]] = frozenset()
    blocks: Set[int] = frozenset()
    marked: Set[tuple[int, int]] = frozenset()
    note: str = ""


def in_formats(name: str, table: Table) -> dict[str, str]:
    """Write a table in each format: file name -> text."""
    return {f"{name}.{ending}": write(table) for ending, write in FORMATS.items()}


def names_of_measures(measures: Iterable[Measures]) -> list[str]:
    """List all measures, in the order in which they first appear."""
    return list(dict.fromkeys(name for one in measures for name in one.mean))


def by_split(found: Iterable[OfSplit]) -> dict[str, list[OfSplit]]:
    """Group what was measured by split, in the order in which the splits first appear."""
    blocks: dict[str, list[OfSplit]] = {}
    for one in found:
        blocks.setdefault(one.split, []).append(one)
    return blocks


def best_shown(values: Sequence[float | None]) -> set[int]:
    """Find the positions whose value is the largest as a reader sees it: equal three decimals are equally best."""
    shown = [None if value is None else round(value, 3) for value in values]
    known = [value for value in shown if value is not None]
    return {position for position, value in enumerate(shown) if known and value == max(known)}


def systems_table(
    measures: Sequence[Measures], significant: Set[tuple[str, str, str]] = frozenset(), note: str = ""
) -> Table:
    """Put together all systems with all measures, one block per split, the best of each block and measure marked.

    :param significant: (split, system, measure) of what gets an asterisk, explained by `note`.
    """
    names = names_of_measures(measures)
    heads = columns(split="", system="", queries="", relevance_level="relevant from")
    first = len(heads)
    heads += [Column(name, measure_label(name)) for name in names]
    rows: list[list[Cell]] = []
    best: set[tuple[int, int]] = set()
    blocks: set[int] = set()
    marked: set[tuple[int, int]] = set()
    for split, block in by_split(measures).items():
        blocks.add(len(rows))
        for position, name in enumerate(names):
            column = [one.mean.get(name) for one in block]
            best |= {(len(rows) + row, first + position) for row in best_shown(column)}
        for one in block:
            values = [one.mean.get(name) for name in names]
            found = [first + at for at, name in enumerate(names) if (split, one.system, name) in significant]
            marked |= {(len(rows), column) for column in found}
            rows.append([split, one.system, one.queries, one.relevance_level, *values])
    return Table(heads, rows, best, blocks, marked, note if marked else "")


def stages_table(stages: Iterable[Stage]) -> Table:
    """Put together wall time and memory per stage."""
    headings = {"seconds": "total (s)", "longest_seconds": "longest job (s)", "peak_memory_mb": "peak memory (MB)"}
    return Table(columns(stage="", jobs="", **headings), [list(astuple(one)) for one in stages])


def comparisons_table(comparisons: Iterable[Comparisons]) -> Table:
    """Put together all comparisons, a block per split."""
    heads = columns(split="", baseline="")
    for field in fields(Comparison):
        heading = HEADINGS.get(field.name) or HEADINGS.get(field.name.rpartition("_")[2], "")
        heads.append(Column(field.name, heading, 4 if field.name in P_VALUES else 3))
    rows: list[list[Cell]] = []
    blocks = set()
    for one in comparisons:
        blocks.add(len(rows))
        for row in one.comparisons:
            shown = {"measure": measure_label(row.measure), "significant": "yes" if row.significant else "no"}
            rows.append([one.split, one.baseline, *(asdict(row) | shown).values()])
    return Table(heads, rows, blocks=blocks)


def lengths_table(comparisons: Iterable[Comparisons]) -> Table:
    """Put together the shortest lists that hold as much as the baseline's longest."""
    heads = columns(split="", system="", depth="shortest list", recall="its recall", baseline="")
    heads += columns(baseline_depth="baseline's list", baseline_recall="its recall")
    rows = [
        [one.split, row.system, row.depth, row.recall, one.baseline, row.baseline_depth, row.baseline_recall]
        for one in comparisons
        for row in one.list_lengths
    ]
    return Table(heads, rows)


def significant_differences(comparisons: Iterable[Comparisons]) -> set[tuple[str, str, str]]:
    """List (split, system, measure) of all significant differences."""
    return {(one.split, row.system, row.measure) for one in comparisons for row in one.comparisons if row.significant}


def legend(comparisons: Sequence[Comparisons]) -> str:
    """Say what the mark of a significant difference means; nothing where nothing was compared."""
    if not comparisons:
        return ""
    one = comparisons[0]
    return (
        f"* differs significantly from {one.baseline}: p of the paired randomisation test ({count(one.resamples)} "
        f"random signs), corrected by Holm's method over the systems of the split for each measure, is at most "
        f"{one.alpha:g}."
    )


def to_csv(table: Table) -> str:
    """Write comma-separated values with every digit; an unknown value is an empty cell."""
    return csv_text((column.key for column in table.columns), table.rows)


def to_markdown(table: Table) -> str:
    """Write a pipe table, columns aligned in the source too."""
    grid = _shown(table, lambda text: text.translate(MARKDOWN_SPECIAL), "**{}**")
    widths = [max(3, *(len(row[position]) for row in grid)) for position in range(len(table.columns))]
    right = [_is_numeric(table, position) for position in range(len(table.columns))]
    rules = ["-" * (width - 1) + ":" if number else "-" * width for width, number in zip(widths, right, strict=True)]
    lines = [
        [f"{cell:{'>' if number else '<'}{width}}" for cell, width, number in zip(row, widths, right, strict=True)]
        for row in grid
    ]
    lines.insert(1, rules)
    note = f"\n{table.note.translate(MARKDOWN_SPECIAL)}\n" if table.note else ""
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + note


def to_latex(table: Table) -> str:
    """Write a tabular with the rules of the package booktabs."""
    grid = _shown(table, lambda text: text.translate(LATEX_SPECIAL), r"\textbf{{{}}}")
    kinds = "".join("r" if _is_numeric(table, position) else "l" for position in range(len(table.columns)))
    lines = [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule", " & ".join(grid[0]) + r" \\", r"\midrule"]
    for row, cells in enumerate(grid[1:]):
        if row in table.blocks and row > 0:
            lines.append(r"\midrule")
        lines.append(" & ".join(cells) + r" \\")
    # The place of a note is the caption, which is the author's.
    note = [f"% {table.note}"] if table.note else []
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", *note]) + "\n"


def _shown(table: Table, escape: Callable[[str], str], bold: str) -> list[list[str]]:
    grid = [[escape(column.heading or column.key) for column in table.columns]]
    for row, cells in enumerate(table.rows):
        line = []
        for position, (column, cell) in enumerate(zip(table.columns, cells, strict=True)):
            shown = escape(
                cell if isinstance(cell, str) else fixed(cell, 0 if isinstance(cell, int) else column.digits)
            )
            shown = bold.format(shown) if (row, position) in table.best else shown
            line.append(shown + escape("*") if (row, position) in table.marked else shown)
        grid.append(line)
    return grid


def _is_numeric(table: Table, position: int) -> bool:
    return not any(isinstance(row[position], str) for row in table.rows)


FORMATS: Mapping[str, Callable[[Table], str]] = {"csv": to_csv, "md": to_markdown, "tex": to_latex}
