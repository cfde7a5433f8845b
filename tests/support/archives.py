"""Archives and compressed files of texts or bytes, made in memory."""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile

import pyarrow as pa


def zstd(data):
    """Compress bytes."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


#: kind of compression -> what compresses bytes
PACKERS = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress, "zstd": zstd}


def tar_of(*files, form="gz"):
    """Pack pairs of name and content; a name may be a `TarInfo`."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=f"w:{form}") as archive:
        for name, content in files:
            data = content.encode() if isinstance(content, str) else content
            member = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data) if member.isreg() else None)
    return packed.getvalue()


def zip_of(*files, compression=zipfile.ZIP_STORED):
    """Pack pairs of name and content; a name may be a `ZipInfo`."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files:
            member = name if isinstance(name, zipfile.ZipInfo) else zipfile.ZipInfo(name)
            archive.writestr(member, content, compression)
    return packed.getvalue()
