import errno
import fcntl
import gzip
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml

from cort import download
from tests.support.common import ROOT, md5_of, wait_until
from tests.support.misbehaving_server import Step, serving

TEXT = "".join(f"{number}\ta line of text\n" for number in range(150_000)).encode()
PACKED = gzip.compress(TEXT, 1, mtime=0)
CONTENT = random.Random(1).randbytes(4_000_000)  # noqa: S311


def download_file(words):
    return download.main(["file", *words])


@pytest.fixture
def server():
    with serving() as server:
        yield server


@pytest.fixture
def catalog(server, tmp_path):
    """A catalogue of files on the server; its path."""
    files = {
        "test/text.tsv": {"bytes": len(TEXT), "md5": md5_of(TEXT), "lines": 150_000},
        "test/text.tsv.gz": {"size": len(PACKED), "md5": md5_of(PACKED), "lines": 150_000},
        "test/counted.tsv.gz": {"size": len(PACKED), "lines": 149_999},
        "test/large.bin": {"bytes": len(CONTENT), "md5": md5_of(CONTENT)},
    }
    contents = [TEXT, PACKED, PACKED, CONTENT]
    for (name, entry), content in zip(files.items(), contents, strict=True):
        entry["urls"] = [server.serve(f"/published-{Path(name).name}", content)]
    path = tmp_path / "catalog.yaml"
    path.write_text(yaml.safe_dump({"files": files}), "utf-8")
    return path


@pytest.fixture
def arguments(catalog, tmp_path):
    def make(name, folder="", **more):
        named = {"name": name, "catalog": catalog, "downloads": tmp_path / "own", "folder": folder}
        named |= {"output": tmp_path / "raw" / "file", **more}
        return [str(part) for option, value in named.items() for part in (f"--{option}", value)]

    return make


@pytest.fixture
def output(tmp_path):
    return tmp_path / "raw" / "file"


def start(arguments):
    command = [sys.executable, "-m", "cort.download", "file", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


def test_another_experiment_shares_what_was_fetched_before(server, arguments, output, tmp_path):
    again = tmp_path / "other" / "file"
    assert download_file(arguments("test/text.tsv")) == download_file(arguments("test/text.tsv", output=again)) == 0
    assert len(server.sent["/published-text.tsv"]) == 1
    assert output.read_bytes() == TEXT
    # One disk, one copy.
    assert os.path.samefile(output, again)


def test_lines_of_a_compressed_file_are_those_of_its_text(arguments, complaint, output):
    assert download_file(arguments("test/text.tsv.gz")) == 0
    line = complaint(download_file, arguments("test/counted.tsv.gz", output=output.with_name("other")))
    assert "150000 lines, expected" in line


def test_a_member_of_an_archive_is_not_for_this_stage(complaint, tmp_path):
    argv = ["--name", "msmarco/collection.tsv", "--downloads", tmp_path, "--output", tmp_path / "x"]
    line = complaint(download_file, argv)
    assert line.startswith("msmarco/collection.tsv: found a member of msmarco/collectionandqueries.tar.gz, expected")


def test_an_unknown_name_gets_the_nearest_and_a_folder_that_is_not_there_is_refused(
    arguments, complaint, output, tmp_path
):
    line = complaint(download_file, arguments("test/txt.tsv"), output)
    assert line.endswith("did you mean test/text.tsv?")
    line = complaint(download_file, arguments("test/text.tsv", tmp_path / "nowhere"), output)
    assert line.startswith(f"{tmp_path / 'nowhere'}: found no such folder")


@pytest.mark.parametrize("place", ["test/text.tsv", "text.tsv", "published-text.tsv"])
def test_a_copy_is_used_under_any_of_its_names(server, arguments, output, tmp_path, place):
    mine = tmp_path / "mine" / place
    mine.parent.mkdir(parents=True)
    mine.write_bytes(TEXT)
    assert download_file(arguments("test/text.tsv", mine.parents[place.count("/")])) == 0
    assert output.read_bytes() == TEXT
    assert not server.sent
    assert mine.read_bytes() == TEXT


def test_a_file_of_the_user_is_copied_and_left_as_it_is(arguments, output, tmp_path):
    (tmp_path / "text.tsv").write_bytes(TEXT)
    (tmp_path / "text.tsv").chmod(0o444)
    before = (tmp_path / "text.tsv").stat()
    assert download_file(arguments("test/text.tsv", tmp_path)) == 0
    # As Snakemake does.
    os.utime(output, (1, 1))
    after = (tmp_path / "text.tsv").stat()
    assert (after.st_mtime_ns, after.st_mode, after.st_nlink) == (before.st_mtime_ns, before.st_mode, 1)
    assert output.read_bytes() == TEXT


def test_a_link_in_the_folder_is_followed(arguments, output, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "real").write_bytes(TEXT)
    (tmp_path / "data" / "text.tsv").symlink_to(tmp_path / "real")
    assert download_file(arguments("test/text.tsv", tmp_path / "data")) == 0
    assert output.read_bytes() == TEXT
    assert not output.is_symlink()


@pytest.mark.parametrize(
    ("content", "found"), [(TEXT[:-1] + b"!", "the md5 "), (TEXT[:-15], f"{len(TEXT) - 15} bytes")]
)
def test_another_file_of_the_same_name_is_passed_over(server, arguments, output, tmp_path, capsys, content, found):
    mine = tmp_path / "text.tsv"
    mine.write_bytes(content)
    assert download_file(arguments("test/text.tsv", tmp_path)) == 0
    assert (output.read_bytes(), mine.read_bytes()) == (TEXT, content)
    assert f"{mine}: found {found}" in capsys.readouterr().err


def test_a_right_copy_is_preferred_to_a_wrong_one(arguments, output, tmp_path):
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "text.tsv").write_bytes(b"another one\n")
    (tmp_path / "text.tsv").write_bytes(TEXT)
    assert download_file(arguments("test/text.tsv", tmp_path)) == 0
    assert output.read_bytes() == TEXT


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_download_that_was_ended_is_resumed(server, arguments, output, number, tmp_path):
    path = "/published-large.bin"
    server.steps[path] = [Step(pause=0.03), Step()]
    process = start(arguments("test/large.bin"))
    wait_until(lambda: server.sent[path] and server.sent[path][0] >= 1_000_000)
    process.send_signal(number)
    log = process.communicate(timeout=60)[1]
    assert process.returncode == {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}[number]
    assert "Traceback" not in log
    kept = next((tmp_path / "own").rglob("*.part")).stat().st_size
    assert kept > 500_000
    assert not output.exists()
    assert download_file(arguments("test/large.bin")) == 0
    assert output.read_bytes() == CONTENT
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
    first.kill()
    for process in (first, second):
        process.communicate(timeout=60)
    assert second.returncode == 0
    assert (tmp_path / "second").read_bytes() == CONTENT
    assert sum(server.sent[path]) < len(CONTENT) + 1_000_000


def test_without_file_locks_each_process_has_its_own_parts(server, arguments, output, monkeypatch, tmp_path):
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOLCK, "No locks available")))
    assert download_file(arguments("test/large.bin")) == 0
    assert output.read_bytes() == CONTENT
    assert sorted(path.name for path in (tmp_path / "own" / "test").iterdir()) == ["large.bin", "large.bin.lock"]
