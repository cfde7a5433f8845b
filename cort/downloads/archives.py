"""One member of an archive, as a stream of bytes: nothing else of it is unpacked, no name in it is used as a path.

Links, devices and sparse files are refused as members; what an archive expands to is bounded, by the catalogue's size
of the member and by a factor of its own size, before anything fills a disk or the memory.
"""

from __future__ import annotations

import gzip
import io
import lzma
import stat
import tarfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple, cast

from cort.downloads.catalog import CHUNK, PublicFile, Tally, difference, read_chunks
from cort.formats.members import iter_tar, open_zip, refusing_damage
from cort.system.errors import input_error, shorten
from cort.system.files import atomic_file
from cort.system.progress import track

# Texts shrink to a third or a quarter; a bomb, to a thousandth. The slack is for the padding of small archives.
RATIO, SLACK = 100, 1 << 20
# How far the catalogue's size of a member may be from the truth.
TOLERANCE = 2
ENCRYPTED = 0x1
BOMB = ("what such texts expand to", "fetch the archive again, from another mirror")


class Member(NamedTuple):
    """A member of an archive: why it cannot be taken, if so; its size in bytes; a stream of it, on demand."""

    fault: str
    size: int
    open: Callable[[], AbstractContextManager[IO[bytes] | None]]


def extract(archive: Path, file: PublicFile, output: Path) -> int:
    """Write a member to a file of its own, checked while it streams; the number of its bytes.

    Refused are damaged and hostile archives, and those without the member or with another than expected.
    """
    tally = Tally(file)
    with atomic_file(output) as temporary, open(temporary, "wb") as out:
        for chunk in track(_member_chunks(archive, file), file.about // CHUNK or None, "MiB"):
            out.write(chunk)
            tally.add(chunk)
        found = difference(tally, file)
        if found is not None:
            fix = "it is another version of the archive: fetch it again"
            raise input_error(archive, f"{file.member} with {found}", file.facts, fix)
    return tally.bytes


def _member_chunks(archive: Path, file: PublicFile) -> Iterator[bytes]:
    """Yield a member of a ``.tar.gz``, ``.tar.xz`` or ``.zip`` in chunks of `CHUNK` bytes, the last one shorter."""
    ratio = RATIO * archive.stat().st_size + SLACK
    limit = min(TOLERANCE * file.about + SLACK, ratio) if file.about else ratio
    look_up = _in_zip if str(file.archive).endswith(".zip") else _in_tar
    again = "fetch the archive again"
    with refusing_damage(archive), look_up(archive, str(file.member), ratio) as member:
        if member is None:
            raise input_error(archive, f"no {shorten(str(file.member))} in it", "that file", again)
        if member.fault:
            raise input_error(archive, f"{file.member}, {member.fault}", "a plain file", again)
        if member.size > limit:
            raise input_error(archive, f"{file.member} of {member.size} bytes", *BOMB)
        with member.open() as handle:
            yield from read_chunks(cast("IO[bytes]", handle))


@contextmanager
def _in_tar(archive: Path, name: str, limit: int) -> Iterator[Member | None]:
    with (lzma.open if archive.suffix == ".xz" else gzip.open)(archive, "rb") as packed:
        bounded = cast("IO[bytes]", _Bounded(cast("IO[bytes]", packed), limit, archive))
        found = False
        for tar, entry in iter_tar(archive, bounded):
            if entry.name.removeprefix("./") != name:
                continue
            if found:
                raise input_error(archive, f"{shorten(name)} twice", "it once", "fetch the archive again")
            found = True
            link = f"a link to {shorten(entry.linkname)}" if entry.issym() or entry.islnk() else ""
            fault = link or ("a device" if entry.isdev() else "no plain file")
            is_plain = entry.isreg() and not entry.issparse()
            yield Member("" if is_plain else fault, entry.size, partial(_extracted, tar, entry))
        if not found:
            yield None


def _extracted(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> IO[bytes]:
    return cast("IO[bytes]", tar.extractfile(entry))


@contextmanager
def _in_zip(archive: Path, name: str, _: int) -> Iterator[Member | None]:
    with open_zip(archive) as (zipped, names):
        if name not in names:
            yield None
        else:
            entry = zipped.getinfo(name)
            # Zero where the archive was made on a system without such modes.
            mode = stat.S_IFMT(entry.external_attr >> 16)
            fault = "encrypted" if entry.flag_bits & ENCRYPTED else ""
            if mode not in (0, stat.S_IFREG):
                fault = "a link" if mode == stat.S_IFLNK else "a folder or device"
            yield Member(fault, entry.file_size, lambda: zipped.open(entry))


class _Bounded(io.RawIOBase):
    """What an archive expands to, as far as it is allowed."""

    def __init__(self, stream: IO[bytes], limit: int, archive: Path) -> None:
        self._stream, self._left, self._archive = stream, limit, archive

    def read(self, size: int = -1, /) -> bytes:
        """Read on."""
        chunk = self._stream.read(min(size, CHUNK) if size >= 0 else CHUNK)
        self._left -= len(chunk)
        if self._left < 0:
            raise input_error(self._archive, f"more than {RATIO} times its size when unpacked", *BOMB)
        return chunk
