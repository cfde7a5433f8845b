"""Lines of plain and gzipped text, and what is refused in them."""

import gzip

import pytest

from cort.formats.lines import iter_lines
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
def test_byte_order_mark_is_refused(tmp_path, name):
    assert refusal(write(tmp_path, b"\xef\xbb\xbf1\ta\n", name)) == (
        "row 1: found a byte order mark, expected plain UTF-8; remove its first three bytes (`tail -c +4`)"
    )


def test_byte_order_mark_inside_the_file_is_text(tmp_path):
    assert list(iter_lines(write(tmp_path, b"a\n\xef\xbb\xbfb\n"))) == [(1, "a"), (2, "\ufeffb")]


@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
def test_carriage_return_is_refused(tmp_path, end):
    assert refusal(write(tmp_path, b"1\ta\n2\tb" + end)) == (
        "row 2: found a CRLF line end, expected LF line ends; convert the file (`dos2unix`)"
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


def test_plain_text_named_gz_is_refused(tmp_path):
    path = tmp_path / "file.tsv.gz"
    path.write_bytes(b"1\ta\n")
    assert refusal(path).startswith("found damaged gzip data after row 0 (Not a gzipped file")


def test_missing_file_is_the_operating_systems_complaint(tmp_path):
    with pytest.raises(FileNotFoundError):
        list(iter_lines(tmp_path / "absent.tsv"))
