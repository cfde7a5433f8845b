"""Sources of public files: the user's folder, this project's downloads, or the first mirror that works."""

from __future__ import annotations

import logging
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import requests
from filelock import Timeout

from cort.downloads.catalog import Catalog, PublicFile, load_catalog, problem_with
from cort.downloads.transfer import Broken, Partial, Patience, Refused, new_session, transfer
from cort.system.errors import InputError, input_error
from cort.system.files import atomic_file, temporary_folder
from cort.system.interruption import Interrupted, exit_status
from cort.system.locks import acquire
from cort.system.options import optional, options_class, required

log = logging.getLogger(__name__)

# Bytes by which a partial file must grow to count as progress.
GAIN = 10**6


@options_class
class FileOptions:
    """Options of both commands: which file, where to look for it, and where to put it."""

    name: str = required(help="in the catalogue, for example msmarco/qrels.train.tsv")
    catalog: str | None = optional(None, "a catalogue other than this project's", "YAML")
    downloads: str = required("FOLDER", "for complete and partial downloads")
    folder: str | None = optional(None, "your copies of the files; only read", "FOLDER")
    stall: float = optional(Patience.stall, "abort a transfer after stalling for this many seconds", "S")
    attempts: int = optional(Patience.attempts, "attempts without progress before giving up on a mirror", "N")
    output: str = required("FILE")


@dataclass(frozen=True)
class Sources:
    """Places to look for files: the user's `folder`, which is only read, and `own`, where downloads are kept."""

    catalog: Catalog
    own: Path
    folder: Path | None = None
    patience: Patience = field(default_factory=Patience)

    @classmethod
    def of(cls, options: FileOptions) -> Sources:
        """Read the catalogue, and check the options."""
        if options.stall <= 0 or options.attempts < 1:
            found, fix = f"{options.stall} and {options.attempts}", "give positive numbers"
            raise input_error("--stall, --attempts", found, "more than 0", fix)
        folder = Path(options.folder) if options.folder else None
        if folder is not None and not folder.is_dir():
            raise input_error(folder, "no such folder", "the folder with your files", "fix downloads.folder")
        patience = Patience(stall=options.stall, attempts=options.attempts)
        return cls(load_catalog(options.catalog), Path(options.downloads), folder, patience)

    def in_folder(self, file: PublicFile) -> Path | None:
        """Find a file in the user's folder; None if it is not there.

        :raises InputError: if all files with its names differ from the catalogue.
        """
        problems = {}
        for path in file.copies_in(self.folder):
            if (problem := problem_with(path, file)) is None:
                log.info("%s is %s", file.name, path)
                return path
            problems[path] = problem
        for path, problem in problems.items():
            fix = f"fetch it again{f' from {file.urls[0]}' if file.urls else ''}, or move it out of that folder"
            raise input_error(path, problem, f"{file.name} ({file.facts})", fix)
        return None

    def obtain(self, file: PublicFile) -> Path:
        """Return a checked copy of a file with URLs, fetched if necessary; one process fetches it for all."""
        if copy := self.in_folder(file):
            return copy
        kept = self.own / file.name
        kept.parent.mkdir(parents=True, exist_ok=True)
        with _parts(kept, file.name) as parts:
            if kept.exists():
                if (problem := problem_with(kept, file)) is None:
                    log.info("%s was downloaded before", file.name)
                    return kept
                kept.unlink()
                log.warning("%s: found %s, expected %s; deleted, fetching it again", kept, problem, file.facts)
            part = fetch(file, self.catalog, parts, self.patience)
            with open(part, "rb") as handle:
                os.fsync(handle.fileno())
            os.replace(part, kept)
            # Parts from all mirrors, including those that the catalogue no longer lists.
            for path in parts.glob(f"{file.name}.{'[0-9a-f]' * 8}.*"):
                if path.suffix in (".part", ".json"):
                    path.unlink(missing_ok=True)
        return kept


def place(source: Path, output: str | Path) -> None:
    """Link or copy a file to its place."""
    with atomic_file(output) as temporary:
        try:
            # A file of another user is copied, because Snakemake sets the times of outputs.
            if source.stat().st_uid != os.geteuid():
                raise PermissionError
            os.link(source.resolve(), temporary)
        except OSError:
            shutil.copyfile(source, temporary)


def fetch(file: PublicFile, catalog: Catalog, folder: Path, patience: Patience) -> Path:
    """Fetch and check a file; return the path of the complete partial file, which the caller moves.

    Partial files stay in `folder`, one per mirror, until a call succeeds. If no mirror works, the error says how to
    fetch the file by hand; Ctrl-C becomes an `Interrupted`.
    """
    reasons = []
    for url in file.urls:
        partial = Partial(folder, file.name, url)
        with new_session() as session:
            session.headers.update(catalog.headers_for(url))
            try:
                log.info("fetching %s from %s%s", file.name, url, partial)
                _fetch_from(session, partial, file, patience)
            except Refused as reason:
                log.warning("%s: %s", url, reason)
                reasons.append((url, str(reason)))
            except KeyboardInterrupt:
                message = f"{file.name}: interrupted; {partial.size} bytes are kept, call it again to resume"
                raise Interrupted(message, exit_status(signal.SIGINT)) from None
            else:
                return partial.path
    raise by_hand(file, reasons)


def by_hand(file: PublicFile, reasons: Sequence[tuple[str, str]]) -> InputError:
    """Create the error for a file that no mirror provides, which says how to get it; `reasons` are (URL, why not)."""
    urls = " or ".join(file.urls)
    found = f"no working mirror ({'; '.join(f'{urlsplit(url).netloc}: {why}' for url, why in reasons)})"
    fix = f"fetch {urls} elsewhere and put it into the folder that `downloads: {{folder: ...}}` of the config names"
    return input_error(file.name, found, f"the file ({file.facts})", fix)


def _fetch_from(session: requests.Session, partial: Partial, file: PublicFile, patience: Patience) -> None:
    """Fetch from one mirror, with retries; a wrong file is deleted.

    :raises Refused: if the mirror does not provide the right file.
    """
    failures, furthest, resumed = 0, partial.size, partial.size > 0
    while True:
        try:
            transfer(session, partial, file, patience)
        except Broken as broken:
            if partial.size >= furthest + GAIN:
                failures, furthest = 0, partial.size
            failures, resumed = failures + 1, resumed or partial.size > 0
            _wait(broken, failures, partial, patience)
            continue
        if (problem := problem_with(partial.path, file)) is None:
            return
        partial.discard()
        if not resumed:
            raise Refused(f"{problem}, expected {file.facts}; deleted")
        # It was assembled from several transfers; a single one may give the right file.
        log.warning("%s: assembled from several transfers: %s; deleted, fetching it again", partial.url, problem)
        resumed = False


def _wait(broken: Broken, failures: int, partial: Partial, patience: Patience) -> None:
    if failures >= patience.attempts:
        raise Refused(f"{broken}, {failures} times") from broken
    seconds = broken.wait
    if seconds is None:
        longest = min(patience.first_wait * 2 ** (failures - 1), patience.longest_wait)
        seconds = longest * random.uniform(0.5, 1)  # noqa: S311 - so that clients do not all retry at once
    elif seconds > patience.longest_asked:
        raise Refused(f"{broken}, and asks to wait {seconds:.0f} s") from broken
    log.warning("%s: %s; trying again in %.1f s%s", partial.url, broken, seconds, partial)
    time.sleep(seconds)


@contextmanager
def _parts(kept: Path, name: str) -> Iterator[Path]:
    """Wait until no other process is fetching the file; yield the folder for its parts.

    Where files cannot be locked, no process waits; each has its own parts, which are deleted at its end.
    """
    path = kept.with_name(f"{kept.name}.lock")
    try:
        lock = acquire(path)
    except Timeout:
        log.info("another process is fetching %s; waiting for it", name)
        lock = acquire(path, timeout=-1)
    try:
        # Parts are named like the file in the catalogue, SOURCE/FILE.
        with nullcontext(kept.parents[1]) if lock else temporary_folder(kept) as folder:
            yield folder
    finally:
        if lock is not None:
            lock.release()
