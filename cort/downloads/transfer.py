"""One transfer from one URL, from where the partial file ends: what may be continued, what to ask again, what not.

The partial file has a note beside it that tells whose part it is, so that no changed file is spliced.

Bytes are kept as they come: ``identity`` is asked for, and what a server or proxy compresses all the same is left to
the checksums.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import NamedTuple

import requests
import urllib3.exceptions

from cort import __version__
from cort.downloads.catalog import PublicFile
from cort.system.errors import input_error, shorten
from cort.system.files import write_text
from cort.system.progress import track

CHUNK = 1 << 18
MB = 10**6
# Without a known size, a file may be larger than expected by this factor and these bytes.
TOLERANCE, SLACK = 2, MB
# Bytes per second below which a transfer stands still.
SLOWEST = 100
REDIRECTS = 10
# Worth asking again, as is all above: the server is busy, restarting or out of order.
TEMPORARY, OUT_OF_ORDER = frozenset({408, 425, 429}), 500
OK, PARTIAL, UNSATISFIABLE = 200, 206, 416
# NIST's server answers 403 to what looks like no browser.
AGENT = f"Mozilla/5.0 (X11; Linux x86_64) cort/{__version__}"
# Requests' words for URLs that are none are ValueErrors.
NEVER = (requests.TooManyRedirects, ValueError)


@dataclass(frozen=True)
class Patience:
    """Seconds to wait for a connection, for a transfer that stands still, between attempts; attempts without gain."""

    connect: float = 20
    stall: float = 60
    attempts: int = 6
    first_wait: float = 1
    longest_wait: float = 60
    # What a server may ask for by Retry-After.
    longest_asked: float = 900


class Refused(Exception):
    """A URL that does not give the file, and would not if asked again."""


class Broken(Exception):
    """A transfer that went wrong this time; `wait` is what the server asked for, in seconds."""

    def __init__(self, message: str, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


class Identity(NamedTuple):
    """What a server says of a file: its entity tag, date and size in bytes; None where it says nothing."""

    url: str
    etag: str | None = None
    modified: str | None = None
    total: int | None = None


class Partial:
    """What has come from one URL: ``<file>.<url's hash>.part``, beside it ``.json`` with its identity."""

    def __init__(self, folder: Path, name: str, url: str) -> None:
        key = hashlib.sha256(url.encode()).hexdigest()[:8]
        self.url, self.path = url, folder / f"{name}.{key}.part"
        self._note = self.path.with_suffix(".json")

    def __str__(self) -> str:
        return f", from byte {self.size}" if self.size else ""

    @property
    def size(self) -> int:
        """Bytes that are there and may be continued."""
        return self.path.stat().st_size if self.identity is not None and self.path.is_file() else 0

    @property
    def identity(self) -> Identity | None:
        """What the part is of; None if that is not known."""
        try:
            found = Identity(**json.loads(self._note.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None
        return found if found.url == self.url else None

    def begin(self, identity: Identity) -> None:
        """Start anew."""
        self.discard()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.touch()
        # After the old bytes went: a note never stands beside bytes of another file.
        write_text(self._note, json.dumps(identity._asdict()) + "\n")

    def discard(self) -> None:
        """Remove the part."""
        for path in (self._note, self.path):
            path.unlink(missing_ok=True)


def new_session() -> requests.Session:
    """Session that asks as it must be asked; proxies are those of the environment."""
    session = requests.Session()
    session.max_redirects = REDIRECTS
    session.headers.update({"User-Agent": AGENT, "Accept": "*/*", "Accept-Encoding": "identity"})
    return session


def transfer(session: requests.Session, partial: Partial, file: PublicFile, patience: Patience) -> None:
    """Bring a partial file to its end; all that comes is kept, whatever ends the transfer.

    :raises Broken, Refused, InputError: when it is worth another attempt; when it is not; when the disk is too small.
    """
    start, before = partial.size, partial.identity
    asked = {}
    if start and before:
        if before.total == start:
            return
        asked["Range"] = f"bytes={start}-"
        strong = before.etag if before.etag and not before.etag.startswith("W/") else None
        if validator := strong or before.modified:
            asked["If-Range"] = validator
    try:
        response = session.get(partial.url, headers=asked, stream=True, timeout=(patience.connect, patience.stall))
    except (requests.RequestException, ValueError) as error:
        never = isinstance(error, NEVER) or "CERTIFICATE_VERIFY_FAILED" in str(error)
        raise (Refused if never else Broken)(explain(error)) from error
    with closing(response):
        size = response.headers.get("Content-Range", "").strip().rpartition("/")[2]
        total = int(size) if size.isdigit() else None
        if response.status_code == UNSATISFIABLE and start and total == start:
            # All had come, and nobody had said how much it is.
            return
        total = _accept(response, partial, start, total, file)
        needed = (total or file.about) - partial.size
        free = shutil.disk_usage(partial.path.parent).free
        if needed > free:
            fix = "free space or make results/ a link to a larger disk, and call again"
            raise input_error(partial.path.parent, f"{free} bytes free", f"{needed} for {file.name}", fix)
        megabytes = None if total is None else total // MB
        for _ in track(_store(response, partial, total, file, patience), megabytes, "MB", partial.size // MB):
            pass


def _accept(
    response: requests.Response, partial: Partial, start: int, total: int | None, file: PublicFile
) -> int | None:
    """Judge an answer by its head, and make the partial file ready for it; the file's size if it is known."""
    status = response.status_code
    if status in TEMPORARY or status >= OUT_OF_ORDER:
        raise Broken(f"status {status}", _asked_wait(response))
    etag, modified = response.headers.get("ETag"), response.headers.get("Last-Modified")
    before = partial.identity
    if start and before is not None and status in (PARTIAL, UNSATISFIABLE):
        given, now = response.headers.get("Content-Range", ""), Identity(partial.url, etag, modified, total)
        problem = None
        if status == UNSATISFIABLE:
            problem = "no such range of it: it changed"
        elif not given.strip().startswith(f"bytes {start}-"):
            problem = f"another range than asked for ({shorten(given)})"
        elif any(None not in pair and pair[0] != pair[1] for pair in zip(before, now, strict=True)):
            problem = "it changed meanwhile"
        if problem:
            partial.discard()
            raise Broken(problem, 0)
        return before.total if total is None else total
    if status != OK:
        raise Refused(f"status {status}")
    length = response.headers.get("Content-Length", "")
    total = int(length) if length.isdigit() else None
    if total is not None and (total > _most(file) or total != (file.bytes or total)):
        kind = response.headers.get("Content-Type", "")
        raise Refused(f"{total} bytes of {shorten(kind)}, expected {file.about}")
    # A server without ranges, or a file that is another one than before.
    partial.begin(Identity(partial.url, etag, modified, total))
    return total


def _store(
    response: requests.Response, partial: Partial, total: int | None, file: PublicFile, patience: Patience
) -> Iterator[None]:
    """Write what comes; yield once per megabyte."""
    most = total or _most(file)
    size = shown = partial.size
    with open(partial.path, "ab") as out:
        for chunk in _receive(response, patience.stall):
            size += len(chunk)
            if size > most:
                partial.discard()
                raise Refused(f"more than {most} bytes")
            out.write(chunk)
            # What came survives whatever ends this process.
            out.flush()
            while size - shown >= MB:
                shown += MB
                yield
    if total is not None and size < total:
        raise Broken(f"cut after {size} of {total} bytes")


def _receive(response: requests.Response, stall: float) -> Iterator[bytes]:
    """Yield what comes as it comes; an end before the announced one, or no end, is told apart from a good one."""
    began, came = time.monotonic(), 0
    while True:
        try:
            # Whatever one read of the socket gives: a drip must not look like a stream.
            chunk: bytes = response.raw.read1(CHUNK, decode_content=False)
        except (urllib3.exceptions.HTTPError, OSError) as error:  # requests' own are OSErrors
            raise Broken(explain(error)) from error
        if not chunk:
            return
        yield chunk
        came += len(chunk)
        now = time.monotonic()
        if now - began >= stall:
            if came < SLOWEST * stall:
                raise Broken(f"{came} bytes in {now - began:.0f} s")
            began, came = now, 0


def _most(file: PublicFile) -> int:
    """Bytes that may come."""
    return file.bytes or TOLERANCE * file.about + SLACK


def _asked_wait(response: requests.Response) -> float | None:
    """Seconds that Retry-After asks for, given as such or as a date."""
    text = response.headers.get("Retry-After", "").strip()
    if text.isdigit():
        return float(text)
    with suppress(ValueError, TypeError):
        return max((parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds(), 0)
    return None


def explain(error: BaseException) -> str:
    """Find what went wrong in the libraries' nested errors."""
    nested = [part for part in (getattr(error, "reason", None), *error.args) if isinstance(part, BaseException)]
    if nested and nested[0] is not error:
        return explain(nested[0])
    words = re.sub(r"^<?[\w.]+\(.*?\)>?: |^[\w.]*Connection\w*\(.*?\): ", "", " ".join(str(error).split()))
    return shorten(words or type(error).__name__, 120).strip("'\"")
