"""Compressed files of several streams: all of them, or an error."""

import bz2
import gzip
import itertools
import lzma

import pytest

from cort.formats.lines import head_of, iter_lines
from tests.support.archives import PACKERS, zstd
from tests.support.common import refusal

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
