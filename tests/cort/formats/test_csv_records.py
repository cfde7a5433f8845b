"""CSV as spreadsheets write it, and with mistakes that cost nothing but the row that has them."""

import csv
import io
from collections import Counter

import pytest

from cort.formats.csv_records import MISQUOTED, delimiter_of, iter_records
from cort.formats.fields import BadLine

ROWS = [["id", "text"], ["1", 'He said "no",\nthen, left.'], ["2", ""], ["3", "it's; x"], ["4", "a\tb"]]


def read(text, delimiter=","):
    doubts = Counter()
    lines = enumerate(text.split("\n")[: -1 if text.endswith("\n") else None], 1)
    records = list(iter_records(lines, delimiter, doubts))
    return [values for _, values in records], [row for row, _ in records], doubts[MISQUOTED]


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_what_spreadsheets_write_is_read(delimiter):
    file = io.StringIO()
    csv.writer(file, delimiter=delimiter, lineterminator="\n").writerows(ROWS)
    assert read(file.getvalue(), delimiter) == (ROWS, [1, 2, 3, 4, 5], 0)


# fmt: off
BROKEN = {
    # Never closed: to the end of the file.
    "id,text\n1,a\n2,\"b\n3,c\n4,d\n": [["1", "a"], ["2", "b"], ["3", "c"], ["4", "d"]],
    # Closed by the quote of another row.
    "id,text\n1,\"a\n2,\"b\"\n3,c\n": [["1", "a"], ["2", "b"], ["3", "c"]],
    "id,text\n1,\"a\n2,b\n3,\"c, d\"\n4,d\n": [["1", "a"], ["2", "b"], ["3", "c, d"], ["4", "d"]],
    # Something behind a quote.
    "id,text\n1,\"a\" b\n2,\"b\nb\"\n3,c\n": [["1", "a b"], ["2", "b\nb"], ["3", "c"]],
    "id,text\n1,5\" pipe\n2,b\n": [["1", '5" pipe'], ["2", "b"]],
    # Rows are swallowed, and the record has other fields than the header.
    "id,text\n1,\"a\n2,b\n3,c\",x\n4,d\n": [["1", "a"], ["2", "b"], ["4", "d"]],
}
# fmt: on


@pytest.mark.parametrize("text", BROKEN)
def test_a_quote_in_the_wrong_place_costs_no_other_row(text):
    values, rows, doubts = read(text)
    assert rows == [*range(1, len(values) + 1)]
    good = [one for one in values[1:] if not isinstance(one, BadLine) and len(one) == 2]
    assert good == BROKEN[text]
    lines = text.count("\n") - 1 - sum(one[1].count("\n") for one in good)
    assert len(values) - 1 == lines
    assert doubts == (text.count('5"') == 0)


def test_many_bad_quotes_take_no_time():
    text = "id,text\n" + "".join(f'{row},"broken\n' for row in range(20_000))
    values, _, doubts = read(text)
    assert (len(values), doubts) == (20_001, 20_000)


@pytest.mark.parametrize(
    ("line", "expected"), [("id;text", ";"), ("id,text", ","), ("text", ","), ('"a;b;c",d', ","), ('"a,b,c";d', ";")]
)
def test_delimiters(line, expected):
    assert delimiter_of(line) == expected
