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
HALF = 1_500_000
QUICK = Patience(connect=5, stall=1, attempts=3, first_wait=0.01, longest_wait=0.02, longest_asked=3)
Usage = namedtuple("Usage", "total used free")

pytestmark = pytest.mark.usefixtures("record_messages")


@pytest.fixture
def server():
    with serving() as one:
        yield one


@pytest.fixture
def fetched(server, tmp_path):
    """Fetch the content from paths of the server; its bytes."""

    def run(*paths, exact=True, patience=QUICK, headers=None):
        urls = tuple(f"{server.url}{path}" for path in paths)
        known = {"bytes" if exact else "size": len(CONTENT)}
        file = PublicFile("test/file.bin", urls, md5=hashlib.md5(CONTENT).hexdigest(), **known)  # noqa: S324
        catalog = Catalog({file.name: file}, headers or {})
        return Sources(catalog, tmp_path / "own", patience=patience).obtain(file).read_bytes()

    return run


@pytest.fixture
def refused(fetched):
    """Fetch in vain; the one line that says why."""

    def run(*paths, **known):
        with pytest.raises(InputError) as error:
            fetched(*paths, **known)
        assert "\n" not in str(error.value)
        return str(error.value)

    return run


def left(tmp_path):
    """Names of what is kept, without locks."""
    return sorted(path.name for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock")


# What goes well.


def test_a_file_is_fetched_once_and_kept(server, fetched, tmp_path):
    server.serve("/a", CONTENT)
    assert fetched("/a") == fetched("/a") == CONTENT
    assert server.sent["/a"] == [len(CONTENT)]
    assert left(tmp_path) == ["file.bin"]


def test_a_request_says_what_hosts_want_to_hear(server, fetched):
    server.serve("/a", CONTENT)
    fetched("/a", headers={"127.0.0.1": {"X-Ms-Version": "2019-12-12"}})
    asked = server.asked["/a"][0]
    assert asked["User-Agent"].startswith("Mozilla/5.0 (X11; Linux")
    assert (asked["Accept-Encoding"], asked["X-Ms-Version"]) == ("identity", "2019-12-12")


def test_a_redirect_to_a_mirror_is_followed(server, fetched):
    server.serve("/a", b"", Step(status=302, headers={"Location": "/b"}))
    server.serve("/b", CONTENT)
    assert fetched("/a") == CONTENT


def test_the_proxy_is_that_of_the_environment(server, fetched, monkeypatch):
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setattr(server, "url", "http://mirror.invalid")
    # A proxy is asked for whole URLs.
    server.files["http://mirror.invalid/a"] = CONTENT
    assert fetched("/a") == CONTENT


def test_a_file_without_a_known_length_is_fetched(server, fetched):
    server.serve("/a", CONTENT, Step(length=False))
    assert fetched("/a", exact=False) == CONTENT


# What is worth asking again.


def test_a_transfer_that_was_cut_goes_on_where_it_ended(server, fetched):
    server.serve("/a", CONTENT, Step(cut=HALF), Step(cut=500_000), Step())
    assert fetched("/a") == CONTENT
    assert server.sent["/a"] == [HALF, 500_000, len(CONTENT) - HALF - 500_000]
    assert [asked.get("Range") for asked in server.asked["/a"]] == [None, f"bytes={HALF}-", f"bytes={HALF + 500_000}-"]
    assert server.asked["/a"][1]["If-Range"] == '"one"'


def test_progress_is_no_failure_however_often_it_is_cut(server, fetched):
    server.serve("/a", CONTENT, *[Step(cut=1_000_001)] * 2, Step())
    assert fetched("/a", patience=Patience(attempts=2, first_wait=0.01)) == CONTENT


def test_a_stall_ends_and_the_transfer_goes_on(server, fetched, caplog):
    server.serve("/a", CONTENT, Step(stall=HALF), Step())
    assert fetched("/a") == CONTENT
    assert server.sent["/a"] == [HALF, len(CONTENT) - HALF]
    assert "timed out" in logged(caplog, "WARNING")[0]


def test_a_drip_is_a_stall(server, fetched, monkeypatch, caplog):
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
def test_the_wait_a_server_asks_for_is_kept(server, fetched, form):
    # A date has whole seconds.
    text = "1" if form == "seconds" else formatdate(time.time() + 2, usegmt=True)
    server.serve("/a", CONTENT, Step(status=429, headers={"Retry-After": text}), Step())
    started = time.monotonic()
    assert fetched("/a") == CONTENT
    assert time.monotonic() - started >= 0.9


def test_too_long_a_wait_is_not_waited_for(server, fetched):
    server.serve("/a", CONTENT, Step(status=503, headers={"Retry-After": "3600"}))
    server.serve("/b", CONTENT)
    assert fetched("/a", "/b") == CONTENT
    assert len(server.asked["/a"]) == 1


def test_waits_grow_and_vary(server, refused, monkeypatch):
    waits = []
    monkeypatch.setattr(time, "sleep", waits.append)
    server.serve("/a", CONTENT, Step(status=500))
    patience = Patience(attempts=8, first_wait=1, longest_wait=10)
    assert "status 500, 8 times" in refused("/a", patience=patience)
    longest = [1, 2, 4, 8, 10, 10, 10]
    assert len(waits) == len(longest)
    assert all(limit / 2 <= wait <= limit for wait, limit in zip(waits, longest, strict=True))
    assert len({wait / limit for wait, limit in zip(waits, longest, strict=True)}) > 1


# What is not.


@pytest.mark.parametrize("status", [403, 404, 410])
def test_a_mirror_that_refuses_is_asked_once(server, fetched, status):
    server.serve("/a", CONTENT, Step(status=status))
    server.serve("/b", CONTENT)
    assert fetched("/a", "/b") == CONTENT
    assert len(server.asked["/a"]) == 1


def test_a_circle_of_redirects_is_left(server, fetched):
    server.serve("/a", b"", Step(status=302, headers={"Location": "/a"}))
    server.serve("/b", CONTENT)
    assert fetched("/a", "/b") == CONTENT


def test_mirrors_are_asked_in_their_order(server, fetched):
    for path in ("/a", "/b"):
        server.serve(path, CONTENT)
    fetched("/a", "/b")
    assert "/b" not in server.asked


def test_when_all_fail_one_line_says_what_to_do_by_hand(server, refused):
    server.serve("/a", CONTENT, Step(status=404))
    line = refused("/a", "/b")
    assert line.startswith("test/file.bin: found no mirror that gives it (")
    assert f"({server.url[7:]}: status 404; {server.url[7:]}: status 404)" in line
    assert f"expected the file (3000000 bytes, md5 {hashlib.md5(CONTENT).hexdigest()})" in line  # noqa: S324
    assert f"; fetch {server.url}/a or {server.url}/b elsewhere and put it into the folder" in line


def test_without_a_network_the_line_says_so(tmp_path):
    file = PublicFile("test/file.bin", ("http://127.0.0.1:9/a",), size=1, md5="0" * 32)
    with pytest.raises(InputError, match=r"127\.0\.0\.1:9: .*refused.*, 3 times\)"):
        fetch(file, Catalog({}, {}), tmp_path, QUICK)


# What looks right and is wrong.


def test_right_size_with_wrong_bytes_is_deleted_and_the_next_mirror_asked(server, fetched, caplog, tmp_path):
    server.serve("/a", OTHER)
    server.serve("/b", CONTENT)
    assert fetched("/a", "/b") == CONTENT
    assert len(server.asked["/a"]) == 1
    assert f"{server.url}/a: the md5 {hashlib.md5(OTHER).hexdigest()}, expected" in logged(caplog, "WARNING")[0]  # noqa: S324
    assert left(tmp_path) == ["file.bin"]


def test_wrong_size_is_refused_before_it_is_transferred(server, refused, tmp_path):
    server.serve("/a", CONTENT + b"!")
    assert "3000001 bytes" in refused("/a")
    assert left(tmp_path) == []


def test_a_page_in_the_place_of_a_file_is_called_one(server, refused, tmp_path):
    page = b"<!DOCTYPE html><title>Log in</title>"
    server.serve("/a", b"", Step(body=page, headers={"Content-Type": "text/html"}))
    line = refused("/a", exact=False)
    assert "a web page that begins with '<!DOCTYPE html>" in line
    assert line.index("deleted") < line.index("expected the file")
    assert left(tmp_path) == []


def test_an_encoding_nobody_asked_for_is_refused(server, refused):
    server.serve("/a", CONTENT, Step(packed=True))
    assert "the md5 " in refused("/a", exact=False)


def test_more_than_can_be_is_not_stored(server, refused, tmp_path):
    server.serve("/a", CONTENT * 3, Step(length=False))
    assert "more than 3000000 bytes" in refused("/a")
    server.serve("/b", CONTENT * 3)
    assert "9000000 bytes" in refused("/b", exact=False)
    assert left(tmp_path) == []


# What may be continued.


def test_a_server_without_ranges_starts_anew(server, fetched):
    server.serve("/a", CONTENT, Step(cut=HALF), Step(ranges=False))
    assert fetched("/a") == CONTENT
    assert server.sent["/a"] == [HALF, len(CONTENT)]


def test_a_file_that_changed_meanwhile_is_not_spliced(server, fetched):
    server.serve("/a", OTHER, Step(cut=HALF, etag='"old"'), Step(etag='"new"'))
    server.serve("/a", CONTENT, *server.steps["/a"])
    server.steps["/a"][0].body = OTHER
    assert fetched("/a") == CONTENT
    # The condition was sent, did not hold, and all came.
    assert server.asked["/a"][1]["If-Range"] == '"old"'
    assert server.sent["/a"] == [HALF, len(CONTENT)]


def test_a_server_that_ignores_the_condition_is_not_believed(server, fetched):
    old = Step(cut=HALF, etag='W/"old"', body=OTHER)
    server.serve("/a", CONTENT, old, Step(etag='W/"new"'), Step())
    assert fetched("/a") == CONTENT
    # A weak tag is no condition; the answer shows that it is another file.
    assert "If-Range" not in server.asked["/a"][1]
    assert server.sent["/a"][-1] == len(CONTENT)


def test_without_any_tag_the_checksum_finds_what_was_spliced(server, fetched, caplog):
    server.serve("/a", CONTENT, Step(cut=HALF, etag=None, body=OTHER), Step(etag=None))
    assert fetched("/a") == CONTENT
    assert server.sent["/a"] == [HALF, len(CONTENT) - HALF, len(CONTENT)]
    assert "pieced together" in logged(caplog, "WARNING")[-1]


@pytest.mark.parametrize("given", ["bytes 0-2999999/3000000", "bytes 1500001-2999999/3000000", "items 5", ""])
def test_another_range_than_asked_for_is_not_taken(server, fetched, given):
    server.serve("/a", CONTENT, Step(cut=HALF), Step(content_range=given), Step())
    assert fetched("/a") == CONTENT


def test_a_part_that_is_already_whole_is_only_checked(server, fetched, tmp_path):
    server.serve("/a", CONTENT, Step(cut=HALF), Step(status=404))
    with pytest.raises(InputError):
        fetched("/a")
    part = Partial(tmp_path / "own", "test/file.bin", f"{server.url}/a")
    part.path.write_bytes(CONTENT)
    assert fetched("/a") == CONTENT
    assert len(server.asked["/a"]) == 2


def test_a_whole_part_of_unknown_length_is_known_by_the_answer(server, fetched, tmp_path):
    server.serve("/a", CONTENT, Step(length=False, stall=HALF), Step(status=404), Step())
    with pytest.raises(InputError):
        fetched("/a", exact=False)
    Partial(tmp_path / "own", "test/file.bin", f"{server.url}/a").path.write_bytes(CONTENT)
    assert fetched("/a", exact=False) == CONTENT
    assert server.sent["/a"] == [HALF, 0, 0]


def test_a_part_without_its_note_is_not_believed(server, fetched, tmp_path):
    part = Partial(tmp_path / "own", "test/file.bin", f"{server.url}/a")
    part.path.parent.mkdir(parents=True)
    part.path.write_bytes(OTHER[:HALF])
    server.serve("/a", CONTENT)
    assert fetched("/a") == CONTENT
    assert "Range" not in server.asked["/a"][0]


def test_each_mirror_has_a_part_of_its_own(server, fetched, tmp_path):
    server.serve("/a", CONTENT, Step(cut=HALF), Step(status=404), Step())
    server.serve("/b", CONTENT, Step(cut=HALF), Step(status=404))
    with pytest.raises(InputError):
        fetched("/a", "/b")
    assert fetched("/a", "/b") == CONTENT
    assert server.sent["/a"] == [HALF, 0, len(CONTENT) - HALF]
    assert left(tmp_path) == ["file.bin"]


# What is kept.


def test_a_kept_file_that_was_damaged_is_fetched_again(server, fetched, caplog, tmp_path):
    server.serve("/a", CONTENT)
    fetched("/a")
    (tmp_path / "own" / "test" / "file.bin").write_bytes(OTHER)
    caplog.clear()
    assert fetched("/a") == CONTENT
    assert "deleted, fetching it again" in logged(caplog, "WARNING")[0]


def test_too_small_a_disk_is_said_before_anything_comes(server, refused, monkeypatch, tmp_path):
    server.serve("/a", CONTENT)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 0, 2_999_999))
    line = refused("/a")
    assert "found 2999999 bytes free, expected 3000000 for test/file.bin; free space" in line
    assert all(path.stat().st_size < 1_000 for path in tmp_path.rglob("*.part"))


def test_only_what_is_still_to_come_needs_room(server, fetched, monkeypatch):
    server.serve("/a", CONTENT, Step(cut=HALF), Step())
    room = iter([3_000_000, HALF])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 0, next(room)))
    assert fetched("/a") == CONTENT


def test_a_full_disk_keeps_what_has_come(server, fetched, mount_disk, tmp_path, monkeypatch):
    folder = mount_disk(tmp_path / "own", 2_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 0, 10**9))
    server.serve("/a", CONTENT)
    with pytest.raises(OSError, match="No space left"):
        fetched("/a")
    came = next(folder.rglob("*.part")).stat().st_size
    assert came > HALF
    mount_disk(folder, 20_000)
    assert fetched("/a") == CONTENT
    assert server.asked["/a"][1]["Range"] == f"bytes={came}-"
