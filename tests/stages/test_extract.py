import gzip
import io
import os
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from cort import download
from cort.downloads import archives, catalog
from tests.support.archives import tar_of, zip_of
from tests.support.common import md5_of
from tests.support.misbehaving_server import serving

TEXT = "".join(f"{number}\ttext {number * 7919 % 10_007}\n" for number in range(20_000)).encode()


def extract_member(words):
    return download.main(["member", *words])


def entry(name, content=TEXT, **fields):
    """A member of a tar archive."""
    info = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


#: packs one file
PACK = {
    "tar.gz": lambda name, content=TEXT: tar_of((name, content)),
    "zip": lambda name, content=TEXT: zip_of((name, content), compression=zipfile.ZIP_DEFLATED),
}


def link(name, target, kind=tarfile.SYMTYPE):
    return entry(name, b"", type=kind, linkname=target)


@pytest.fixture
def arguments(tmp_path):
    """Options for an archive with this content in a folder, and a catalogue with a file of the archive."""

    def make(content, suffix="tar.gz", urls=("http://127.0.0.1:9/archive",), name="archive", **known):
        folder = tmp_path / "mine"
        folder.mkdir(exist_ok=True)
        if name:
            (folder / f"{name}.{suffix}").write_bytes(content)
        archive = {"urls": list(urls), "size": len(content), "md5": md5_of(content)}
        known = {"member": "file.tsv", "lines": 20_000, "size": len(TEXT)} | known
        member = {"archive": f"test/archive.{suffix}"} | {key: value for key, value in known.items() if value}
        files = {f"test/archive.{suffix}": archive, "test/taken.tsv": member}
        # Catalogues are cached by path.
        catalog._load.cache_clear()
        (tmp_path / "catalog.yaml").write_text(yaml.safe_dump({"files": files}), "utf-8")
        named = {"name": "test/taken.tsv", "catalog": tmp_path / "catalog.yaml", "downloads": tmp_path / "own"}
        named |= {"folder": folder, "output": tmp_path / "raw" / "taken.tsv", "attempts": 1}
        return [str(part) for option, value in named.items() for part in (f"--{option}", value)]

    return make


@pytest.fixture
def output(tmp_path):
    return tmp_path / "raw" / "taken.tsv"


@pytest.fixture
def refused(arguments, complaint, output, tmp_path):
    """Extract in vain, leaving nothing; the one-line error."""

    def run(content, suffix="tar.gz", **known):
        argv = arguments(content, suffix, **known)
        before = {path for path in tmp_path.rglob("*") if path.is_file()}
        line = complaint(extract_member, argv, output)
        assert {path for path in tmp_path.rglob("*") if path.is_file()} == before
        return line

    return run


OTHER = ("other.tsv", b"x" * 50_000)
GOOD = {
    "tar.gz": ("tar.gz", tar_of(entry(*OTHER), entry("file.tsv"), entry("more/after.tsv")), "file.tsv"),
    "dot": ("tar.gz", tar_of(("./file.tsv", TEXT)), "file.tsv"),
    "xz": ("tar.xz", tar_of(OTHER, ("file.tsv", TEXT), form="xz"), "file.tsv"),
    "deflated": ("zip", zip_of(OTHER, ("set/file.tsv", TEXT), compression=zipfile.ZIP_DEFLATED), "set/file.tsv"),
    "stored": ("zip", zip_of(OTHER, ("set/file.tsv", TEXT)), "set/file.tsv"),
}


@pytest.mark.parametrize(("suffix", "content", "member"), GOOD.values(), ids=GOOD)
def test_only_the_member_asked_for_is_extracted(arguments, output, suffix, content, member):
    assert extract_member(arguments(content, suffix, member=member)) == 0
    assert output.read_bytes() == TEXT
    assert [path.name for path in output.parent.glob("[!.]*")] == ["taken.tsv"]


def test_a_last_line_may_lack_its_end(arguments, output):
    assert extract_member(arguments(tar_of(entry("file.tsv", TEXT[:-1])))) == 0
    assert output.read_bytes() == TEXT[:-1]


def test_a_file_outside_archives_is_not_for_this_stage(complaint, tmp_path):
    argv = ["--name", "msmarco/qrels.dev.tsv", "--downloads", tmp_path, "--output", tmp_path / "x"]
    assert "expected a member of an archive; use `cort.download file`" in complaint(extract_member, argv)


def test_the_archive_is_fetched_if_need_be_and_kept(arguments, output):
    content = tar_of(("file.tsv", TEXT))
    with serving() as server:
        argv = arguments(content, urls=[server.serve("/a.tar.gz", content)], name="")
        for _ in range(2):
            assert extract_member(argv) == 0
            assert output.read_bytes() == TEXT
            output.unlink()
        assert server.sent["/a.tar.gz"] == [len(content)]


@pytest.mark.parametrize("name", ["taken.tsv", "file.tsv", "test/taken.tsv"])
def test_a_copy_of_the_member_is_used_without_the_archive(arguments, output, tmp_path, name):
    argv = arguments(b"not fetched", name="")
    (tmp_path / "mine" / "test").mkdir()
    (tmp_path / "mine" / name).write_bytes(TEXT)
    assert extract_member(argv) == 0
    assert output.read_bytes() == TEXT


def test_a_copy_is_ignored_if_the_catalogue_cannot_check_it(arguments, output, tmp_path):
    argv = arguments(tar_of(("file.tsv", TEXT)), lines=None)
    (tmp_path / "mine" / "file.tsv").write_bytes(b"another file of that name\n")
    assert extract_member(argv) == 0
    assert output.read_bytes() == TEXT


def test_a_copy_with_other_lines_is_refused_and_left_alone(arguments, complaint, output, tmp_path):
    argv = arguments(tar_of(("file.tsv", TEXT)))
    mine = tmp_path / "mine" / "file.tsv"
    mine.write_bytes(TEXT + b"one more\n")
    line = complaint(extract_member, argv, output)
    assert line.startswith(f"{mine}: found 20001 lines, expected test/taken.tsv (20000 lines)")
    assert mine.exists()


def test_without_network_and_folder_the_error_names_the_archive(arguments, complaint, output):
    line = complaint(extract_member, arguments(b"x", name=""), output)
    assert line.startswith("test/archive.tar.gz: found no working mirror (127.0.0.1:9: ")
    assert "fetch http://127.0.0.1:9/archive elsewhere and put it into the folder" in line


@pytest.mark.parametrize(
    "hostile",
    [
        *map(entry, ("../escaped", "raw/../../escaped", "/tmp/cort-escaped")),  # noqa: S108
        *(link("raw", "/"), link("escaped", "/etc/passwd"), link("escaped", "/etc/passwd", tarfile.LNKTYPE)),
        entry("escaped", b"", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
        entry("escaped", b"", type=tarfile.FIFOTYPE),
    ],
    ids=lambda one: f"{one[0].type.decode()} {one[0].name}",
)
def test_other_members_are_never_unpacked(arguments, output, tmp_path, hostile):
    assert extract_member(arguments(tar_of(hostile, entry("file.tsv")))) == 0
    assert output.read_bytes() == TEXT
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "raw", "catalog.yaml"}
    assert [path.name for path in output.parent.glob("[!.]*")] == ["taken.tsv"]
    assert not Path("/tmp/cort-escaped").exists()  # noqa: S108


@pytest.mark.parametrize("suffix", PACK)
def test_a_member_much_larger_than_known_is_refused_before_it_fills_a_disk(refused, monkeypatch, suffix):
    monkeypatch.setattr(archives, "read_chunks", lambda _: pytest.fail("it was read"))
    line = refused(PACK[suffix]("file.tsv", TEXT * 10), suffix)
    assert f"found file.tsv of {len(TEXT) * 10} bytes, expected" in line


@pytest.mark.parametrize("suffix", PACK)
def test_a_bomb_of_unknown_size_is_refused(refused, suffix):
    content = PACK[suffix]("file.tsv", bytes(50_000_000))
    assert len(content) < 60_000
    assert "found file.tsv of 50000000 bytes, expected" in refused(content, suffix, size=None)


def test_a_bomb_before_the_member_is_refused(refused):
    content = tar_of(entry("other", bytes(50_000_000)), entry("file.tsv"))
    assert "found more than 100 times its size when unpacked" in refused(content)


def test_a_bomb_in_a_header_is_refused(refused):
    # A header that is read as a whole.
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        info = tarfile.TarInfo("header")
        info.type, info.size = tarfile.XHDTYPE, 50_000_000
        archive.fileobj.write(info.tobuf())
        archive.fileobj.write(bytes(50_000_256))
    assert len(packed.getvalue()) < 60_000
    assert "found more than 100 times its size when unpacked" in refused(packed.getvalue())


def of_mode(mode):
    info = zipfile.ZipInfo("file.tsv")
    info.external_attr = (mode | 0o777) << 16
    return zip_of((info, "/etc/passwd"))


def flipped(content, *places, bits=0xFF):
    changed = bytearray(content)
    for place in places:
        changed[place] ^= bits
    return bytes(changed)


LINK, DEVICE = (f"found file.tsv, {what}, expected a plain file" for what in ("a link to '/x'", "a device"))
DAMAGED, MISSING = "found a damaged archive (", "found no 'file.tsv' in it, expected that file"
TAR, ZIP, STORED = PACK["tar.gz"]("file.tsv"), PACK["zip"]("file.tsv"), zip_of(("file.tsv", TEXT))
WITH_LAST = tar_of(entry("file.tsv"), entry("after.tsv", os.urandom(3_000_000)))
CHARACTERS = entry("file.tsv", b"", type=tarfile.CHRTYPE, devmajor=1, devminor=5)
REFUSED = {
    "symbolic link": ("tar.gz", tar_of(link("file.tsv", "/x")), LINK),
    "hard link": ("tar.gz", tar_of(link("file.tsv", "/x", tarfile.LNKTYPE)), LINK),
    "characters": ("tar.gz", tar_of(CHARACTERS), DEVICE),
    "blocks": ("tar.gz", tar_of(entry("file.tsv", b"", type=tarfile.BLKTYPE)), DEVICE),
    "pipe": ("tar.gz", tar_of(entry("file.tsv", b"", type=tarfile.FIFOTYPE)), DEVICE),
    "folder": ("tar.gz", tar_of(entry("file.tsv", b"", type=tarfile.DIRTYPE)), "found file.tsv, not a plain file"),
    "link.zip": ("zip", of_mode(stat.S_IFLNK), "found file.tsv, a link"),
    "device.zip": ("zip", of_mode(stat.S_IFCHR), "found file.tsv, a folder or device"),
    "encrypted": ("zip", flipped(STORED, 6, STORED.rindex(b"PK\x01\x02") + 8, bits=1), "found file.tsv, encrypted"),
    "xz": ("tar.xz", tar_of(("file.tsv", TEXT), form="xz")[:-2000], DAMAGED),
    "flipped.zip": ("zip", flipped(ZIP, len(ZIP) // 2), DAMAGED),
    "flipped.tar.gz": ("tar.gz", flipped(TAR, len(TAR) // 2), "found "),
    "checksum": ("tar.gz", WITH_LAST[:-8] + b"0000" + WITH_LAST[-4:], DAMAGED),
    "twice": ("tar.gz", tar_of(entry("file.tsv"), entry("./file.tsv", b"other")), "found 'file.tsv' twice"),
    "twice.zip": ("zip", zip_of(("file.tsv", b""), ("xxxx.tsv", TEXT)).replace(b"xxxx", b"file"), "'file.tsv' 2 times"),
}
for suffix, pack in PACK.items():
    for name in ("other.tsv", "../file.tsv", "/file.tsv", "raw/../file.tsv", ".//../file.tsv"):
        REFUSED[f"{name}.{suffix}"] = (suffix, pack(name), MISSING)
    REFUSED[f"page.{suffix}"] = (suffix, b"<html>not found</html>" * 50, DAMAGED)
    REFUSED[f"no archive.{suffix}"] = (suffix, gzip.compress(b"not found"), "found ")
    for share in (0.02, 0.3, 0.9):
        REFUSED[f"{share}.{suffix}"] = (suffix, pack("file.tsv")[: int(len(pack("file.tsv")) * share)], DAMAGED)
    for text in (TEXT + b"one more\n", TEXT[:-100]):
        lines = f"{len(text.splitlines())} lines"
        found = f"found file.tsv with {lines}, expected 20000 lines; it is another version"
        REFUSED[f"{lines}.{suffix}"] = (suffix, pack("file.tsv", text), found)


@pytest.mark.parametrize(("suffix", "content", "found"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_archive_with_that_file_is_refused(refused, suffix, content, found):
    assert found in refused(content, suffix)


def test_a_member_with_another_checksum_and_a_sparse_one_are_refused(refused, monkeypatch):
    assert "with the md5 " in refused(tar_of(("file.tsv", TEXT)), md5="0" * 32, lines=None)
    monkeypatch.setattr(tarfile.TarInfo, "issparse", lambda _: True)
    assert "expected a plain file" in refused(tar_of(("file.tsv", TEXT)))


def test_a_full_disk_is_one_line(arguments, complaint, mount_disk, output):
    mount_disk(output.parent, 64)
    line = complaint(extract_member, arguments(tar_of(entry("file.tsv", os.urandom(300_000))), lines=None))
    assert "No space left" in line
    assert not output.exists()
