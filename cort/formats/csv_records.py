"""Records of CSV. A quote in the wrong place costs no other row."""

from __future__ import annotations

import csv
import re
from collections import Counter, deque
from collections.abc import Iterator

from cort.formats.fields import BadLine
from cort.formats.lines import Rows

#: a kind of doubt: the quotes of these rows were taken for text
MISQUOTED = "rows with quotes in the wrong place"
csv.field_size_limit(1 << 30)
#: Excel writes semicolons where commas are decimal, and databases bars
DELIMITERS = (",", ";", "|")
#: a first line by which Excel knows them
SEPARATOR = re.compile(r'"?sep=[,;|]"?\s*', re.IGNORECASE)


class _Lines:
    """Lines with their ends, which can be given back."""

    def __init__(self, lines: Rows[str]) -> None:
        self._lines, self._again = lines, deque[str]()
        self.taken: list[str] = []

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else f"{next(self._lines)[1]}\n"
        self.taken.append(line)
        return line

    def keep_first(self) -> str:
        """Give back all lines that were taken but the first."""
        self._again.extendleft(reversed(self.taken[1:]))
        return self.taken[0]


def iter_records(lines: Rows[str], delimiter: str, doubts: Counter[str]) -> Rows[list[str] | BadLine]:
    """Yield records, which may have several lines, counted from 1 as spreadsheets do.

    If quotes do not fit, or a record of several lines has other fields than the first record, it is its first line
    alone, and is counted as a doubt; the others are records of their own.
    """
    source, row, width = _Lines(lines), 0, 0
    reader = csv.reader(source, delimiter=delimiter, strict=True)
    while True:
        source.taken.clear()
        row += 1
        problem = ""
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problem = str(error)
        if not problem and (len(source.taken) == 1 or len(values) == (width or len(values))):
            width = width or len(values)
            yield from [(row, values)] if values else []
            continue
        found = _alone(source.keep_first(), delimiter, width)
        if isinstance(found, BadLine):
            yield row, found
            continue
        width = width or len(found)
        doubts[MISQUOTED] += 1
        yield row, found


def _alone(line: str, delimiter: str, width: int) -> list[str] | BadLine:
    """Divide a line whose quotes do not fit into as many fields as others have."""
    line = line.removesuffix("\n")
    for values in (fields_of(line, delimiter), line.split(delimiter)):
        if values and len(values) == (width or len(values)):
            return values
    return BadLine("quotes in the wrong place", "fields in quotes if they have any", "correct it")


def fields_of(line: str, delimiter: str) -> list[str]:
    """Divide a single line."""
    return next(csv.reader([line.replace("\r", " ")], delimiter=delimiter), [])


def delimiter_of(line: str) -> str:
    """Tell what divides the fields of a header, of `DELIMITERS`."""
    outside = "".join(line.split('"')[::2])
    return max(DELIMITERS, key=outside.count)
