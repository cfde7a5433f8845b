"""Archives and tables as bytes, the same from the same contents."""

import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Mapping

# Of a tar, by how its name ends.
PACKED: Mapping[str, Callable[[bytes], bytes]] = {"gz": lambda content: gzip_of(content), "xz": lzma.compress}


def archive_of(name: str, members: Mapping[str, bytes]) -> bytes:
    """Pack files as the name of their archive says: ``.zip``, ``.tar.gz`` or ``.tar.xz``."""
    return zip_of(members) if name.endswith(".zip") else tar_of(members, name.rpartition(".")[2])


def lines_of(lines: Iterable[str]) -> bytes:
    """Write texts, each on its line."""
    return "".join(f"{line}\n" for line in lines).encode()


def gzip_of(content: bytes) -> bytes:
    """Pack one file."""
    return gzip.compress(content, mtime=0)


def tar_of(members: Mapping[str, bytes], suffix: str) -> bytes:
    """Pack files as ``.tar.gz`` or ``.tar.xz``."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return PACKED[suffix](packed.getvalue())


def zip_of(members: Mapping[str, bytes]) -> bytes:
    """Pack files as ``.zip``."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()
