"""One member of an archive as a stream of bytes: nothing else is unpacked, and no name in it is used as a path.

Links, devices and sparse files are refused. The unpacked size is limited by the size of the member in the catalogue and
by a multiple of the archive's size, so that it cannot fill disk or memory.
"""

import gzip
import io
import lzma
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple, cast

from cort.downloads.catalog import CHUNK, PublicFile, Tally, difference, read_chunks
from cort.formats.members import iter_tar, open_zip, refusing_damage
from cort.system.errors import input_error, shorten
from cort.system.files import atomic_file
from cort.system.progress import track

# Texts are compressed to a third or a quarter, bombs to a thousandth. The slack is for the padding of small archives.
RATIO, SLACK = 100, 1 << 20
# How many times larger than its size in the catalogue a member may be.
TOLERANCE = 2
ENCRYPTED = 0x1
AGAIN = "fetch the archive again"
BOMB = ("a size that is usual for texts", "fetch the archive again, from another mirror")


class Member(NamedTuple):
    """A member of an archive: why it is refused, if it is; its size in bytes; a function that opens it."""

    fault: str
    size: int
    open: Callable[[], IO[bytes] | None]


def extract(archive: Path, file: PublicFile, output: Path) -> int:
    """Write a member to a file, checking it on the way; return its size in bytes.

    :raises InputError: if the archive is damaged or hostile, or has no such member or an unexpected one.
    """
    tally = Tally(file)
    with atomic_file(output) as temporary, open(temporary, "wb") as out:
        for chunk in track(_member_chunks(archive, file), file.about // CHUNK or None, "MiB"):
            out.write(chunk)
            tally.add(chunk)
        problem = difference(tally, file)
        if problem is not None:
            fix = "it is another version of the archive: fetch it again"
            raise input_error(archive, f"{file.member} with {problem}", file.facts, fix)
    return tally.bytes


def _member_chunks(archive: Path, file: PublicFile) -> Iterator[bytes]:
    """Yield a member of a ``.tar.gz``, ``.tar.xz`` or ``.zip`` in chunks of at most `CHUNK` bytes."""
    ratio = RATIO * archive.stat().st_size + SLACK
    limit = min(TOLERANCE * file.about + SLACK, ratio) if file.about else ratio
    look_up = _in_zip if str(file.archive).endswith(".zip") else _in_tar
    with refusing_damage(archive), look_up(archive, str(file.member), ratio) as member:
        if member is None:
            raise input_error(archive, f"no {shorten(str(file.member))} in it", "that file", AGAIN)
        if member.fault:
            raise input_error(archive, f"{file.member}, {member.fault}", "a plain file", AGAIN)
        if member.size > limit:
            raise input_error(archive, f"{file.member} of {member.size} bytes", *BOMB)
        with cast("IO[bytes]", member.open()) as handle:
            yield from read_chunks(handle)


@contextmanager
def _in_tar(archive: Path, name: str, limit: int) -> Iterator[Member | None]:
    with (lzma.open if archive.suffix == ".xz" else gzip.open)(archive, "rb") as packed:
        bounded = cast("IO[bytes]", _Bounded(cast("IO[bytes]", packed), limit, archive))
        seen = False
        for tar, entry in iter_tar(archive, bounded):
            if entry.name.removeprefix("./") != name:
                continue
            if seen:
                raise input_error(archive, f"{shorten(name)} twice", "it once", AGAIN)
            seen = True
            link = f"a link to {shorten(entry.linkname)}" if entry.issym() or entry.islnk() else ""
            fault = link or ("a device" if entry.isdev() else "not a plain file")
            is_plain = entry.isreg() and not entry.issparse()
            yield Member("" if is_plain else fault, entry.size, partial(tar.extractfile, entry))
        if not seen:
            yield None


@contextmanager
def _in_zip(archive: Path, name: str, _: int) -> Iterator[Member | None]:
    with open_zip(archive) as (zipped, names):
        if name not in names:
            yield None
        else:
            entry = zipped.getinfo(name)
            # Zero if the archive was made on a system without such modes.
            mode = stat.S_IFMT(entry.external_attr >> 16)
            fault = "encrypted" if entry.flag_bits & ENCRYPTED else ""
            if mode not in (0, stat.S_IFREG):
                fault = "a link" if mode == stat.S_IFLNK else "a folder or device"
            yield Member(fault, entry.file_size, lambda: zipped.open(entry))


class _Bounded(io.RawIOBase):
    """The unpacked content of an archive, up to a limit."""

    def __init__(self, stream: IO[bytes], limit: int, archive: Path) -> None:
        self._stream, self._left, self._archive = stream, limit, archive

    def read(self, size: int = -1, /) -> bytes:
        """Read the next bytes."""
        chunk = self._stream.read(min(size, CHUNK) if size >= 0 else CHUNK)
        self._left -= len(chunk)
        if self._left < 0:
            raise input_error(self._archive, f"more than {RATIO} times its size when unpacked", *BOMB)
        return chunk
