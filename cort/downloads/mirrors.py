"""Fetching a file from the first mirror that gives it whole and right."""

from __future__ import annotations

import logging
import random
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import requests

from cort.downloads.catalog import Catalog, PublicFile
from cort.downloads.checks import problem_with
from cort.downloads.partial import Partial
from cort.downloads.transfer import Broken, Patience, Refused, new_session, transfer
from cort.system.errors import InputError, input_error
from cort.system.interruption import Interrupted, exit_status

log = logging.getLogger(__name__)

# Bytes by which a partial file must have grown to count as progress.
GAIN = 10**6


def fetch(file: PublicFile, catalog: Catalog, folder: Path, patience: Patience) -> Path:
    """Fetch and check a file; the path of the partial file, now whole, which is the caller's to move.

    Partial files stay in `folder`, one for each mirror, until a call succeeds.

    :raises InputError: when no mirror gives it; with what to do by hand.
    :raises Interrupted: on Ctrl-C.
    """
    reasons = []
    partial = Partial(folder, file.name, file.urls[0])
    try:
        with new_session() as session:
            for url in file.urls:
                partial = Partial(folder, file.name, url)
                log.info("fetching %s from %s%s", file.name, url, _from_byte(partial))
                try:
                    _fetch_from(session, url, catalog.headers_for(url), partial, file, patience)
                except Refused as reason:
                    log.warning("%s: %s", url, reason)
                    reasons.append((url, str(reason)))
                else:
                    return partial.path
    except KeyboardInterrupt:
        message = f"{file.name}: interrupted; {partial.size} bytes are kept, call again to go on from there"
        raise Interrupted(message, exit_status(signal.SIGINT)) from None
    raise by_hand(file, reasons)


def by_hand(file: PublicFile, reasons: Sequence[tuple[str, str]]) -> InputError:
    """Build the line that says how to bring a file that no mirror gives this machine.

    :param reasons: (URL, why it does not).
    """
    urls = " or ".join(file.urls)
    found = f"no mirror that gives it ({'; '.join(f'{urlsplit(url).netloc}: {why}' for url, why in reasons)})"
    fix = f"fetch {urls} elsewhere and put it into the folder that `downloads: {{folder: ...}}` of the config names"
    return input_error(file.name, found, f"the file ({file.facts})", fix)


def discard_partials(file: PublicFile, folder: Path) -> None:
    """Remove the partial files of all mirrors, also of those that are no longer known."""
    for suffix in ("part", "json"):
        for path in folder.glob(f"{file.name}.{'[0-9a-f]' * 8}.{suffix}"):
            path.unlink(missing_ok=True)


def _fetch_from(
    session: requests.Session,
    url: str,
    headers: Mapping[str, str],
    partial: Partial,
    file: PublicFile,
    patience: Patience,
) -> None:
    """Ask one mirror, again as long as it is worth it; a wrong file is deleted.

    :raises Refused: when this mirror does not give the file.
    """
    failures, furthest, pieced = 0, partial.size, partial.size > 0
    while True:
        try:
            transfer(session, url, headers, partial, file, patience)
        except Broken as broken:
            size = partial.size
            if size >= furthest + GAIN:
                failures, furthest = 0, size
            failures, pieced = failures + 1, pieced or size > 0
            _wait(url, broken, failures, partial, patience)
            continue
        problem = problem_with(partial.path, file)
        if problem is None:
            return
        partial.discard()
        if not pieced:
            raise Refused(f"{problem}, expected {file.facts}; deleted")
        # Parts of several transfers: one that is whole may be right.
        log.warning("%s: pieced together from several transfers: %s; deleted, starting anew", url, problem)
        pieced = False


def _wait(url: str, broken: Broken, failures: int, partial: Partial, patience: Patience) -> None:
    if failures >= patience.attempts:
        raise Refused(f"{broken}, {failures} times") from broken
    longest = min(patience.first_wait * 2 ** (failures - 1), patience.longest_wait)
    seconds = longest * random.uniform(0.5, 1)  # noqa: S311 - so that not all come back at once
    if broken.wait is not None:
        if broken.wait > patience.longest_asked:
            raise Refused(f"{broken}, and asks to wait {broken.wait:.0f} s") from broken
        seconds = broken.wait
    log.warning("%s: %s; trying again in %.1f s%s", url, broken, seconds, _from_byte(partial))
    time.sleep(seconds)


def _from_byte(partial: Partial) -> str:
    return f", from byte {partial.size}" if partial.size else ""
