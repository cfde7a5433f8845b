"""Compressed files as one stream, whatever they are called: gzip, bzip2, xz or zstd, also of several parts.

Text of UTF-16 or UTF-32 with a byte order mark becomes UTF-8.

Tools that compress in parallel, and `cat`, write several streams after each other, and tapes and xz zeros behind them.
Python's own readers of bzip2 and xz stop there without a word; here, whatever is no stream is damage.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import pyarrow as pa

import cort.formats.arrow  # noqa: F401 - first of all that uses pyarrow
from cort.formats.damage import refusing_damage
from cort.formats.decoding import MARKS

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# How compressed files begin: bzip2 also with an empty stream, zstd also with a frame of metadata, as pzstd writes it.
PACKED = re.compile(
    rb"(?P<gzip>\x1f\x8b)|(?P<bzip2>BZh[1-9](?:1AY&SY|\x17rE8P\x90))|(?P<xz>\xfd7zXZ\x00)"
    rb"|(?P<zstd>\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18)"
)
HEAD, PIECE = 4_096, 1 << 18


class _Pieces(io.RawIOBase):
    """A file of bytes that are made piece by piece."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces, self._rest = filter(None, pieces), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        target = memoryview(buffer).cast("B")
        rest = self._rest or next(self._pieces, b"")
        data, self._rest = rest[: len(target)], rest[len(target) :]
        target[: len(data)] = data
        return len(data)


def _streams(file: BinaryIO, start: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor]) -> Iterator[bytes]:
    """Yield the content of all streams of a file, with any zeros between and behind them.

    :param start: makes the decompressor of a stream.
    """
    packed = file.read(PIECE)
    while packed:
        stream = start()
        while not stream.eof:
            if stream.needs_input and not packed and not (packed := file.read(PIECE)):
                raise EOFError("it ends within a stream")
            yield stream.decompress(packed, PIECE)
            packed = b""
        packed = stream.unused_data.lstrip(b"\0")
        while not packed and (more := file.read(PIECE)):
            packed = more.lstrip(b"\0")


def _recoded(file: BinaryIO, encoding: str) -> Iterator[bytes]:
    """Yield a text as UTF-8; bytes that are none in its encoding are replaced."""
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    while piece := file.read(PIECE):
        yield decoder.decode(piece).encode()
    yield decoder.decode(b"", final=True).encode()


def unpacked(file: BinaryIO) -> io.BufferedReader | gzip.GzipFile:
    """Unpack a file that is compressed; return another one as it is, unless its mark says that it is wide text."""
    plain = _unpacked(file)
    begin = plain.peek(HEAD)
    mark = next((mark for mark in MARKS if mark != codecs.BOM_UTF8 and begin.startswith(mark)), None)
    return io.BufferedReader(_Pieces(_recoded(cast("BinaryIO", plain), MARKS[mark]))) if mark else plain


def _unpacked(file: BinaryIO) -> io.BufferedReader | gzip.GzipFile:
    plain = cast("io.BufferedReader", file)
    match kind_of(plain.peek(HEAD)):
        case "gzip":
            return gzip.GzipFile(fileobj=file)
        case "bzip2":
            return io.BufferedReader(_Pieces(_streams(file, bz2.BZ2Decompressor)))
        case "xz":
            return io.BufferedReader(_Pieces(_streams(file, partial(lzma.LZMADecompressor, lzma.FORMAT_XZ))))
        case "zstd":
            return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd"))
    return plain


def kind_of(head: bytes) -> str | None:
    """Tell by its first bytes how a file is compressed; None for a plain one."""
    found = PACKED.match(head)
    return found.lastgroup if found else None


def refusing_cuts(
    path: str | Path, kind: str | None, rows: Callable[[], int] = lambda: 0
) -> AbstractContextManager[None]:
    """Refuse compressed data that cannot be unpacked.

    :param kind: how they are compressed; errors of plain files are the caller's.
    :param rows: counts those before the damage.
    """
    return refusing_damage(path, f"{kind} file", "download or compress it again", rows) if kind else nullcontext()
