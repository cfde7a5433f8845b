import lzma
import os
import tarfile
import zipfile

import pytest
import yaml

from cort import download
from cort.downloads import catalog, fetch
from tests.support.archives import tar_of, zip_of
from tests.support.common import md5_of
from tests.support.misbehaving_server import serving

TEXT = "".join(f"{number}\ttext {number * 7919 % 10_007}\n" for number in range(20_000)).encode()


def extract_member(words):
    return download.main(["member", *words])


#: packs files
PACK = {
    "tar.gz": tar_of,
    "tar.xz": lambda *files: tar_of(*files, form="xz"),
    "zip": lambda *files: zip_of(*files, compression=zipfile.ZIP_DEFLATED),
}


@pytest.fixture
def arguments(tmp_path):
    """Options for an archive with this content in a folder, and a catalogue with a file of the archive."""

    def make(content, suffix="tar.gz", urls=("http://127.0.0.1:9/archive",), name="archive", known=(), **member):
        folder = tmp_path / "mine"
        folder.mkdir(exist_ok=True)
        if name:
            (folder / f"{name}.{suffix}").write_bytes(content)
        archive = {"urls": list(urls), **(known or {"md5": md5_of(content)})}
        member = {"archive": f"test/archive.{suffix}", "member": "file.tsv", "lines": 20_000} | member
        files = {f"test/archive.{suffix}": archive, "test/taken.tsv": member}
        # Catalogues are cached by path.
        catalog._load.cache_clear()
        (tmp_path / "catalog.yaml").write_text(yaml.safe_dump({"files": files}), "utf-8")
        named = {"name": "test/taken.tsv", "catalog": tmp_path / "catalog.yaml", "downloads": tmp_path / "own"}
        named |= {"folder": folder, "output": tmp_path / "raw" / "taken.tsv"}
        return [str(part) for option, value in named.items() for part in (f"--{option}", value)]

    return make


@pytest.fixture
def output(tmp_path):
    return tmp_path / "raw" / "taken.tsv"


@pytest.mark.parametrize("suffix", PACK)
def test_only_the_member_asked_for_is_extracted(arguments, output, tmp_path, suffix):
    files = [("other.tsv", b"x" * 50_000), ("../escaped", b"1"), ("set/file.tsv", TEXT), ("set/more.tsv", b"1")]
    assert extract_member(arguments(PACK[suffix](*files), suffix, member="set/file.tsv")) == 0
    assert output.read_bytes() == TEXT
    assert [path.name for path in output.parent.glob("[!.]*")] == ["taken.tsv"]
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "raw", "catalog.yaml"}


def test_names_in_an_archive_may_begin_with_a_dot(arguments, output):
    assert extract_member(arguments(tar_of(("./file.tsv", TEXT)))) == 0
    assert output.read_bytes() == TEXT


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


def test_a_copy_with_other_lines_is_passed_over(arguments, output, tmp_path, capsys):
    argv = arguments(tar_of(("file.tsv", TEXT)))
    mine = tmp_path / "mine" / "file.tsv"
    mine.write_bytes(TEXT + b"one more\n")
    assert extract_member(argv) == 0
    assert (output.read_bytes(), mine.read_bytes()) == (TEXT, TEXT + b"one more\n")
    assert f"{mine}: found 20001 lines, expected test/taken.tsv (20000 lines)" in capsys.readouterr().err


def test_without_network_and_folder_the_error_names_the_archive(arguments, complaint, output, monkeypatch):
    monkeypatch.setattr(fetch, "ATTEMPTS", 1)
    line = complaint(extract_member, arguments(b"x", name=""), output)
    assert line.startswith("test/archive.tar.gz: found no working mirror (127.0.0.1:9: ")
    assert "fetch http://127.0.0.1:9/archive elsewhere and put it into the folder" in line


@pytest.mark.parametrize("suffix", PACK)
def test_a_file_that_the_archive_lacks_is_one_line(arguments, complaint, output, suffix):
    argv = arguments(PACK[suffix](("raw/file.tsv", TEXT)), suffix)
    assert "found no file.tsv in it, expected that file" in complaint(extract_member, argv, output)


def test_a_link_in_the_place_of_the_file_is_none(arguments, complaint, output):
    link = tarfile.TarInfo("file.tsv")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    assert "found no file.tsv in it" in complaint(extract_member, arguments(tar_of((link, b""))), output)


XZ = tar_of(("file.tsv", TEXT), form="xz")


@pytest.mark.parametrize("damaged", [XZ[:-2000], XZ[:90] + bytes([XZ[90] ^ 1]) + XZ[91:]], ids=["cut", "flipped"])
def test_an_archive_without_a_published_checksum_is_unpacked_to_be_checked(arguments, output, tmp_path, damaged):
    known = {"no_checksum": "none is published", "size": len(XZ)}
    with serving() as server:
        argv = arguments(damaged, "tar.xz", [server.serve("/a", XZ)], known=known)
        assert extract_member(argv) == 0
    assert output.read_bytes() == TEXT
    assert lzma.decompress((tmp_path / "own" / "test" / "archive.tar.xz").read_bytes())


def test_a_full_disk_is_one_line(arguments, complaint, mount_disk, output):
    mount_disk(output.parent, 64)
    line = complaint(extract_member, arguments(tar_of(("file.tsv", os.urandom(300_000)))))
    assert "No space left" in line
    assert not output.exists()
