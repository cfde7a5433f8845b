import bz2
import gzip
import lzma
import re

import pyarrow as pa
import pytest

from cort.formats.lines import iter_blocks, iter_lines, iter_record_batches, iter_text
from cort.formats.records import Qrel
from cort.formats.tables import QRELS
from tests.support.common import refusal, write_file


def write(tmp_path, data, name="file.tsv"):
    return write_file(tmp_path / name, data)


def zstd(data):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


PACKERS = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress, "zstd": zstd}


@pytest.mark.parametrize("pack", [bytes, *PACKERS.values()], ids=["plain", *PACKERS])
def test_lines_are_numbered_from_one_and_keep_their_whitespace(tmp_path, pack):
    for name in ("file.tsv", "file.tsv.gz"):
        (tmp_path / name).write_bytes(pack("1\t a \n\n2\tä\u2028b".encode()))
        # U+2028 is a line separator to str.splitlines, not to a file.
        assert list(iter_lines(tmp_path / name)) == [(1, "1\t a "), (2, ""), (3, "2\tä\u2028b")]


@pytest.mark.parametrize(("data", "expected"), [(b"a\n", ["a"]), (b"", []), (b"a\n\xef\xbb\xbfb\n", ["a", "\ufeffb"])])
def test_lines_end_with_the_file_and_a_later_byte_order_mark_is_text(tmp_path, data, expected):
    assert list(iter_lines(write(tmp_path, data))) == list(enumerate(expected, 1))


@pytest.mark.parametrize("name", ["file.tsv", "file.tsv.gz"])
def test_a_byte_order_mark_and_crlf_are_handled_and_logged_once(tmp_path, name, caplog):
    caplog.set_level("INFO")
    path = write(tmp_path, b"\xef\xbb\xbf1\ta \r\n\r\n2\tb\rb\r\r\nend\r", name)
    for _ in range(2):
        assert list(iter_lines(path)) == [(1, "1\ta "), (2, ""), (3, "2\tb\rb\r"), (4, "end")]
    assert caplog.messages == [f"{path}: dropped the byte order mark", f"{path}: read CRLF line ends as LF"]


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_line_ends_are_the_same_whatever_the_blocks(tmp_path, size):
    path = write(tmp_path, b"\xef\xbb\xbfa\r\nbc\n\r\nd\r\r\n\re\r")
    blocks = [(block.row, bytes(block.data[: block.length])) for block in iter_blocks(path, size)]
    assert b"".join(data for _, data in blocks) == b"a\nbc\n\nd\r\n\re"
    assert [row for row, _ in blocks] == [1 + sum(d.count(b"\n") for _, d in blocks[:i]) for i in range(len(blocks))]


ICONV = "expected UTF-8 text; convert the file (`iconv -f UTF-{} -t UTF-8`)"
UNMARKED = "found UTF-16 or UTF-32 text without a byte order mark, or binary data, " + ICONV.format("16LE")


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"1\ta\n2\ta\x00b\n", "row 2: found a NUL byte at byte 4, expected text; remove it, or name a file of text"),
        ("1\ta\n".encode("utf-16"), "found UTF-16 text, " + ICONV.format(16)),
        ("1\ta\n".encode("utf-32"), "found UTF-32 text, " + ICONV.format(32)),
        (b"\xfe\xff" + "1\ta\n".encode("utf-16-be"), "found UTF-16 text, " + ICONV.format(16)),
        ("1\ta\n".encode("utf-16-le"), UNMARKED),
        ("1\ta\n".encode("utf-32-be"), UNMARKED),
        (b"PK\x03\x04\x14\x00\n", "found a zip archive, expected UTF-8 text; unpack it"),
    ],
)
def test_other_files_are_recognised(tmp_path, data, complaint):
    assert refusal(iter_lines, write(tmp_path, data)) == complaint


def test_invalid_utf8_is_refused_with_its_place(tmp_path):
    message = refusal(iter_lines, write(tmp_path, b"1\ta\n2\tcaf\xe9 au lait s'il\n"))
    assert message == (
        r"row 2: found invalid UTF-8 at byte 6 ('2\tcaf\\xe9 au lait s'), expected UTF-8; convert the file (`iconv`)"
    )


@pytest.mark.parametrize("kind", PACKERS)
def test_truncated_data_is_refused_after_its_complete_rows(tmp_path, kind):
    data = PACKERS[kind](b"".join(b"%d\ttext\n" % row for row in range(20_000)))
    (tmp_path / "file.tsv").write_bytes(data[:-1000])
    line = refusal(iter_lines, tmp_path / "file.tsv")
    assert re.fullmatch(rf"found damaged {kind} data after row \d+ \(.*", line)
    assert line.endswith(f"expected a complete {kind} file; download or compress it again")


def test_other_encodings_are_read_where_it_is_asked_for_and_logged(tmp_path, caplog):
    caplog.set_level("INFO")
    path = write(tmp_path, "déjà\n".encode() + b"caf\xe9 \x80\0\n")
    assert list(iter_text(path)) == [(1, "déjà"), (2, "café €  ".rstrip() + " ")]
    assert caplog.messages == [f"{path}: rows that are not UTF-8 are read as Windows-1252"]


def test_gzip_with_a_wrong_checksum_is_refused(tmp_path):
    data = bytearray(gzip.compress(b"1\ta\n", mtime=0))
    data[-8] ^= 1
    (tmp_path / "file.tsv.gz").write_bytes(data)
    assert refusal(iter_lines, tmp_path / "file.tsv.gz").startswith("found damaged gzip data after row 1 (CRC check")


def test_records_are_gathered_into_batches(monkeypatch):
    monkeypatch.setattr("cort.formats.lines.ROWS_PER_BATCH", 3)
    qrels = [(row, Qrel(f"q{row}", f"d{row}", row)) for row in range(2, 9)]
    gathered = list(iter_record_batches(iter(qrels), QRELS))
    assert [batch.num_rows for batch in gathered] == [3, 3, 1]
    assert pa.Table.from_batches(gathered).to_pylist() == [qrel._asdict() for _, qrel in qrels]
    assert list(iter_record_batches(iter([]), QRELS)) == []
