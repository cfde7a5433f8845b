"""Transfers against a real server that misbehaves in every way servers do."""

import hashlib
import random
import shutil
import time
from collections import namedtuple
from email.utils import formatdate

import pytest

from cort.downloads import transfer
from cort.downloads.catalog import Catalog, PublicFile
from cort.downloads.fetch import Sources, fetch
from cort.downloads.transfer import Partial, Patience
from cort.system.errors import InputError
from tests.support.common import logged
from tests.support.misbehaving_server import Step, serving

CONTENT = random.Random(1).randbytes(3_000_000)  # noqa: S311
OTHER = random.Random(2).randbytes(3_000_000)  # noqa: S311
MD5, OTHER_MD5 = (hashlib.md5(content).hexdigest() for content in (CONTENT, OTHER))  # noqa: S324
SIZE, HALF = 3_000_000, 1_500_000
QUICK = Patience(connect=5, stall=1, attempts=3, first_wait=0.01, longest_wait=0.02, longest_asked=3)
Usage = namedtuple("Usage", "total used free")

pytestmark = pytest.mark.usefixtures("record_messages")


@pytest.fixture
def server():
    with serving() as server:
        yield server


@pytest.fixture
def fetched(server, tmp_path):
    """Fetch the content from paths of the server; its bytes."""

    def run(*paths, exact=True, patience=QUICK, headers=None):
        urls = tuple(f"{server.url}{path}" for path in paths)
        file = PublicFile("test/file.bin", urls, md5=MD5, **{"bytes" if exact else "size": SIZE})
        catalog = Catalog({file.name: file}, headers or {})
        return Sources(catalog, tmp_path / "own", patience=patience).obtain(file).read_bytes()

    return run


@pytest.fixture
def refused(fetched):
    """Fetch in vain; the one-line error."""

    def run(*paths, **known):
        with pytest.raises(InputError) as error:
            fetched(*paths, **known)
        assert "\n" not in str(error.value)
        return str(error.value)

    return run


@pytest.fixture
def part(server, tmp_path):
    """The partial file of /a."""
    return Partial(tmp_path / "own", "test/file.bin", f"{server.url}/a")


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


def test_a_file_of_unknown_length_is_fetched(server, fetched):
    server.serve("/a", CONTENT, Step(length=False))
    assert fetched("/a", exact=False) == CONTENT


def test_a_transfer_that_was_cut_is_resumed(server, fetched):
    server.serve("/a", CONTENT, Step(cut=HALF), Step(cut=500_000), Step())
    assert fetched("/a") == CONTENT
    assert server.sent["/a"] == [HALF, 500_000, SIZE - HALF - 500_000]
    ranges = [headers.get("Range") for headers in server.asked["/a"]]
    assert ranges == [None, f"bytes={HALF}-", f"bytes={HALF + 500_000}-"]
    assert server.asked["/a"][1]["If-Range"] == '"one"'


def test_attempts_with_progress_do_not_count(server, fetched):
    server.serve("/a", CONTENT, *[Step(cut=1_000_001)] * 2, Step())
    assert fetched("/a", patience=Patience(attempts=2, first_wait=0.01)) == CONTENT


def test_a_stall_is_ended_and_the_transfer_resumed(server, fetched, caplog):
    server.serve("/a", CONTENT, Step(stall=HALF), Step())
    assert fetched("/a") == CONTENT
    assert server.sent["/a"] == [HALF, SIZE - HALF]
    assert "timed out" in logged(caplog, "WARNING")[0]


def test_a_very_slow_transfer_is_a_stall(server, fetched, monkeypatch, caplog):
    monkeypatch.setattr(transfer, "SLOWEST", 1_000_000)
    server.serve("/a", CONTENT, Step(pause=0.2), Step())
    assert fetched("/a") == CONTENT
    assert " bytes in 1 s; trying again" in logged(caplog, "WARNING")[0]


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_server_that_is_out_of_order_is_asked_again(server, fetched, status):
    server.serve("/a", CONTENT, Step(status=status), Step())
    assert fetched("/a") == CONTENT
    assert len(server.asked["/a"]) == 2


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_the_wait_that_a_server_asks_for_is_kept(server, fetched, form):
    # Dates have whole seconds.
    text = "1" if form == "seconds" else formatdate(time.time() + 2, usegmt=True)
    server.serve("/a", CONTENT, Step(status=429, headers={"Retry-After": text}), Step())
    started = time.monotonic()
    assert fetched("/a") == CONTENT
    assert time.monotonic() - started >= 0.9


def test_waits_grow_and_vary(server, refused, monkeypatch):
    waits = []
    monkeypatch.setattr(time, "sleep", waits.append)
    server.serve("/a", CONTENT, Step(status=500))
    assert "status 500, 8 times" in refused("/a", patience=Patience(attempts=8, first_wait=1, longest_wait=10))
    shares = [wait / limit for wait, limit in zip(waits, [1, 2, 4, 8, 10, 10, 10], strict=True)]
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
    assert f"expected the file (3000000 bytes, md5 {MD5})" in line
    assert f"; fetch {server.url}/a or {server.url}/b elsewhere and put it into the folder" in line


def test_the_error_says_if_there_is_no_network(tmp_path):
    file = PublicFile("test/file.bin", ("http://127.0.0.1:9/a",), size=1, md5="0" * 32)
    with pytest.raises(InputError, match=r"127\.0\.0\.1:9: .*refused.*, 3 times\)"):
        fetch(file, Catalog({}, {}), tmp_path, QUICK)


def test_wrong_bytes_of_the_right_size_are_deleted_and_the_next_mirror_asked(server, fetched, caplog, tmp_path):
    server.serve("/a", OTHER)
    server.serve("/b", CONTENT)
    assert fetched("/a", "/b") == CONTENT
    assert len(server.asked["/a"]) == 1
    assert f"{server.url}/a: the md5 {OTHER_MD5}, expected" in logged(caplog, "WARNING")[0]
    assert left(tmp_path) == ["file.bin"]


PAGE = Step(body=b"<!DOCTYPE html><title>Log in</title>", headers={"Content-Type": "text/html"})
WRONG = {
    "size": (CONTENT + b"!", Step(), True, "3000001 bytes"),
    "larger than possible": (CONTENT * 3, Step(), False, "9000000 bytes"),
    "longer than announced": (CONTENT * 3, Step(length=False), True, "more than 3000000 bytes"),
    "compressed": (CONTENT, Step(packed=True), False, "the md5 "),
    "page": (b"", PAGE, False, "a web page that begins with '<!DOCTYPE html>"),
}


@pytest.mark.parametrize(("content", "step", "exact", "words"), WRONG.values(), ids=WRONG)
def test_wrong_content_is_refused_and_not_kept(server, refused, tmp_path, content, step, exact, words):
    server.serve("/a", content, step)
    line = refused("/a", exact=exact)
    assert words in line
    assert "deleted" not in line or line.index("deleted") < line.index("expected the file")
    assert left(tmp_path) == []


def test_a_server_without_ranges_sends_all_again(server, fetched):
    server.serve("/a", CONTENT, Step(cut=HALF), Step(ranges=False))
    assert fetched("/a") == CONTENT
    assert server.sent["/a"] == [HALF, SIZE]


def test_parts_of_a_file_that_changed_are_not_joined(server, fetched):
    server.serve("/a", CONTENT, Step(cut=HALF, etag='"old"', body=OTHER), Step(etag='"new"'))
    assert fetched("/a") == CONTENT
    # The condition was sent and did not hold, so the server sent all.
    assert server.asked["/a"][1]["If-Range"] == '"old"'
    assert server.sent["/a"] == [HALF, SIZE]


def test_a_server_that_ignores_the_condition_is_found_out(server, fetched):
    server.serve("/a", CONTENT, Step(cut=HALF, etag='W/"old"', body=OTHER), Step(etag='W/"new"'), Step())
    assert fetched("/a") == CONTENT
    # A weak tag cannot be a condition; the response shows that the file changed.
    assert "If-Range" not in server.asked["/a"][1]
    assert server.sent["/a"][-1] == SIZE


def test_without_tags_the_checksum_finds_wrongly_joined_parts(server, fetched, caplog):
    server.serve("/a", CONTENT, Step(cut=HALF, etag=None, body=OTHER), Step(etag=None))
    assert fetched("/a") == CONTENT
    assert server.sent["/a"] == [HALF, SIZE - HALF, SIZE]
    assert "assembled from several transfers" in logged(caplog, "WARNING")[-1]


@pytest.mark.parametrize("given", ["bytes 0-2999999/3000000", "bytes 1500001-2999999/3000000", "items 5", ""])
def test_a_range_that_was_not_requested_is_not_used(server, fetched, given):
    server.serve("/a", CONTENT, Step(cut=HALF), Step(content_range=given), Step())
    assert fetched("/a") == CONTENT


@pytest.mark.parametrize(
    ("first", "exact", "sent"),
    [(Step(cut=HALF), True, [HALF, 0]), (Step(length=False, stall=HALF), False, [HALF, 0, 0])],
    ids=["known length", "unknown length"],
)
def test_a_complete_part_is_only_checked(server, fetched, refused, part, first, exact, sent):
    server.serve("/a", CONTENT, first, Step(status=404), Step())
    refused("/a", exact=exact)
    part.path.write_bytes(CONTENT)
    assert fetched("/a", exact=exact) == CONTENT
    assert server.sent["/a"] == sent


def test_a_part_without_its_note_is_not_used(server, fetched, part):
    part.path.parent.mkdir(parents=True)
    part.path.write_bytes(OTHER[:HALF])
    server.serve("/a", CONTENT)
    assert fetched("/a") == CONTENT
    assert "Range" not in server.asked["/a"][0]


def test_each_mirror_has_its_own_part(server, fetched, refused, tmp_path):
    server.serve("/a", CONTENT, Step(cut=HALF), Step(status=404), Step())
    server.serve("/b", CONTENT, Step(cut=HALF), Step(status=404))
    refused("/a", "/b")
    assert fetched("/a", "/b") == CONTENT
    assert server.sent["/a"] == [HALF, 0, SIZE - HALF]
    assert left(tmp_path) == ["file.bin"]


def test_a_kept_file_that_was_damaged_is_fetched_again(server, fetched, caplog, tmp_path):
    server.serve("/a", CONTENT)
    fetched("/a")
    (tmp_path / "own" / "test" / "file.bin").write_bytes(OTHER)
    caplog.clear()
    assert fetched("/a") == CONTENT
    assert "deleted, fetching it again" in logged(caplog, "WARNING")[0]


def test_too_small_a_disk_is_found_before_the_transfer(server, refused, monkeypatch, tmp_path):
    server.serve("/a", CONTENT)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 0, 2_999_999))
    assert "found 2999999 bytes free, expected 3000000 for test/file.bin; free space" in refused("/a")
    assert all(path.stat().st_size < 1_000 for path in tmp_path.rglob("*.part"))


def test_only_the_missing_bytes_need_space(server, fetched, monkeypatch):
    server.serve("/a", CONTENT, Step(cut=HALF), Step())
    free = iter([SIZE, HALF])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 0, next(free)))
    assert fetched("/a") == CONTENT


def test_a_full_disk_keeps_the_received_bytes(server, fetched, mount_disk, tmp_path, monkeypatch):
    folder = mount_disk(tmp_path / "own", 2_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 0, 10**9))
    server.serve("/a", CONTENT)
    with pytest.raises(OSError, match="No space left"):
        fetched("/a")
    received = next(folder.rglob("*.part")).stat().st_size
    assert received > HALF
    mount_disk(folder, 20_000)
    assert fetched("/a") == CONTENT
    assert server.asked["/a"][1]["Range"] == f"bytes={received}-"
