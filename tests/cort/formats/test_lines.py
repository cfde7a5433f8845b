import bz2
import gzip
import itertools
import lzma

import pyarrow as pa
import pytest

from cort.formats.lines import head_of, iter_blocks, iter_lines, iter_record_batches, iter_text
from cort.formats.records import Qrel
from cort.formats.tables import QRELS
from tests.support.archives import PACKERS, zstd
from tests.support.common import refusal, write_file


def write(tmp_path, data, name="file.tsv"):
    return write_file(tmp_path / name, data)


@pytest.mark.parametrize("pack", [bytes, *PACKERS.values()], ids=["plain", *PACKERS])
def test_lines_are_numbered_from_one_and_keep_their_whitespace(tmp_path, pack):
    for name in ("file.tsv", "file.tsv.gz"):
        (tmp_path / name).write_bytes(pack("1\t a \n\n2\tä\u2028b".encode()))
        # U+2028 is a line separator to str.splitlines, not to a file.
        assert list(iter_lines(tmp_path / name)) == [(1, "1\t a "), (2, ""), (3, "2\tä\u2028b")]


@pytest.mark.parametrize("name", ["file.tsv", "file.tsv.gz"])
def test_a_byte_order_mark_and_crlf_are_handled_and_logged_once(tmp_path, name, caplog):
    caplog.set_level("INFO")
    path = write(tmp_path, b"\xef\xbb\xbf1\ta \r\n\r\n2\tb\rb\r\r\nend\r", name)
    for _ in range(2):
        assert list(iter_lines(path)) == [(1, "1\ta "), (2, ""), (3, "2\tb\rb\r"), (4, "end")]
    assert caplog.messages == [f"{path}: dropped the byte order mark", f"{path}: read CRLF line ends as LF"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-be"])
def test_text_with_the_mark_of_another_encoding_is_read(tmp_path, encoding, pack):
    text = "\r\n".join(f"{row}\tä \U0001d11e {'x' * row}" for row in range(1, 1_000))
    mark = "\ufeff" if encoding.endswith("be") else ""
    path = write(tmp_path, pack(f"{mark}{text}".encode(encoding)))
    assert list(iter_lines(path)) == list(enumerate(text.split("\r\n"), 1))
    assert head_of(path).decode("utf-8", "ignore") == text[: len(head_of(path).decode("utf-8", "ignore"))]


def test_lines_of_old_macs_end_with_cr(tmp_path):
    expected = ["id,text", "1,a", "", "2,b"]
    assert list(iter_lines(write(tmp_path, b"id,text\r1,a\r\r2,b\r"))) == list(enumerate(expected, 1))


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_line_ends_are_the_same_whatever_the_blocks(tmp_path, size):
    path = write(tmp_path, b"\xef\xbb\xbfa\r\nbc\n\r\nd\r\r\n\re\r")
    blocks = [(block.row, bytes(block.data[: block.length])) for block in iter_blocks(path, size)]
    assert b"".join(data for _, data in blocks) == b"a\nbc\n\nd\r\n\re"
    assert [row for row, _ in blocks] == [1 + sum(d.count(b"\n") for _, d in blocks[:i]) for i in range(len(blocks))]


def test_other_encodings_are_read_where_it_is_asked_for_and_logged(tmp_path, caplog):
    caplog.set_level("INFO")
    path = write(tmp_path, "déjà\n".encode() + b"caf\xe9 \x80\0\n")
    assert list(iter_text(path)) == [(1, "déjà"), (2, "café €  ".rstrip() + " ")]
    assert caplog.messages == [f"{path}: rows read as Windows-1252: 1"]


def test_records_are_gathered_into_batches(monkeypatch):
    monkeypatch.setattr("cort.formats.lines.ROWS_PER_BATCH", 3)
    qrels = [(row, Qrel(f"q{row}", f"d{row}", row)) for row in range(2, 9)]
    gathered = list(iter_record_batches(iter(qrels), QRELS))
    assert [batch.num_rows for batch in gathered] == [3, 3, 1]
    assert pa.Table.from_batches(gathered).to_pylist() == [qrel._asdict() for _, qrel in qrels]
    assert list(iter_record_batches(iter([]), QRELS)) == []


FIRST, SECOND = b"1\ta\n", b"2\tb\n"


# What tools write between streams and behind them: xz pads to four bytes, tapes to blocks, pzstd has metadata.
BETWEEN = {
    "gzip": [b"", b"\0" * 512, gzip.compress(b"")],
    "bzip2": [b"", b"\0" * 512, bz2.compress(b"")],
    "xz": [b"", b"\0" * 4, b"\0" * (1 << 20), lzma.compress(b"")],
    "zstd": [b"", b"\x50\x2a\x4d\x18\x04\0\0\0abcd", zstd(b"")],
}


@pytest.mark.parametrize("kind", PACKERS)
def test_all_streams_are_read(tmp_path, kind):
    pack, path = PACKERS[kind], tmp_path / "file"
    # gzip's zeros have to be followed by a header, which no file begins with.
    for before, between, after in itertools.product(BETWEEN[kind], repeat=3):
        path.write_bytes(before.lstrip(b"\0") + pack(FIRST) + between + pack(SECOND) + after)
        assert list(iter_lines(path)) == [(1, "1\ta"), (2, "2\tb")]
        assert head_of(path) == FIRST + SECOND


@pytest.mark.parametrize("kind", PACKERS)
def test_what_is_no_stream_or_ends_early_is_damage(tmp_path, kind):
    pack, path = PACKERS[kind], tmp_path / "file"
    for data in (pack(FIRST) + b"garbage", pack(FIRST) + pack(SECOND)[:-3], pack(FIRST)[:-1]):
        path.write_bytes(data)
        assert "found unreadable bytes after row " in refusal(iter_lines, path)
