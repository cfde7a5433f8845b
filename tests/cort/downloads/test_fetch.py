"""Transfers against a real server that misbehaves in every way servers do."""

import hashlib
import random
import re
import time
from functools import partial

import pytest

from cort.downloads import fetch
from cort.downloads.catalog import Catalog, PublicFile
from cort.downloads.fetch import Sources
from tests.support.common import logged
from tests.support.errors import line_of
from tests.support.misbehaving_server import Step, serving

CONTENT = random.Random(1).randbytes(3_000_000)  # noqa: S311
OTHER = random.Random(2).randbytes(3_000_000)  # noqa: S311
MD5, OTHER_MD5 = (hashlib.md5(content).hexdigest() for content in (CONTENT, OTHER))  # noqa: S324
SIZE, HALF = 3_000_000, 1_500_000
QUICK = {"PATIENCE": (5, 1), "ATTEMPTS": 3, "FIRST_WAIT": 0.01, "LONGEST_ASKED": 3}

pytestmark = pytest.mark.usefixtures("record_messages")


@pytest.fixture
def server():
    with serving() as server:
        yield server


@pytest.fixture
def fetched(server, tmp_path, monkeypatch):
    """Fetch the content from paths of the server; its bytes."""
    for name, value in QUICK.items():
        monkeypatch.setattr(fetch, name, value)

    def run(*paths, headers=None):
        file = PublicFile("test/file.bin", tuple(f"{server.url}{path}" for path in paths), size=SIZE, md5=MD5)
        return Sources(Catalog({file.name: file}, headers or {}), tmp_path / "own").obtain(file).read_bytes()

    return run


@pytest.fixture
def refused(fetched):
    """Fetch in vain; the one-line error."""
    return partial(line_of, fetched)


def left(tmp_path):
    """Names of all files, except locks."""
    return sorted(path.name for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock")


def test_a_file_is_fetched_once_from_the_first_mirror_and_kept(server, fetched, tmp_path):
    for path in ("/a", "/b"):
        server.serve(path, CONTENT)
    assert fetched("/a", "/b") == fetched("/a", "/b") == CONTENT
    assert server.sent == {"/a": [SIZE]}
    assert left(tmp_path) == ["file.bin"]


def test_requests_have_the_headers_that_hosts_require(server, fetched):
    server.serve("/a", CONTENT)
    fetched("/a", headers={"127.0.0.1": {"X-Ms-Version": "2019-12-12"}})
    headers = server.asked["/a"][0]
    assert headers["User-Agent"].startswith("Mozilla/5.0 (X11; Linux")
    assert (headers["Accept-Encoding"], headers["X-Ms-Version"]) == ("identity", "2019-12-12")


def test_the_proxy_is_that_of_the_environment(server, fetched, monkeypatch):
    monkeypatch.setenv("http_proxy", server.url)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(server, "url", "http://mirror.invalid")
    # Requests to a proxy contain complete URLs.
    server.files["http://mirror.invalid/a"] = CONTENT
    assert fetched("/a") == CONTENT


LAST = SIZE - HALF - 500_000
SHIFTED = Step(content_range="bytes 0-2999999/3000000")
# What a server does -> its steps, and the bytes that it sends each time.
SERVERS = {
    "does not say the length": ([Step(length=False)], [SIZE]),
    "cuts off": ([Step(cut=HALF), Step(cut=500_000), Step()], [HALF, 500_000, LAST]),
    # Attempts with progress do not count.
    "cuts off often": ([*[Step(cut=1_000_001)] * 2, Step(cut=100), Step()], [*[1_000_001] * 2, 100, SIZE - 2_000_102]),
    "stalls": ([Step(stall=HALF), Step()], [HALF, SIZE - HALF]),
    "knows no ranges": ([Step(cut=HALF), Step(ranges=False)], [HALF, SIZE]),
    "changes the file": ([Step(cut=HALF, body=OTHER), Step()], [HALF, SIZE - HALF, SIZE]),
    "sends another range": ([Step(cut=HALF), SHIFTED, Step()], None),
}


@pytest.mark.parametrize("name", SERVERS)
def test_transfers_are_resumed_and_parts_of_different_files_not_joined(server, fetched, caplog, name):
    steps, sent = SERVERS[name]
    server.serve("/a", CONTENT, *steps)
    assert fetched("/a") == CONTENT
    assert sent is None or server.sent["/a"] == sent
    if name == "cuts off":
        ranges = [headers.get("Range") for headers in server.asked["/a"]]
        assert ranges == [None, f"bytes={HALF}-", f"bytes={HALF + 500_000}-"]
    words = {"stalls": "timed out", "changes the file": "assembled from several transfers"}
    assert words.get(name, "") in " ".join(logged(caplog, "WARNING"))


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_server_that_is_out_of_order_is_asked_again(server, fetched, status):
    server.serve("/a", CONTENT, Step(status=status), Step())
    assert fetched("/a") == CONTENT
    assert len(server.asked["/a"]) == 2


def test_waits_grow_and_vary_unless_a_server_asks_for_one(server, refused, monkeypatch):
    waits = []
    monkeypatch.setattr(time, "sleep", waits.append)
    server.serve("/a", CONTENT, Step(status=429, headers={"Retry-After": "2"}), Step(status=500))
    for name, value in {"ATTEMPTS": 8, "FIRST_WAIT": 1, "LONGEST_WAIT": 10}.items():
        monkeypatch.setattr(fetch, name, value)
    assert "status 500, 8 times" in refused("/a")
    assert waits[0] == 2
    shares = [wait / limit for wait, limit in zip(waits[1:], [2, 4, 8, 10, 10, 10], strict=True)]
    assert all(0.5 <= share <= 1 for share in shares)
    assert len(set(shares)) > 1


REFUSALS = {str(status): Step(status=status) for status in (403, 404, 410)}
REFUSALS |= {"too long a wait": Step(status=503, headers={"Retry-After": "3600"})}


@pytest.mark.parametrize("step", REFUSALS.values(), ids=REFUSALS)
def test_a_mirror_that_refuses_is_asked_once(server, fetched, step):
    server.serve("/a", CONTENT, step)
    server.serve("/b", CONTENT)
    assert fetched("/a", "/b") == CONTENT
    assert len(server.asked["/a"]) == 1


@pytest.mark.parametrize("target", ["/b", "/a"])
def test_a_redirect_is_followed_and_a_circle_left(server, fetched, target):
    server.serve("/a", b"", Step(status=302, headers={"Location": target}))
    server.serve("/b", CONTENT)
    assert fetched("/a", *(["/b"] if target == "/a" else [])) == CONTENT


def test_if_all_mirrors_fail_the_error_says_what_to_do_by_hand(server, refused):
    server.serve("/a", CONTENT, Step(status=404))
    line = refused("/a", "/b")
    assert line.startswith("test/file.bin: found no working mirror (")
    assert f"({server.url[7:]}: status 404; {server.url[7:]}: status 404)" in line
    assert MD5 in line
    assert f"{server.url}/a or {server.url}/b" in line


def test_the_error_says_if_there_is_no_network(server, refused, monkeypatch):
    monkeypatch.setattr(server, "url", "http://127.0.0.1:9")
    assert re.search(r"\(127\.0\.0\.1:9: .*refused.*, 3 times\)", refused("/a"))


def test_wrong_bytes_of_the_right_size_are_deleted_and_the_next_mirror_asked(server, fetched, caplog, tmp_path):
    server.serve("/a", OTHER)
    server.serve("/b", CONTENT)
    assert fetched("/a", "/b") == CONTENT
    assert len(server.asked["/a"]) == 1
    assert f"{server.url}/a: the md5 {OTHER_MD5}, expected" in logged(caplog, "WARNING")[0]
    assert left(tmp_path) == ["file.bin"]


PAGE = Step(ranges=False, body=b"<!DOCTYPE html><title>Log in</title>", headers={"Content-Type": "text/html"})
WRONG = {
    "longer": (CONTENT + b"!", Step(length=False), "the md5 "),
    "compressed": (CONTENT, Step(packed=True), "the md5 "),
    "page": (b"", PAGE, "a web page that begins with '<!DOCTYPE html>"),
}


@pytest.mark.parametrize(("content", "step", "words"), WRONG.values(), ids=WRONG)
def test_wrong_content_is_refused_and_not_kept(server, refused, tmp_path, content, step, words):
    server.serve("/a", content, step)
    line = refused("/a")
    assert words in line
    assert line.index("deleted") < line.index("expected the file")
    assert left(tmp_path) == []


def test_a_web_page_does_not_replace_what_was_received(server, fetched):
    server.serve("/a", CONTENT, Step(cut=HALF), PAGE)
    server.serve("/b", CONTENT)
    assert fetched("/a", "/b") == CONTENT
    assert server.sent["/b"] == [SIZE - HALF]


def test_a_mirror_that_is_flaky_and_wrong_is_left(server, fetched):
    server.serve("/a", OTHER, *[Step(cut=HALF), Step()] * 4)
    server.serve("/b", CONTENT)
    assert fetched("/a", "/b") == CONTENT
    assert len(server.sent["/a"]) == 4


def test_a_complete_part_is_only_checked(server, fetched, tmp_path):
    (tmp_path / "own" / "test").mkdir(parents=True)
    (tmp_path / "own" / "test" / "file.bin.part").write_bytes(CONTENT)
    server.serve("/a", CONTENT)
    assert fetched("/a") == CONTENT
    assert server.sent["/a"] == [0]


def test_the_next_mirror_continues_what_the_first_began(server, fetched, tmp_path):
    server.serve("/a", CONTENT, Step(cut=HALF), Step(status=404))
    server.serve("/b", CONTENT)
    assert fetched("/a", "/b") == CONTENT
    assert (server.sent["/a"], server.sent["/b"]) == ([HALF, 0], [SIZE - HALF])
    assert left(tmp_path) == ["file.bin"]


def test_a_kept_file_that_was_damaged_is_fetched_again(server, fetched, caplog, tmp_path):
    server.serve("/a", CONTENT)
    fetched("/a")
    (tmp_path / "own" / "test" / "file.bin").write_bytes(OTHER)
    caplog.clear()
    assert fetched("/a") == CONTENT
    assert "deleted, fetching it again" in logged(caplog, "WARNING")[0]


def test_a_full_disk_keeps_the_received_bytes(server, fetched, mount_disk, tmp_path):
    folder = mount_disk(tmp_path / "own", 2_000)
    server.serve("/a", CONTENT)
    with pytest.raises(OSError, match="No space left"):
        fetched("/a")
    received = next(folder.rglob("*.part")).stat().st_size
    assert received > HALF
    mount_disk(folder, 20_000)
    assert fetched("/a") == CONTENT
    assert server.asked["/a"][1]["Range"] == f"bytes={received}-"
