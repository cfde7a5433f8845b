import errno
import fcntl
import gzip
import lzma
import os
import random
import signal
import subprocess
import tarfile
import zipfile
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml

from cort import download
from cort.downloads import fetch
from cort.downloads.catalog import load_catalog
from tests.support.archives import tar_of, zip_of
from tests.support.common import command_line, md5_of, wait_until
from tests.support.misbehaving_server import Step, serving
from tests.support.processes import Python

TEXT = "".join(f"{number}\ta line of text\n" for number in range(150_000)).encode()
PACKED = gzip.compress(TEXT, 1, mtime=0)
CONTENT = random.Random(1).randbytes(4_000_000)  # noqa: S311


@pytest.fixture
def server():
    with serving() as server:
        yield server


@pytest.fixture
def output(tmp_path):
    return tmp_path / "raw" / "file"


@pytest.fixture
def arguments(server, tmp_path, output):
    """A function that gives the command line for a file on the server, which a catalogue has."""
    files = {
        "test/text.tsv": ({"bytes": len(TEXT), "md5": md5_of(TEXT), "lines": 150_000}, TEXT),
        "test/text.tsv.gz": ({"size": len(PACKED), "md5": md5_of(PACKED), "lines": 150_000}, PACKED),
        "test/counted.tsv.gz": ({"size": len(PACKED), "lines": 149_999}, PACKED),
        "test/large.bin": ({"bytes": len(CONTENT), "md5": md5_of(CONTENT)}, CONTENT),
    }
    known = {
        name: entry | {"urls": [server.serve(f"/published-{Path(name).name}", content)]}
        for name, (entry, content) in files.items()
    }
    catalog = tmp_path / "catalog.yaml"
    catalog.write_text(yaml.safe_dump({"files": known}), "utf-8")
    named = {"catalog": catalog, "downloads": tmp_path / "own", "folder": "", "output": output}
    return lambda name, **changes: command_line(named | {"name": name}, changes)


@pytest.fixture
def downloaded(arguments, output):
    """A function that takes a file; the bytes of the output."""

    def take(name, **changes):
        assert download.main(arguments(name, **changes)) == 0
        return Path(changes.get("output", output)).read_bytes()

    return take


def start(arguments):
    return Python("-m", "cort.download", *arguments, stderr=subprocess.PIPE)


def test_another_experiment_shares_what_was_fetched_before(server, downloaded, output, tmp_path):
    again = tmp_path / "other" / "file"
    assert downloaded("test/text.tsv") == downloaded("test/text.tsv", output=again) == TEXT
    assert len(server.sent["/published-text.tsv"]) == 1
    # One disk, one copy.
    assert os.path.samefile(output, again)


def test_lines_of_a_compressed_file_are_those_of_its_text(downloaded, arguments, complaint, output):
    downloaded("test/text.tsv.gz")
    line = complaint(download.main, arguments("test/counted.tsv.gz", output=output.with_name("other")))
    assert "150000 lines, expected" in line


def test_an_unknown_name_gets_the_nearest_and_a_folder_that_is_not_there_is_refused(
    arguments, complaint, output, tmp_path
):
    assert complaint(download.main, arguments("test/txt.tsv"), output).endswith("did you mean test/text.tsv?")
    line = complaint(download.main, arguments("test/text.tsv", folder=tmp_path / "nowhere"), output)
    assert line.startswith(f"{tmp_path / 'nowhere'}: found no such folder")


@pytest.mark.parametrize("place", ["test/text.tsv", "text.tsv", "published-text.tsv"])
def test_a_copy_is_used_under_any_of_its_names(server, downloaded, tmp_path, place):
    mine = tmp_path / "mine" / place
    mine.parent.mkdir(parents=True)
    mine.write_bytes(TEXT)
    assert downloaded("test/text.tsv", folder=mine.parents[place.count("/")]) == TEXT
    assert not server.sent
    assert mine.read_bytes() == TEXT


def test_a_file_of_the_user_is_copied_and_left_as_it_is(downloaded, output, tmp_path):
    mine = tmp_path / "text.tsv"
    mine.write_bytes(TEXT)
    mine.chmod(0o444)
    before = mine.stat()
    assert downloaded("test/text.tsv", folder=tmp_path) == TEXT
    # As Snakemake does.
    os.utime(output, (1, 1))
    after = mine.stat()
    assert (after.st_mtime_ns, after.st_mode, after.st_nlink) == (before.st_mtime_ns, before.st_mode, 1)


def test_a_download_of_another_user_is_copied(downloaded, output, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert downloaded("test/text.tsv") == TEXT
    assert output.stat().st_nlink == 1


def test_a_link_in_the_folder_is_followed(downloaded, output, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "real").write_bytes(TEXT)
    (tmp_path / "data" / "text.tsv").symlink_to(tmp_path / "real")
    assert downloaded("test/text.tsv", folder=tmp_path / "data") == TEXT
    assert not output.is_symlink()


@pytest.mark.parametrize(
    ("content", "found"), [(TEXT[:-1] + b"!", "the md5 "), (TEXT[:-15], f"{len(TEXT) - 15} bytes")]
)
def test_another_file_of_the_same_name_is_passed_over(downloaded, tmp_path, capsys, content, found):
    mine = tmp_path / "text.tsv"
    mine.write_bytes(content)
    assert downloaded("test/text.tsv", folder=tmp_path) == TEXT
    assert mine.read_bytes() == content
    assert f"{mine}: found {found}" in capsys.readouterr().err


def test_a_right_copy_is_preferred_to_a_wrong_one(server, downloaded, tmp_path):
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "text.tsv").write_bytes(b"another one\n")
    (tmp_path / "text.tsv").write_bytes(TEXT)
    assert downloaded("test/text.tsv", folder=tmp_path) == TEXT
    assert not server.sent


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_download_that_was_ended_is_resumed(server, arguments, downloaded, output, number, tmp_path):
    path = "/published-large.bin"
    server.steps[path] = [Step(pause=0.03), Step()]
    process = start(arguments("test/large.bin"))
    wait_until(lambda: server.sent[path] and server.sent[path][0] >= 1_000_000)
    status, log = process.end(number)
    assert status == {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}[number]
    assert "Traceback" not in log
    kept = next((tmp_path / "own").rglob("*.part")).stat().st_size
    assert kept > 500_000
    assert not output.exists()
    assert downloaded("test/large.bin") == CONTENT
    assert server.asked[path][1]["Range"] == f"bytes={kept}-"
    # Not one byte twice.
    assert server.sent[path][1] == len(CONTENT) - kept


def test_of_two_processes_one_fetches_the_file(server, arguments, tmp_path):
    path = "/published-large.bin"
    server.steps[path] = [Step(pause=0.01), Step()]
    first = start(arguments("test/large.bin", output=tmp_path / "first"))
    wait_until(lambda: server.sent[path])
    second = start(arguments("test/large.bin", output=tmp_path / "second"))
    logs = [process.communicate(timeout=120)[1] for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), logs
    assert server.sent[path] == [len(CONTENT)]
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes() == CONTENT
    assert "another process is fetching large.bin" in logs[1]


def test_a_waiting_process_resumes_the_download_of_a_killed_one(server, arguments, tmp_path):
    path = "/published-large.bin"
    server.steps[path] = [Step(stall=2_000_000), Step()]
    first = start(arguments("test/large.bin", output=tmp_path / "first"))
    wait_until(lambda: server.sent[path] == [2_000_000])
    second = start(arguments("test/large.bin", output=tmp_path / "second"))
    wait_until(lambda: any("waiting for it" in line for line in iter(second.stderr.readline, "")))
    first.end(signal.SIGKILL)
    second.communicate(timeout=60)
    assert second.returncode == 0
    assert (tmp_path / "second").read_bytes() == CONTENT
    assert sum(server.sent[path]) < len(CONTENT) + 1_000_000


def test_without_file_locks_each_process_has_its_own_parts(downloaded, monkeypatch, tmp_path):
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOLCK, "No locks available")))
    assert downloaded("test/large.bin") == CONTENT
    assert sorted(path.name for path in (tmp_path / "own" / "test").iterdir()) == ["large.bin", "large.bin.lock"]


ROWS = "".join(f"{number}\ttext {number * 7919 % 10_007}\n" for number in range(20_000)).encode()
#: packs files
PACK = {
    "tar.gz": tar_of,
    "tar.xz": lambda *files: tar_of(*files, form="xz"),
    "zip": lambda *files: zip_of(*files, compression=zipfile.ZIP_DEFLATED),
}


@pytest.fixture
def packed(tmp_path, output):
    """A command line for a file of an archive with this content in a folder, and a catalogue with both."""

    def make(content, suffix="tar.gz", urls=("http://127.0.0.1:9/archive",), name="archive", known=(), **member):
        folder = tmp_path / "mine"
        folder.mkdir(exist_ok=True)
        if name:
            (folder / f"{name}.{suffix}").write_bytes(content)
        archive = {"urls": list(urls), **(known or {"md5": md5_of(content)})}
        member = {"archive": f"test/archive.{suffix}", "member": "file.tsv", "lines": 20_000} | member
        files = {f"test/archive.{suffix}": archive, "test/taken.tsv": member}
        # Catalogues are cached by path.
        load_catalog.cache_clear()
        (tmp_path / "catalog.yaml").write_text(yaml.safe_dump({"files": files}), "utf-8")
        named = {"name": "test/taken.tsv", "catalog": tmp_path / "catalog.yaml", "downloads": tmp_path / "own"}
        return command_line(named | {"folder": folder, "output": output})

    return make


@pytest.mark.parametrize("suffix", PACK)
def test_only_the_member_asked_for_is_extracted(packed, output, tmp_path, suffix):
    files = [("other.tsv", b"x" * 50_000), ("../escaped", b"1"), ("set/file.tsv", ROWS), ("set/more.tsv", b"1")]
    assert download.main(packed(PACK[suffix](*files), suffix, member="set/file.tsv")) == 0
    assert output.read_bytes() == ROWS
    assert [path.name for path in output.parent.glob("[!.]*")] == ["file"]
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "raw", "catalog.yaml"}


def test_the_archive_is_fetched_if_need_be_and_kept(packed, output):
    """Names in it may begin with a dot."""
    content = tar_of(("./file.tsv", ROWS))
    with serving() as server:
        argv = packed(content, urls=[server.serve("/a.tar.gz", content)], name="")
        for _ in range(2):
            assert download.main(argv) == 0
            assert output.read_bytes() == ROWS
            output.unlink()
        assert server.sent["/a.tar.gz"] == [len(content)]


@pytest.mark.parametrize("name", ["taken.tsv", "file.tsv", "test/taken.tsv"])
def test_a_copy_of_the_member_is_used_without_the_archive(packed, output, tmp_path, name):
    argv = packed(b"not fetched", name="")
    (tmp_path / "mine" / "test").mkdir()
    (tmp_path / "mine" / name).write_bytes(ROWS)
    assert download.main(argv) == 0
    assert output.read_bytes() == ROWS


@pytest.mark.parametrize("lines", [20_000, None])
def test_a_copy_with_other_lines_or_that_cannot_be_checked_is_passed_over(packed, output, tmp_path, capsys, lines):
    argv, mine = packed(tar_of(("file.tsv", ROWS)), lines=lines), tmp_path / "mine" / "file.tsv"
    mine.write_bytes(ROWS + b"one more\n")
    assert download.main(argv) == 0
    assert (output.read_bytes(), mine.read_bytes()) == (ROWS, ROWS + b"one more\n")
    assert lines is None or f"{mine}: found 20001 lines, expected test/taken.tsv (20000" in capsys.readouterr().err


def test_without_network_and_folder_the_error_names_the_archive(packed, complaint, output, monkeypatch):
    monkeypatch.setattr(fetch, "ATTEMPTS", 1)
    line = complaint(download.main, packed(b"x", name=""), output)
    assert line.startswith("test/archive.tar.gz: found no working mirror (127.0.0.1:9: ")
    assert "http://127.0.0.1:9/archive elsewhere" in line


LINK = tarfile.TarInfo("file.tsv")
LINK.type, LINK.linkname = tarfile.SYMTYPE, "/etc/passwd"
LACKING = [*((suffix, pack(("raw/file.tsv", ROWS))) for suffix, pack in PACK.items()), ("tar.gz", tar_of((LINK, b"")))]


@pytest.mark.parametrize(("suffix", "content"), LACKING)
def test_a_file_that_the_archive_lacks_or_that_is_a_link_is_one_line(packed, complaint, output, suffix, content):
    assert "found no file.tsv in it" in complaint(download.main, packed(content, suffix), output)


XZ = tar_of(("file.tsv", ROWS), form="xz")


@pytest.mark.parametrize("damaged", [XZ[:-2000], XZ[:90] + bytes([XZ[90] ^ 1]) + XZ[91:]], ids=["cut", "flipped"])
def test_an_archive_without_a_published_checksum_is_unpacked_to_be_checked(packed, output, tmp_path, damaged):
    known = {"no_checksum": "none is published", "size": len(XZ)}
    with serving() as server:
        argv = packed(damaged, "tar.xz", [server.serve("/a", XZ)], known=known)
        assert download.main(argv) == 0
    assert output.read_bytes() == ROWS
    assert lzma.decompress((tmp_path / "own" / "test" / "archive.tar.xz").read_bytes())


def test_a_full_disk_is_one_line(packed, complaint, mount_disk, output):
    mount_disk(output.parent, 64)
    line = complaint(download.main, packed(tar_of(("file.tsv", os.urandom(300_000)))))
    assert "No space left" in line
    assert not output.exists()
