"""Files in archives: their names, and streams of their content."""

import re
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from cort.formats.lines import SMALL_BLOCK
from cort.formats.unpacking import unpacked

#: what a damaged archive should be, and what to do
ARCHIVE = ("archive", "fetch it again")
# Files with attributes that macOS adds to archives.
LITTER = re.compile(r"(.*/)?(__MACOSX/.*|\._[^/]*|\.DS_Store)", re.DOTALL)


def names_in(archive: zipfile.ZipFile) -> list[str]:
    """List the files in a ``.zip``, without those that macOS adds."""
    return [one.filename for one in archive.infolist() if not one.is_dir() and not LITTER.fullmatch(one.filename)]


def iter_members(path: str | Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield (name, content) of the files in a ``.zip`` or a tar file, compressed in any way.

    Nothing is unpacked to disk, so links and paths in an archive lead nowhere.
    """
    if str(path).endswith(".zip"):
        with zipfile.ZipFile(path) as archive:
            for name in names_in(archive):
                with archive.open(name) as content:
                    yield name, content
        return
    with open(path, "rb") as file:
        stream = cast("IO[bytes]", unpacked(file))
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for entry in tar:
                if entry.isreg() and not LITTER.fullmatch(entry.name):
                    yield entry.name.removeprefix("./"), cast("IO[bytes]", tar.extractfile(entry))
        # The checksum follows the padding.
        while stream.read(SMALL_BLOCK):
            pass
