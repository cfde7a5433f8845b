"""One member of an archive, as a stream of bytes: nothing else of it is unpacked, no name in it is used as a path.

Links, devices and sparse files are refused as members; what an archive expands to is bounded, by the catalogue's size
of the member and by a factor of its own size, before anything fills a disk or the memory.
"""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from cort.downloads.catalog import PublicFile
from cort.downloads.checks import CHUNK, difference, read_chunks, tally_for
from cort.system.errors import InputError, input_error, shorten
from cort.system.files import atomic_file
from cort.system.progress import track

# Texts shrink to a third or a quarter; a bomb, to a thousandth. The slack is for the padding of small archives.
RATIO, SLACK = 100, 1 << 20
# How far the catalogue's size of a member may be from the truth.
TOLERANCE = 2
ENCRYPTED = 0x1
DAMAGES = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError, NotImplementedError)


def extract(archive: Path, file: PublicFile, output: Path) -> int:
    """Write a member to a file of its own, checked while it streams; the number of its bytes.

    :raises InputError: for a damaged or hostile archive, or one without the member or with another than expected.
    """
    tally = tally_for(file)
    with atomic_file(output) as temporary, open(temporary, "wb") as out:
        for chunk in track(member_chunks(archive, file), file.about // CHUNK or None, "MiB"):
            out.write(chunk)
            tally.add(chunk)
        found = difference(tally, file)
        if found is not None:
            fix = "it is another version of the archive: fetch it again"
            raise input_error(archive, f"{file.member} with {found}", file.facts, fix)
    return tally.bytes


def member_chunks(archive: Path, file: PublicFile) -> Iterator[bytes]:
    """Yield a member of a ``.tar.gz`` or ``.zip`` in chunks of `CHUNK` bytes, the last one shorter.

    :raises InputError: as `extract`.
    """
    bound = TOLERANCE * file.about + SLACK if file.about else None
    ratio = RATIO * archive.stat().st_size + SLACK
    limit = ratio if bound is None else min(bound, ratio)
    chunks = _zip_chunks if str(file.archive).endswith(".zip") else _tar_chunks
    try:
        yield from chunks(archive, file, limit, ratio)
    except DAMAGES as error:
        found = f"a damaged archive ({' '.join(str(error).split()) or type(error).__name__})"
        raise input_error(archive, found, "a whole one", "fetch it again") from error


def _tar_chunks(archive: Path, file: PublicFile, limit: int, ratio: int) -> Iterator[bytes]:
    with gzip.open(archive, "rb") as packed:
        bounded = _Bounded(cast("IO[bytes]", packed), ratio, archive)
        with tarfile.open(fileobj=bounded, mode="r|", bufsize=CHUNK) as tar:
            for entry in tar:
                if entry.name.removeprefix("./") != file.member:
                    continue
                if not entry.isreg() or entry.issparse():
                    raise _no_file(archive, file, _kind(entry))
                _refuse_size(archive, file, entry.size, limit)
                with cast("IO[bytes]", tar.extractfile(entry)) as member:
                    yield from read_chunks(member)
                return
    raise _missing(archive, file)


def _zip_chunks(archive: Path, file: PublicFile, limit: int, _: int) -> Iterator[bytes]:
    with zipfile.ZipFile(archive) as zipped:
        if file.member not in zipped.namelist():
            raise _missing(archive, file)
        entry = zipped.getinfo(file.member)
        # Zero where the archive was made on a system without such modes.
        mode = stat.S_IFMT(entry.external_attr >> 16)
        if entry.is_dir() or mode not in (0, stat.S_IFREG):
            raise _no_file(archive, file, "a link" if mode == stat.S_IFLNK else "a folder or device")
        if entry.flag_bits & ENCRYPTED:
            raise _no_file(archive, file, "encrypted")
        _refuse_size(archive, file, entry.file_size, limit)
        with zipped.open(entry) as member:
            yield from read_chunks(member)


class _Bounded(io.RawIOBase):
    """What an archive expands to, as far as it is allowed."""

    def __init__(self, stream: IO[bytes], limit: int, archive: Path) -> None:
        self._stream, self._left, self._archive = stream, limit, archive

    def read(self, size: int = -1, /) -> bytes:
        """Read on."""
        chunk = self._stream.read(min(size, CHUNK) if size >= 0 else CHUNK)
        self._left -= len(chunk)
        if self._left < 0:
            raise _bomb(self._archive, f"more than {RATIO} times its size when unpacked")
        return chunk


def _refuse_size(archive: Path, file: PublicFile, size: int, limit: int) -> None:
    if size > limit:
        raise _bomb(archive, f"{file.member} of {size} bytes")


def _bomb(archive: Path, found: str) -> InputError:
    return input_error(archive, found, "what such texts expand to", "fetch the archive again, from another mirror")


def _missing(archive: Path, file: PublicFile) -> InputError:
    return input_error(archive, f"no {shorten(str(file.member))} in it", "that file", "fetch the archive again")


def _no_file(archive: Path, file: PublicFile, found: str) -> InputError:
    return input_error(archive, f"{file.member}, {found}", "a plain file", "fetch the archive again")


def _kind(entry: tarfile.TarInfo) -> str:
    if entry.issym() or entry.islnk():
        return f"a link to {shorten(entry.linkname)}"
    return "a device" if entry.isdev() else "no plain file"
