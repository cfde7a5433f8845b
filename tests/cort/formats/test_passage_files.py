"""Passages are read in blocks as they are row by row."""

import random

import pyarrow as pa
import pytest

from cort.formats.passages import iter_passage_batches, iter_passages
from cort.formats.tables import PASSAGES, regroup
from cort.runtime.errors import InputError
from tests.support.common import write_file

PLAIN = [b"%d\ttext of passage %d" % (number, number) for number in range(40)]
ODD = [
    *(b"a\t  blanks around\x1f ", b"b\t\xc2\xa0no-break space\xe2\x80\x83", b'd\t"quoted", and a comma', b"h\tNA"),
    *(b"e\tback\\slash and escape \x1b inside", b"ids\ttext", b"id\ttexts", b"k\tcrlf\r", b"j\ta lone \r inside"),
    *("c\tdéjà vu, naïve".encode(), "f\tline\u2028separator\x85".encode(), "g\u00e9\tan id beyond ASCII".encode()),
    *(b"i\tnull", b"two words\ttext", b'quo"ted\ttext', b"l\t   ", b"m\t", b"", b"  ", b"escape\x1b\ttext"),
    *(b"no\xc2\xa0break\ttext", b"zero\xe2\x80\x8bwidth\ttext", b"\xef\xbb\xbfmarked\ttext"),
    *(b"n\tcaf\xe9 of Windows", b"o\t\xc3\xa9\xc3\xa8\xff UTF-8"),
]
BAD = [b"only an id", b"a\tb\tc", b"\tno id", b"j\tNUL \x00 inside"]


def outcome(read):
    """Return all records, or the error message."""
    try:
        return [tuple(record.values()) if isinstance(record, dict) else tuple(record) for record in read()]
    except InputError as error:
        return str(error)


def in_both_ways(path, block_bytes):
    """Check that both readers return the same, and return that."""
    slow = outcome(lambda: [passage for _, passage in iter_passages(path)])
    batches = iter_passage_batches(path, block_bytes=block_bytes)
    fast = outcome(lambda: pa.Table.from_batches(batches, PASSAGES).to_pylist())
    assert fast == slow
    return fast


def test_batches_hold_what_single_lines_hold(tmp_path):
    for seed in range(60):
        generator = random.Random(seed)  # noqa: S311 - a test, not a secret
        lines = [generator.choice(PLAIN if generator.random() < 0.8 else ODD) for _ in range(generator.randrange(60))]
        if seed % 3 == 0:
            lines.insert(generator.randrange(len(lines) + 1), generator.choice(BAD))
        data = b"\n".join(lines) + (b"\n" if lines and generator.random() < 0.5 else b"")
        path = write_file(tmp_path / ("c.tsv.gz" if seed % 5 == 0 else "c.tsv"), data)
        in_both_ways(path, generator.choice([1, 50, 300, 1 << 20]))


@pytest.mark.parametrize("block_bytes", [200, 1 << 20])
def test_rows_are_counted_across_blocks_and_line_ends_change_no_record(tmp_path, block_bytes):
    path = tmp_path / "c.tsv"
    for line in BAD:
        path.write_bytes(b"\n".join([*PLAIN, line, *PLAIN]) + b"\n")
        assert "row 41: " in in_both_ways(path, block_bytes)
    expected = [tuple(line.decode().split("\t")) for line in PLAIN]
    for mark in (b"", b"\xef\xbb\xbf"):
        path.write_bytes(mark + b"\r\n".join(PLAIN) + b"\r\n")
        assert in_both_ways(path, block_bytes) == expected


def test_regrouped_tables_have_the_requested_rows():
    rows = [pa.record_batch({"a": list(range(start, start + n))}) for start, n in [(0, 3), (3, 8), (11, 1), (12, 4)]]
    tables = list(regroup(rows, 5))
    assert [table.num_rows for table in tables] == [5, 5, 5, 1]
    assert [row for table in tables for row in table["a"].to_pylist()] == list(range(16))
    assert list(regroup([], 5)) == []
