"""Passages in batches: the same records and the same complaints as line by line."""

import gzip
import random
from pathlib import Path

import pyarrow as pa
import pytest

from cort.formats.raw import iter_passage_batches, iter_passages, refuse_duplicates
from cort.formats.tables import PASSAGES, regroup
from cort.system.errors import InputError

DATA = Path(__file__).parents[4] / "shared" / "data"
PLAIN = [b"%d\ttext of passage %d" % (number, number) for number in range(40)]
ODD = [
    b"a\t  blanks around\x1f ",
    b"b\t\xc2\xa0no-break space\xe2\x80\x83",
    "c\tdéjà vu, naïve".encode(),
    b'd\t"quoted", and a comma',
    b"e\tback\\slash and escape \x1b inside",
    b"ids\ttext",
    b"id\ttexts",
    b"k\tcrlf\r",
    "f\tline\u2028separator\x85".encode(),
    "g\u00e9\tan id beyond ASCII".encode(),
    b"h\tNA",
    b"i\tnull",
    b"j\ta lone \r inside",
]
BAD = [
    b"",
    b"only an id",
    b"a\tb\tc",
    b"\tno id",
    b"two words\ttext",
    b'quo"ted\ttext',
    b"j\t   ",
    b"j\t",
    b"j\tNUL \x00 inside",
    b"DOC_ID\tText",
    b"zero\xe2\x80\x8bwidth\ttext",
    b"\xef\xbb\xbfmarked\ttext",
    b"escape\x1b\ttext",
    b"j\tbad \xff byte",
    b"no\xc2\xa0break\ttext",
]


def outcome(read):
    """All records, or the complaint."""
    try:
        return [tuple(record.values()) if isinstance(record, dict) else tuple(record) for record in read()]
    except InputError as error:
        return str(error)


def both(path, block_bytes):
    """What the two readers say of a file."""
    slow = outcome(lambda: [passage for _, passage in iter_passages(path)])
    fast = outcome(lambda: pa.Table.from_batches(iter_passage_batches(path, block_bytes), PASSAGES).to_pylist())
    return fast, slow


@pytest.mark.parametrize("seed", range(60))
def test_batches_hold_what_single_lines_hold(tmp_path, seed):
    generator = random.Random(seed)  # noqa: S311 - a test, not a secret
    lines = [generator.choice(PLAIN if generator.random() < 0.8 else ODD) for _ in range(generator.randrange(60))]
    if seed % 3 == 0:
        lines.insert(generator.randrange(len(lines) + 1), generator.choice(BAD))
    data = b"\n".join(lines) + (b"\n" if lines and generator.random() < 0.5 else b"")
    path = tmp_path / ("c.tsv.gz" if seed % 5 == 0 else "c.tsv")
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    fast, slow = both(path, generator.choice([1, 50, 300, 1 << 20]))
    assert fast == slow


@pytest.mark.parametrize("line", BAD)
def test_a_bad_row_is_refused_with_its_number_whatever_block_it_is_in(tmp_path, line):
    path = tmp_path / "c.tsv"
    path.write_bytes(b"\n".join([*PLAIN, line, *PLAIN]) + b"\n")
    for block_bytes in (1, 200, 1 << 20):
        fast, slow = both(path, block_bytes)
        assert fast == slow
        assert "row 41: " in fast


def test_a_byte_order_mark_and_crlf_change_no_record(tmp_path):
    path = tmp_path / "c.tsv"
    path.write_bytes(b"\r\n".join(PLAIN) + b"\r\n")
    expected = [tuple(line.decode().split("\t")) for line in PLAIN]
    for data in (path.read_bytes(), b"\xef\xbb\xbf" + path.read_bytes()):
        path.write_bytes(data)
        for block_bytes in (1, 200, 1 << 20):
            assert both(path, block_bytes) == (expected, expected)


@pytest.mark.skipif(not DATA.exists(), reason="needs ../shared/data")
@pytest.mark.parametrize("name", ["squad", "nfcorpus", "msmarco-sample"])
def test_real_collections_read_alike(name):
    fast, slow = both(DATA / name / "collection.tsv", 1 << 18)
    assert fast == slow
    assert len(fast) > 3_000


def test_regrouped_tables_have_the_rows_asked_for():
    rows = [pa.record_batch({"a": list(range(start, start + n))}) for start, n in [(0, 3), (3, 8), (11, 1), (12, 4)]]
    tables = list(regroup(rows, 5))
    assert [table.num_rows for table in tables] == [5, 5, 5, 1]
    assert [row for table in tables for row in table["a"].to_pylist()] == list(range(16))
    assert list(regroup([], 5)) == []


@pytest.mark.parametrize(
    ("chunks", "again"),
    [
        ([["1", "2"], [], ["10", "11"]], None),
        ([["2"], ["1"]], None),
        ([["01"], ["1"]], None),
        ([["1", "2"], ["2"]], 3),
        ([["1", "a"], ["1"]], 3),
        ([["1"], ["1"]], 2),
    ],
)
def test_duplicates_are_found_among_numbers_and_other_ids(chunks, again):
    keys = pa.chunked_array(chunks, pa.string())
    if again is None:
        refuse_duplicates([("c.tsv", range(1, len(keys) + 1))], keys, "doc_id")
    else:
        with pytest.raises(InputError, match=f"row {again}: "):
            refuse_duplicates([("c.tsv", range(1, len(keys) + 1))], keys, "doc_id")
