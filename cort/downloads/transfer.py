"""One transfer from one URL, from the end of the partial file: what to resume, what to retry, and when to give up.

A note beside the partial file identifies its version, so that parts of different versions are never joined.

Bytes are kept as received: requests ask for ``identity``, and checksums reveal content that was compressed anyway.
"""

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
from cort.system.progress import Counter

CHUNK = 1 << 18
MB = 10**6
# A file whose exact size is unknown may be larger than expected by this factor plus these bytes.
TOLERANCE, SLACK = 2, MB
# Bytes per second below which a transfer counts as stalled.
SLOWEST = 100
REDIRECTS = 10
# Statuses worth a retry, like SERVER_ERROR and above: the server is busy, restarting or broken.
TEMPORARY, SERVER_ERROR = frozenset({408, 425, 429}), 500
OK, PARTIAL, UNSATISFIABLE = 200, 206, 416
# NIST's server answers 403 to clients that do not look like a browser.
AGENT = f"Mozilla/5.0 (X11; Linux x86_64) cort/{__version__}"
# Errors that a retry cannot help; requests raises ValueErrors for malformed URLs.
NEVER = (requests.TooManyRedirects, ValueError)


@dataclass(frozen=True)
class Patience:
    """Seconds to wait for a connection, for a stalled transfer and between attempts; attempts without progress."""

    connect: float = 20
    stall: float = 60
    attempts: int = 6
    first_wait: float = 1
    longest_wait: float = 60
    # The longest wait that a server may ask for with Retry-After.
    longest_asked: float = 900


class Refused(Exception):
    """A URL does not provide the file, and a retry would not help."""


class Broken(Exception):
    """A transfer failed, but a retry may succeed; `wait` is the time in seconds that the server requests."""

    def __init__(self, message: str, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


class Identity(NamedTuple):
    """A server's description of a file: entity tag, date and size in bytes; None if not given."""

    url: str
    etag: str | None = None
    modified: str | None = None
    total: int | None = None


class Partial:
    """Bytes received from one URL, in ``<file>.<hash of URL>.part``; the ``.json`` beside it has the identity."""

    def __init__(self, folder: Path, name: str, url: str) -> None:
        key = hashlib.sha256(url.encode()).hexdigest()[:8]
        self.url, self.path = url, folder / f"{name}.{key}.part"
        self._note = self.path.with_suffix(".json")

    def __str__(self) -> str:
        return f", from byte {self.size}" if self.size else ""

    @property
    def size(self) -> int:
        """Number of bytes that can be resumed."""
        return self.path.stat().st_size if self.identity is not None and self.path.is_file() else 0

    @property
    def identity(self) -> Identity | None:
        """The file that this is a part of; None if unknown."""
        try:
            identity = Identity(**json.loads(self._note.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None
        return identity if identity.url == self.url else None

    def begin(self, identity: Identity) -> None:
        """Start from the beginning."""
        self.discard()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.touch()
        # After the old bytes are gone, so that a note is never beside the bytes of another file.
        write_text(self._note, json.dumps(identity._asdict()) + "\n")

    def discard(self) -> None:
        """Remove the part."""
        for path in (self._note, self.path):
            path.unlink(missing_ok=True)


def new_session() -> requests.Session:
    """Create a session with the headers that servers expect; proxies come from the environment."""
    session = requests.Session()
    session.max_redirects = REDIRECTS
    session.headers.update({"User-Agent": AGENT, "Accept": "*/*", "Accept-Encoding": "identity"})
    return session


def transfer(session: requests.Session, partial: Partial, file: PublicFile, patience: Patience) -> None:
    """Complete a partial file; received bytes are kept however the transfer ends.

    :raises Broken: if a retry may succeed.
    :raises Refused: if it cannot.
    :raises InputError: if the disk is too small.
    """
    start, before = partial.size, partial.identity
    headers = {}
    if start and before:
        if before.total == start:
            return
        headers["Range"] = f"bytes={start}-"
        strong = before.etag if before.etag and not before.etag.startswith("W/") else None
        if validator := strong or before.modified:
            headers["If-Range"] = validator
    try:
        response = session.get(partial.url, headers=headers, stream=True, timeout=(patience.connect, patience.stall))
    except (requests.RequestException, ValueError) as error:
        never = isinstance(error, NEVER) or "CERTIFICATE_VERIFY_FAILED" in str(error)
        raise (Refused if never else Broken)(explain(error)) from error
    with closing(response):
        size = response.headers.get("Content-Range", "").strip().rpartition("/")[2]
        total = int(size) if size.isdigit() else None
        if response.status_code == UNSATISFIABLE and start and total == start:
            # The part was complete, although its total size was unknown.
            return
        total = _accept(response, partial, start, total, file)
        needed = (total or file.about) - partial.size
        free = shutil.disk_usage(partial.path.parent).free
        if needed > free:
            fix = "free space or make results/ a link to a larger disk, and call again"
            raise input_error(partial.path.parent, f"{free} bytes free", f"{needed} for {file.name}", fix)
        with Counter(None if total is None else total // MB, "MB", partial.size // MB) as counter:
            _store(response, partial, total, file, patience, counter)


def _accept(
    response: requests.Response, partial: Partial, start: int, total: int | None, file: PublicFile
) -> int | None:
    """Check the headers of a response and prepare the partial file for its body; return the file's size if known."""
    status = response.status_code
    if status in TEMPORARY or status >= SERVER_ERROR:
        raise Broken(f"status {status}", _retry_after(response))
    etag, modified = response.headers.get("ETag"), response.headers.get("Last-Modified")
    before = partial.identity
    if start and before is not None and status in (PARTIAL, UNSATISFIABLE):
        content_range, now = response.headers.get("Content-Range", ""), Identity(partial.url, etag, modified, total)
        problem = None
        if status == UNSATISFIABLE:
            problem = "the range is gone: the file changed"
        elif not content_range.strip().startswith(f"bytes {start}-"):
            problem = f"another range than requested ({shorten(content_range)})"
        elif any(None not in pair and pair[0] != pair[1] for pair in zip(before, now, strict=True)):
            problem = "the file changed meanwhile"
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
    # The server has no ranges, or the file changed.
    partial.begin(Identity(partial.url, etag, modified, total))
    return total


def _store(
    response: requests.Response,
    partial: Partial,
    total: int | None,
    file: PublicFile,
    patience: Patience,
    counter: Counter,
) -> None:
    """Append the body of a response to the partial file."""
    most, size = total or _most(file), partial.size
    with open(partial.path, "ab") as out:
        for chunk in _receive(response, patience.stall):
            size += len(chunk)
            if size > most:
                partial.discard()
                raise Refused(f"more than {most} bytes")
            out.write(chunk)
            # Received bytes must survive any end of this process.
            out.flush()
            counter.advance(size // MB - counter.count)
    if total is not None and size < total:
        raise Broken(f"cut after {size} of {total} bytes")


def _receive(response: requests.Response, stall: float) -> Iterator[bytes]:
    """Yield the body of a response as it arrives; a stalled transfer is `Broken`."""
    began, received = time.monotonic(), 0
    while True:
        try:
            # One read from the socket, which may be short: waiting for a full chunk would hide a stall.
            chunk: bytes = response.raw.read1(CHUNK, decode_content=False)
        except (urllib3.exceptions.HTTPError, OSError) as error:  # errors of requests are OSErrors
            raise Broken(explain(error)) from error
        if not chunk:
            return
        yield chunk
        received += len(chunk)
        now = time.monotonic()
        if now - began >= stall:
            if received < SLOWEST * stall:
                raise Broken(f"{received} bytes in {now - began:.0f} s")
            began, received = now, 0


def _most(file: PublicFile) -> int:
    """Largest acceptable size in bytes."""
    return file.bytes or TOLERANCE * file.about + SLACK


def _retry_after(response: requests.Response) -> float | None:
    """Seconds to wait according to Retry-After, which gives seconds or a date."""
    text = response.headers.get("Retry-After", "").strip()
    if text.isdigit():
        return float(text)
    with suppress(ValueError, TypeError):
        return max((parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds(), 0)
    return None


def explain(error: BaseException) -> str:
    """Extract the cause from the nested errors of requests and urllib3."""
    nested = [part for part in (getattr(error, "reason", None), *error.args) if isinstance(part, BaseException)]
    if nested and nested[0] is not error:
        return explain(nested[0])
    words = re.sub(r"^<?[\w.]+\(.*?\)>?: |^[\w.]*Connection\w*\(.*?\): ", "", " ".join(str(error).split()))
    return shorten(words or type(error).__name__, 120).strip("'\"")
