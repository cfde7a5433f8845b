"""Tables: declared columns, a data frame, and one way to write it as CSV (full precision), LaTeX and HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from cort.formats.artifacts import harmless
from cort.reporting.format import MINUS, MISSING, count, fixed, named, typeset

if TYPE_CHECKING:
    import pandas as pd

Format: TypeAlias = Callable[[Any], str]
#: number of a row, and column
Place: TypeAlias = tuple[int, str]

LATEX_SPECIAL = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\n": " "}
    # TeX would turn these into ligatures or other characters; the asterisk marks significance.
    | {"*": "$^{*}$", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", MISSING: "--", MINUS: "$-$"}
)


class Cell(NamedTuple):
    """What HTML shows in a cell."""

    text: str
    number: bool
    bold: bool
    marked: bool
    link: str | None


@dataclass(frozen=True)
class Table:
    """A data frame with what people need to read it.

    :ivar name: of its files; a table without one is only on a page.
    :ivar formats: by column; otherwise, numbers have three decimals.
    :ivar headings: by column; otherwise its name.
    :ivar block: column whose values are headings of parts.
    :ivar bold: places of the best values; `marked` has those with an asterisk, which `note` explains.
    :ivar paper: what LaTeX has instead.
    """

    name: str
    caption: str
    frame: pd.DataFrame
    formats: Mapping[str, Format] = field(default_factory=dict)
    headings: Mapping[str, str] = field(default_factory=dict)
    block: str | None = None
    bold: frozenset[Place] = frozenset()
    marked: frozenset[Place] = frozenset()
    links: Mapping[Place, str] = field(default_factory=dict)
    note: str = ""
    paper: Table | None = None

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [*map(str, self.frame.columns)]

    def only(self, columns: Sequence[str], rows: Sequence[int]) -> Table:
        """Return a part of the table, without files."""
        places = {row: place for place, row in enumerate(rows)}
        frame = self.frame.loc[[*rows], [*columns]].reset_index(drop=True)
        links = {(places[row], column): link for (row, column), link in self.links.items() if row in places}
        return replace(self, name="", frame=frame, links=links, bold=frozenset(), marked=frozenset(), note="")

    def heading(self, column: str) -> str:
        """Return what people read above a column."""
        return self.headings.get(column, named(column))

    def shown(self) -> list[list[str]]:
        """Return the formatted cells of all rows."""
        formats = [self.formats.get(column, plain) for column in self.columns]
        rows = self.frame.astype(object).to_numpy().tolist()
        return [[form(_known(cell)) for form, cell in zip(formats, row, strict=True)] for row in rows]

    def numeric(self) -> list[bool]:
        """Tell which columns have no text."""
        return [not any(isinstance(cell, str) for cell in self.frame[column]) for column in self.columns]

    def parts(self) -> Iterator[tuple[str, list[str], list[list[Cell]]]]:
        """Yield the parts that HTML shows: caption, headings, rows."""
        kept = [(place, column) for place, column in enumerate(self.columns) if column != self.block]
        shown, numeric = self.shown(), self.numeric()
        rows = [
            [
                Cell(
                    typeset(texts[place]) if numeric[place] else texts[place],
                    numeric[place],
                    (row, column) in self.bold,
                    (row, column) in self.marked,
                    self.links.get((row, column)),
                )
                for place, column in kept
            ]
            for row, texts in enumerate(shown)
        ]
        headings = [self.heading(column) for _, column in kept]
        if self.block is None or self.frame.empty:
            yield self.caption, headings, rows
            return
        place = self.columns.index(self.block)
        for value in dict.fromkeys(texts[place] for texts in shown):
            chosen = [row for row, texts in zip(rows, shown, strict=True) if texts[place] == value]
            yield f"{named(value)}: {self.caption}", headings, chosen


@dataclass(frozen=True)
class Column:
    """A column: its name in CSV, and how a row gives its value.

    :ivar value: attribute of a row, by default that of the name with _ for blanks, or a function of the row.
    :ivar form: writes a value for people; by default, its type decides.
    :ivar heading: what people read above it, if not its name.
    """

    name: str
    value: str | Callable[[Any], object] = ""
    form: Format | None = None
    heading: str = ""

    def of(self, row: Any) -> object:
        """Return the value of a row."""
        if callable(self.value):
            return self.value(row)
        return attrgetter(self.value or self.name.replace(" ", "_"))(row)


class Joined:
    """A row of a whole: it has the attributes of the row, and those of the whole that the row lacks."""

    def __init__(self, whole: Any, row: Any) -> None:
        self.whole, self.row = whole, row

    def __getattr__(self, name: str) -> Any:
        return getattr(self.row if hasattr(self.row, name) else self.whole, name)


def joined(wholes: Iterable[object], rows: str) -> list[Joined]:
    """List the rows of several wholes, which are in this attribute."""
    return [Joined(whole, row) for whole in wholes for row in getattr(whole, rows)]


def tabulate(name: str, caption: str, columns: Sequence[Column], rows: Iterable[object], **more: Any) -> Table:
    """Make a table of declared columns.

    :param rows: objects, of which the columns take values; a list has the values already.
    :param more: further fields of the table.
    """
    cells = [row if isinstance(row, list) else [column.of(row) for column in columns] for row in rows]
    formats = {column.name: column.form for column in columns if column.form}
    headings = {column.name: column.heading for column in columns if column.heading}
    return Table(name, caption, frame_of(cells, [column.name for column in columns]), formats, headings, **more)


def frame_of(rows: Sequence[Sequence[object]], columns: Sequence[str]) -> pd.DataFrame:
    """Make a data frame whose whole numbers stay whole where some are unknown."""
    import pandas as pd

    return pd.DataFrame([*map(list, rows)], columns=[*columns], dtype=object)


def plain(cell: Any) -> str:
    """Format a cell by its type."""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return count(cell) if isinstance(cell, int) else fixed(cell)


def _known(cell: Any) -> Any:
    return None if cell is None or cell != cell else cell


def files_of(table: Table) -> dict[str, str]:
    """Write a table in all formats of files: name -> text."""
    return {f"{table.name}.csv": to_csv(table), f"{table.name}.tex": to_latex(table.paper or table)}


def to_csv(table: Table) -> str:
    """Write comma-separated values in full precision; an unknown value is an empty cell."""
    return frame_csv(table.frame)


def frame_csv(frame: pd.DataFrame) -> str:
    """Write a frame as comma-separated values, whose texts are `harmless`."""
    import pandas as pd

    # Mapped one by one, because pandas would make floats of integers beside missing ones.
    texts = {
        name: pd.Series([*map(harmless, column)], frame.index, object)
        for name, column in frame.select_dtypes(exclude="number").items()
    }
    text: str = frame.assign(**texts).to_csv(index=False, lineterminator="\n")
    return text


def to_latex(table: Table) -> str:
    """Write a table with a caption, a label and the rules of the package booktabs; each block has a line of its own."""
    kept = [place for place, column in enumerate(table.columns) if column != table.block]
    alignment = "".join("lr"[table.numeric()[place]] for place in kept)
    lines = [" & ".join(cells[place] for place in kept) + r" \\" for cells in _cells_in_tex(table)]
    blocks = [*table.frame[table.block]] if table.block else []
    for row in reversed([row for row, block in enumerate(blocks) if row == 0 or block != blocks[row - 1]]):
        lines[row + 1 : row + 1] = [
            r"\midrule",
            rf"\multicolumn{{{len(kept)}}}{{l}}{{\emph{{{to_tex(blocks[row])}}}}} \\",
        ]
    note = "" if table.note in table.caption else f" {table.note}"
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{to_tex(table.caption[:1].upper() + table.caption[1:] + note)}}}",
            rf"\label{{tab:{table.name}}}",
            rf"\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            lines[0],
            *([] if blocks else [r"\midrule"]),
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def to_tex(text: str) -> str:
    """Escape a text for LaTeX."""
    return typeset(text).translate(LATEX_SPECIAL)


def _cells_in_tex(table: Table) -> Iterator[list[str]]:
    yield [to_tex(table.heading(column)) for column in table.columns]
    for row, texts in enumerate(table.shown()):
        cells = []
        for column, text in zip(table.columns, texts, strict=True):
            cell = rf"\textbf{{{to_tex(text)}}}" if (row, column) in table.bold else to_tex(text)
            cells.append(cell + to_tex("*") if (row, column) in table.marked else cell)
        yield cells
