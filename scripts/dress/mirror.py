"""A web server of this machine for a rehearsal: mirrors of public files, some of which fail, and a model hub.

`/HOST/PATH` is a file as it is at that address; `/broken/NAME` fails, each name in its own way; all else is asked of
the hub: `/api/models/...` and `/MODEL/resolve/REVISION/FILE`.
"""

import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from cort.models.settings import ref_of

BROKEN = "broken"
PAGE = b"<!DOCTYPE html><html><body>We have moved.</body></html>"
ABOUT = re.compile(r"/api/models/(?P<model>[^/]+/[^/]+)/(?P<form>revision|tree)/(?P<revision>.+)")
RESOLVE = re.compile(r"/(?P<model>[^/]+/[^/]+)/resolve/(?P<commit>[^/]+)/(?P<file>.+)")
RANGE = re.compile(r"bytes=(\d+)-(\d*)")


class Answer(NamedTuple):
    """What a request gets; `cut` is after how many bytes the connection ends."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = {}
    cut: int | None = None


def missing(_: bytes) -> Answer:
    """Have no such file."""
    return Answer(404)


def busy(_: bytes) -> Answer:
    """Ask to come again, each time."""
    return Answer(503, headers={"Retry-After": "0"})


def corrupt(content: bytes) -> Answer:
    """Give other bytes in its second half."""
    half = len(content) // 2
    return Answer(body=content[:half] + bytes(byte ^ 0x55 for byte in content[half:]))


def page(_: bytes) -> Answer:
    """Give a web page instead."""
    return Answer(body=PAGE, headers={"Content-Type": "text/html"})


def cut(content: bytes) -> Answer:
    """End the connection in the middle; who asks for the rest gets it."""
    return Answer(body=content, cut=len(content) // 2)


FAULTS = (missing, busy, corrupt, page, cut)


class Mirror(ThreadingHTTPServer):
    """Files by path, files by name for the mirrors that fail, and models by name: (revision, folder)."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.files: Mapping[str, bytes] = {}
        self.named: Mapping[str, bytes] = {}
        self.models: Mapping[str, tuple[str, Path]] = {}
        #: how often each path was asked for with GET
        self.asked: Counter[str] = Counter()

    def answer(self, path: str) -> Answer:
        """Find what a path gets."""
        name = path.removeprefix("/")
        if name.startswith(f"{BROKEN}/"):
            name = name.removeprefix(f"{BROKEN}/")
            fault = FAULTS[sorted(self.named).index(name) % len(FAULTS)] if name in self.named else missing
            return fault(self.named.get(name, b""))
        if name in self.files:
            return Answer(body=self.files[name])
        return self._of_hub(path)

    def _of_hub(self, path: str) -> Answer:
        if found := ABOUT.fullmatch(path):
            revision, folder = self.models.get(found["model"], ("", Path()))
            if unquote(found["revision"]) not in (ref_of(revision), commit_of(revision)):
                return Answer(404)
            files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
            listed = [_entry(file, folder) for file in files]
            about = {"id": found["model"], "sha": commit_of(revision), "siblings": listed, "tags": [], "gated": False}
            return Answer(body=json.dumps(about if found["form"] == "revision" else listed).encode())
        if found := RESOLVE.fullmatch(path):
            revision, folder = self.models.get(found["model"], ("", Path()))
            file = folder / found["file"]
            if unquote(found["commit"]) in (ref_of(revision), commit_of(revision)) and file.is_file():
                return Answer(body=file.read_bytes(), headers={"X-Repo-Commit": commit_of(revision)})
            return Answer(404, headers={"X-Error-Code": "EntryNotFound"})
        return Answer(404)


def commit_of(revision: str) -> str:
    """Return the commit that a revision of the hub is; after its beginning a pull request's is made up."""
    known = revision.rpartition("@")[2]
    return known + _digest(revision.encode())[len(known) :]


def _entry(file: Path, folder: Path) -> dict[str, object]:
    """Describe a file as the hub does, in both forms of its lists."""
    name = file.relative_to(folder).as_posix()
    return {
        "type": "file",
        "path": name,
        "rfilename": name,
        "size": file.stat().st_size,
        "oid": _digest(file.read_bytes()),
    }


def _tag(answer: Answer) -> str:
    return f'"{_digest(answer.body)}"'


def _digest(content: bytes) -> str:
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    server: Mirror

    def do_HEAD(self) -> None:
        """Answer without a body."""
        answer = self.server.answer(urlsplit(self.path).path)
        self._send(answer, {"ETag": _tag(answer)}, with_body=False)

    def do_GET(self) -> None:
        """Answer with a part of a file, if that is what is asked for."""
        path = urlsplit(self.path).path
        self.server.asked[path] += 1
        answer = self.server.answer(path)
        headers = {"ETag": _tag(answer)}
        asked = RANGE.fullmatch(self.headers.get("Range", ""))
        if asked and answer.status == 200:
            first, size = int(asked[1]), len(answer.body)
            last = min(int(asked[2] or size), size - 1)
            headers["Content-Range"] = f"bytes {first}-{last}/{size}"
            answer = answer._replace(status=206, body=answer.body[first : last + 1], cut=None)
        self._send(answer, headers)

    def _send(self, answer: Answer, headers: Mapping[str, str], with_body: bool = True) -> None:
        self.send_response(answer.status)
        length = {"Content-Length": str(len(answer.body)), "Connection": "close"}
        for name, value in {**headers, **answer.headers, **length}.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        if with_body:
            with suppress(ConnectionError):
                self.wfile.write(answer.body[: answer.cut])

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving() -> Iterator[Mirror]:
    """Run a server on a free port."""
    with Mirror() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
