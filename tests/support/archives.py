"""Archives of texts or bytes, made in memory."""

import io
import tarfile
import zipfile


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
