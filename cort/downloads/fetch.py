"""Sources of public files: the user's folder, this project's downloads, or the first mirror with the right file.

A transfer appends to FILE.part, which stays when it ends early and which the next attempt continues, from any mirror.
Only complete files are checked: a checksum also reveals parts of different versions.
"""

from __future__ import annotations

import logging
import os
import random
import re
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import requests
import urllib3.exceptions
from filelock import Timeout

from cort import __version__
from cort.downloads.catalog import Catalog, PublicFile, problem_with
from cort.runtime.errors import InputError, input_error, shorten
from cort.runtime.locks import acquire
from cort.runtime.progress import Counter

log = logging.getLogger(__name__)

CHUNK, MB = 1 << 18, 10**6
# Seconds to wait for a connection, and for the next bytes.
PATIENCE = (20, 60)
# Attempts with less progress than a megabyte before giving up on a mirror; seconds between them, and the longest wait
# that a server may ask for.
ATTEMPTS, FIRST_WAIT, LONGEST_WAIT, LONGEST_ASKED = 6, 1.0, 60.0, 900.0
# Statuses worth a retry, like SERVER_ERROR and above: the server is busy, restarting or broken.
TEMPORARY, SERVER_ERROR = frozenset({408, 425, 429}), 500
OK, PARTIAL, UNSATISFIABLE = 200, 206, 416
# NIST's server answers 403 to clients that do not look like a browser.
AGENT = f"Mozilla/5.0 (X11; Linux x86_64) cort/{__version__}"
# Errors that a retry cannot help; requests raises ValueErrors for malformed URLs.
NEVER = (requests.TooManyRedirects, ValueError)


class Refused(Exception):
    """A URL does not provide the file, and a retry would not help."""


class Broken(Exception):
    """A transfer failed, but a retry may succeed; `wait` is the time in seconds that the server asks for, or empty."""

    def __init__(self, message: str, wait: str = "") -> None:
        super().__init__(message)
        self.wait = wait


@dataclass(frozen=True)
class Sources:
    """Places to look for files: the user's `folder`, which is only read, and `own`, where downloads are kept."""

    catalog: Catalog
    own: Path
    folder: Path | None = None

    def in_folder(self, file: PublicFile) -> Path | None:
        """Find a file in the user's folder; other files of its name are passed over."""
        for path in file.copies_in(self.folder):
            if (problem := problem_with(path, file)) is None:
                log.info("%s is %s", file.name, path)
                return path
            log.warning("%s: found %s, expected %s (%s); passed over", path, problem, file.name, file.facts)
        return None

    def obtain(self, file: PublicFile) -> Path:
        """Return a checked copy of a file with URLs, fetched if necessary; one process fetches it for all."""
        if copy := self.in_folder(file):
            return copy
        kept = self.own / file.name
        kept.parent.mkdir(parents=True, exist_ok=True)
        path = kept.with_name(f"{kept.name}.lock")
        try:
            lock = acquire(path)
        except Timeout:
            log.info("another process is fetching %s; waiting for it", kept.name)
            lock = acquire(path, timeout=-1)
        # Where files cannot be locked, no process waits; each has a partial file of its own.
        part = kept.with_name(f"{kept.name}.part" if lock else f"{kept.name}.{os.getpid()}.part")
        with ExitStack() as held:
            if lock:
                held.callback(lock.release)
            if kept.exists():
                if (problem := problem_with(kept, file)) is None:
                    log.info("%s was downloaded before", file.name)
                    return kept
                kept.unlink()
                log.warning("%s: found %s, expected %s; deleted, fetching it again", kept, problem, file.facts)
            fetch(file, self.catalog, part)
            os.replace(part, kept)
        return kept


def fetch(file: PublicFile, catalog: Catalog, part: Path) -> None:
    """Fetch a file to this path, and check it; if no mirror works, the error says how to fetch it by hand."""
    reasons = []
    for url in file.urls:
        with new_session() as session:
            session.headers.update(catalog.headers_for(url))
            try:
                log.info("fetching %s from %s, after %d bytes", file.name, url, _size(part))
                _fetch_from(session, url, part, file)
            except Refused as reason:
                log.warning("%s: %s", url, reason)
                reasons.append((url, str(reason)))
            else:
                return
    raise by_hand(file, reasons)


def by_hand(file: PublicFile, reasons: Sequence[tuple[str, str]]) -> InputError:
    """Create the error for a file that no mirror provides, which says how to get it; `reasons` are (URL, why not)."""
    urls = " or ".join(file.urls)
    found = f"no working mirror ({'; '.join(f'{urlsplit(url).netloc}: {why}' for url, why in reasons)})"
    fix = f"fetch {urls} elsewhere and put it into the folder that `downloads: {{folder: ...}}` of the config names"
    return input_error(file.name, found, f"the file ({file.facts})", fix)


def new_session() -> requests.Session:
    """Create a session with the headers that servers expect; proxies come from the environment."""
    session = requests.Session()
    session.headers.update({"User-Agent": AGENT, "Accept": "*/*", "Accept-Encoding": "identity"})
    return session


def _fetch_from(session: requests.Session, url: str, part: Path, file: PublicFile) -> None:
    """Fetch from one mirror, with retries; a wrong file is deleted.

    :raises Refused: if the mirror does not provide the right file.
    """
    failures, again = 0, False
    while True:
        start = _size(part)
        try:
            _transfer(session, url, part, file)
        except Broken as broken:
            failures = 1 if _size(part) >= start + MB else failures + 1
            _wait(broken, url, part, failures)
            continue
        if (problem := problem_with(part, file)) is None:
            return
        part.unlink()
        if again or not start:
            raise Refused(f"{problem}, expected {file.facts}; deleted")
        # It was assembled from several transfers; a single one may give the right file.
        log.warning("%s: assembled from several transfers: %s; deleted, fetching it again", url, problem)
        again = True


def _transfer(session: requests.Session, url: str, part: Path, file: PublicFile) -> None:
    """Continue a partial file to its end; received bytes are kept however the transfer ends.

    Bytes are kept as received: requests ask for ``identity``, and checksums reveal content that was compressed anyway.

    :raises Broken: if a retry may succeed.
    :raises Refused: if it cannot.
    """
    start = _size(part)
    headers = {"Range": f"bytes={start}-"} if start else {}
    try:
        with session.get(url, headers=headers, stream=True, timeout=PATIENCE) as response:
            status = response.status_code
            if status in TEMPORARY or status >= SERVER_ERROR:
                raise Broken(f"status {status}", response.headers.get("Retry-After", ""))
            if start and status == UNSATISFIABLE:
                # There are no more bytes.
                return
            if status not in (OK, PARTIAL):
                raise Refused(f"status {status}")
            if start and status == OK and response.headers.get("Content-Type", "").startswith("text/html"):
                # It must not replace what was received.
                raise Refused("a web page")
            # A server without ranges sends all again.
            mode, total = "ab" if status == PARTIAL else "wb", file.about // MB or None
            with open(part, mode) as out, Counter(total, "MB", out.tell() // MB) as done:
                # One read from the socket, which may be short: waiting for a full chunk would lose it in a stall.
                while chunk := response.raw.read1(CHUNK, decode_content=False):
                    out.write(chunk)
                    out.flush()
                    done.advance(out.tell() // MB - done.count)
    except (requests.RequestException, urllib3.exceptions.HTTPError, ValueError) as error:
        never = isinstance(error, NEVER) or "CERTIFICATE_VERIFY_FAILED" in str(error)
        raise (Refused if never else Broken)(explain(error)) from error


def _wait(broken: Broken, url: str, part: Path, failures: int) -> None:
    """Wait before the next attempt; refuse one too many."""
    if failures >= ATTEMPTS:
        raise Refused(f"{broken}, {failures} times") from broken
    # They vary, so that clients do not all retry at once.
    seconds = min(FIRST_WAIT * 2 ** (failures - 1), LONGEST_WAIT) * random.uniform(0.5, 1)  # noqa: S311
    if broken.wait.isdigit():
        seconds = float(broken.wait)
        if seconds > LONGEST_ASKED:
            raise Refused(f"{broken}, and asks to wait {seconds:.0f} s") from broken
    log.warning("%s: %s; trying again in %.1f s, after %d bytes", url, broken, seconds, _size(part))
    time.sleep(seconds)


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def explain(error: BaseException) -> str:
    """Extract the cause from the nested errors of requests and urllib3."""
    nested = [part for part in (getattr(error, "reason", None), *error.args) if isinstance(part, BaseException)]
    if nested and nested[0] is not error:
        return explain(nested[0])
    words = re.sub(r"^<?[\w.]+\(.*?\)>?: |^[\w.]*Connection\w*\(.*?\): ", "", " ".join(str(error).split()))
    return shorten(words or type(error).__name__, 120).strip("'\"")
