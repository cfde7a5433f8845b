"""Lines of plain and gzipped text, and what is refused in them."""

import bz2
import gzip
import lzma

import pytest

from cort.formats import lines
from cort.formats.lines import iter_blocks, iter_lines
from cort.system.errors import InputError


def write(tmp_path, data, name="file.tsv"):
    path = tmp_path / name
    path.write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)
    return path


def refusal(path):
    with pytest.raises(InputError) as error:
        list(iter_lines(path))
    message = str(error.value)
    assert "\n" not in message
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize("name", ["file.tsv", "file.tsv.gz"])
def test_lines_are_numbered_from_one_and_keep_their_whitespace(tmp_path, name):
    path = write(tmp_path, "1\t a \n\n2\tä\u2028b".encode(), name)
    # U+2028 is a line separator to str.splitlines, not to a file.
    assert list(iter_lines(path)) == [(1, "1\t a "), (2, ""), (3, "2\tä\u2028b")]


def test_last_line_end_makes_no_line(tmp_path):
    assert list(iter_lines(write(tmp_path, b"a\n"))) == [(1, "a")]


def test_empty_file_has_no_lines(tmp_path):
    assert list(iter_lines(write(tmp_path, b""))) == []


@pytest.mark.parametrize("name", ["file.tsv", "file.tsv.gz"])
def test_byte_order_mark_and_crlf_are_read_as_meant_and_said_once(tmp_path, name, caplog):
    caplog.set_level("INFO")
    path = write(tmp_path, b"\xef\xbb\xbf1\ta \r\n\r\n2\tb\rb\r\r\nend\r", name)
    for _ in range(2):
        assert list(iter_lines(path)) == [(1, "1\ta "), (2, ""), (3, "2\tb\rb\r"), (4, "end")]
    assert caplog.messages == [f"{path}: left out the byte order mark", f"{path}: read CRLF line ends as LF"]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 100])
def test_line_ends_are_the_same_whatever_the_blocks(tmp_path, size):
    path = write(tmp_path, b"\xef\xbb\xbfa\r\nbc\n\r\nd\r\r\n\re\r")
    blocks = [(row, bytes(block[:length])) for row, block, length in iter_blocks(path, size)]
    assert b"".join(data for _, data in blocks) == b"a\nbc\n\nd\r\n\re"
    assert [row for row, _ in blocks] == [1 + sum(d.count(b"\n") for _, d in blocks[:i]) for i in range(len(blocks))]


def test_byte_order_mark_inside_the_file_is_text(tmp_path):
    assert list(iter_lines(write(tmp_path, b"a\n\xef\xbb\xbfb\n"))) == [(1, "a"), (2, "\ufeffb")]


ICONV = "expected UTF-8 text; convert the file (`iconv -f UTF-{} -t UTF-8`)"


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"1\ta\n2\ta\x00b\n", "row 2: found a NUL byte at byte 4, expected text; remove it, or name a file of text"),
        ("1\ta\n".encode("utf-16"), "found UTF-16 text, " + ICONV.format(16)),
        ("1\ta\n".encode("utf-32"), "found UTF-32 text, " + ICONV.format(32)),
        (b"\xfe\xff" + "1\ta\n".encode("utf-16-be"), "found UTF-16 text, " + ICONV.format(16)),
        (
            "1\ta\n".encode("utf-16-le"),
            "found UTF-16 or UTF-32 text without a byte order mark, or no text, " + ICONV.format("16LE"),
        ),
        (
            "1\ta\n".encode("utf-32-be"),
            "found UTF-16 or UTF-32 text without a byte order mark, or no text, " + ICONV.format("16LE"),
        ),
        (gzip.compress(b"1\ta\n", mtime=0), "found gzip data, expected text, as the name says; name it .gz"),
        (b"PK\x03\x04\x14\x00\n", "found a zip archive, expected UTF-8 text; unpack it"),
        (lzma.compress(b"1\ta\n"), "found xz data, expected UTF-8 text; unpack it (`unxz`)"),
        (bz2.compress(b"1\ta\n"), "found bzip2 data, expected UTF-8 text; unpack it (`bunzip2`)"),
    ],
)
def test_other_files_are_recognised(tmp_path, data, complaint):
    assert refusal(write(tmp_path, data)) == complaint


def test_what_is_packed_twice_or_named_gz_without_being_it_is_told_so(tmp_path):
    path = write(tmp_path, gzip.compress(b"1\ta\n"), "file.tsv.gz")
    assert refusal(path) == "found gzip data in gzip data, expected UTF-8 text; unpack it once"
    path.write_bytes(b"1\ta\n")
    assert refusal(path) == (
        "found no gzip data, expected gzip, as the name says; remove .gz from the name, or compress it"
    )


def test_invalid_utf8_is_refused_with_its_place(tmp_path):
    message = refusal(write(tmp_path, b"1\ta\n2\tcaf\xe9 au lait s'il\n"))
    assert message == (
        r"row 2: found invalid UTF-8 at byte 6 ('2\tcaf\\xe9 au lait s'), expected UTF-8; convert the file (`iconv`)"
    )


def test_truncated_gzip_is_refused_after_its_whole_rows(tmp_path):
    path = write(tmp_path, b"".join(b"%d\ttext\n" % row for row in range(20_000)), "file.tsv.gz")
    path.write_bytes(path.read_bytes()[:-2000])
    rows = []
    with pytest.raises(InputError) as error:
        rows.extend(row for row, _ in iter_lines(path))
    assert "damaged gzip data after row" in str(error.value)
    assert str(error.value).endswith("expected a whole gzip file; download or compress it again")


def test_gzip_with_a_wrong_checksum_is_refused(tmp_path):
    path = write(tmp_path, b"1\ta\n", "file.tsv.gz")
    data = bytearray(path.read_bytes())
    data[-8] ^= 1
    path.write_bytes(data)
    assert refusal(path).startswith("found damaged gzip data after row 1 (CRC check failed")


def test_missing_file_is_the_operating_systems_complaint(tmp_path):
    with pytest.raises(FileNotFoundError):
        list(iter_lines(tmp_path / "absent.tsv"))


def test_a_line_that_fills_the_memory_is_refused_with_its_row(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "LONGEST_LINE", 1 << 21)
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"one\n" + b"x" * (5 << 20)))
    with pytest.raises(InputError, match=r"x\.gz: row 2: found a line of more than 2,097,152 bytes"):
        list(iter_lines(tmp_path / "x.gz"))
