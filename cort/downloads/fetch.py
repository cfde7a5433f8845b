"""Where a file is taken from: somebody's folder, this project's own downloads, else the first mirror that gives it."""

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

from cort.downloads.catalog import Catalog, PublicFile, load_catalog, problem_with
from cort.downloads.transfer import Broken, Partial, Patience, Refused, new_session, transfer
from cort.system.errors import InputError, input_error
from cort.system.files import atomic_file, temporary_folder, try_lock
from cort.system.interruption import Interrupted, exit_status
from cort.system.options import optional, required

log = logging.getLogger(__name__)

# Seconds between two looks at a lock.
INTERVAL = 0.2
# Bytes by which a partial file must have grown to count as progress.
GAIN = 10**6


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """Options that say which file, where it may be, and where to put it."""

    name: str = required(help="of the file in the catalogue, as msmarco/qrels.train.tsv")
    catalog: str | None = optional(None, "another catalogue than this project's", "YAML")
    downloads: str = required("FOLDER", "keeps what was fetched, whole or in part")
    folder: str | None = optional(None, "has files already, is only read", "FOLDER")
    stall: float = optional(Patience.stall, "give up a transfer that stands still", "S")
    attempts: int = optional(Patience.attempts, "that get no further, for each mirror", "N")
    output: str = required("FILE")


@dataclass(frozen=True)
class Sources:
    """Places to look in: `folder` is the user's, which is only read; `own` is where downloads are kept."""

    catalog: Catalog
    own: Path
    folder: Path | None = None
    patience: Patience = field(default_factory=Patience)

    @classmethod
    def of(cls, options: FileOptions) -> Sources:
        """Read the catalogue; check folder and numbers."""
        if options.stall <= 0 or options.attempts < 1:
            found, fix = f"{options.stall} and {options.attempts}", "give seconds and a number from 1"
            raise input_error("--stall, --attempts", found, "more than 0", fix)
        folder = Path(options.folder) if options.folder else None
        if folder is not None and not folder.is_dir():
            raise input_error(folder, "no such folder", "the folder with the files you have", "fix downloads.folder")
        patience = Patience(stall=options.stall, attempts=options.attempts)
        return cls(load_catalog(options.catalog), Path(options.downloads), folder, patience)

    def in_folder(self, file: PublicFile) -> Path | None:
        """Find a file in the user's folder, if it is there; one that is not what the catalogue means is refused."""
        wrong = {}
        for path in file.copies_in(self.folder):
            if (problem := problem_with(path, file)) is None:
                log.info("%s is %s", file.name, path)
                return path
            wrong[path] = problem
        for path, problem in wrong.items():
            fix = f"fetch it again{f' from {file.urls[0]}' if file.urls else ''}, or move it out of that folder"
            raise input_error(path, problem, f"{file.name} ({file.facts})", fix)
        return None

    def obtain(self, file: PublicFile) -> Path:
        """Path of a checked copy of a file that has URLs, fetched if need be: by one of several that want it."""
        if found := self.in_folder(file):
            return found
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
            # Those of all mirrors go, also of those that are no longer known.
            for path in parts.glob(f"{file.name}.{'[0-9a-f]' * 8}.*"):
                if path.suffix in (".part", ".json"):
                    path.unlink(missing_ok=True)
        return kept


def place(source: Path, output: str | Path) -> None:
    """Put a file in its place, without taking more disk where possible; `source` stays."""
    with atomic_file(output) as temporary:
        try:
            # Somebody else's file is no link: Snakemake sets the time of what a job made.
            if source.stat().st_uid != os.geteuid():
                raise PermissionError
            os.link(source.resolve(), temporary)
        except OSError:
            shutil.copyfile(source, temporary)


def fetch(file: PublicFile, catalog: Catalog, folder: Path, patience: Patience) -> Path:
    """Fetch and check a file; the path of the partial file, now whole, which is the caller's to move.

    Partial files stay in `folder`, one for each mirror, until a call succeeds. When no mirror gives it, the error says
    what to do by hand; Ctrl-C is an `Interrupted`.
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
                message = f"{file.name}: interrupted; {partial.size} bytes are kept, call again to go on from there"
                raise Interrupted(message, exit_status(signal.SIGINT)) from None
            else:
                return partial.path
    raise by_hand(file, reasons)


def by_hand(file: PublicFile, reasons: Sequence[tuple[str, str]]) -> InputError:
    """Build the line that says how to bring a file that no mirror gives this machine; `reasons`: (URL, why not)."""
    urls = " or ".join(file.urls)
    found = f"no mirror that gives it ({'; '.join(f'{urlsplit(url).netloc}: {why}' for url, why in reasons)})"
    fix = f"fetch {urls} elsewhere and put it into the folder that `downloads: {{folder: ...}}` of the config names"
    return input_error(file.name, found, f"the file ({file.facts})", fix)


def _fetch_from(session: requests.Session, partial: Partial, file: PublicFile, patience: Patience) -> None:
    """Ask one mirror, again as long as it is worth it, else it is `Refused`; a wrong file is deleted."""
    failures, furthest, pieced = 0, partial.size, partial.size > 0
    while True:
        try:
            transfer(session, partial, file, patience)
        except Broken as broken:
            if partial.size >= furthest + GAIN:
                failures, furthest = 0, partial.size
            failures, pieced = failures + 1, pieced or partial.size > 0
            _wait(broken, failures, partial, patience)
            continue
        if (problem := problem_with(partial.path, file)) is None:
            return
        partial.discard()
        if not pieced:
            raise Refused(f"{problem}, expected {file.facts}; deleted")
        # Parts of several transfers: one that is whole may be right.
        log.warning("%s: pieced together from several transfers: %s; deleted, starting anew", partial.url, problem)
        pieced = False


def _wait(broken: Broken, failures: int, partial: Partial, patience: Patience) -> None:
    if failures >= patience.attempts:
        raise Refused(f"{broken}, {failures} times") from broken
    seconds = broken.wait
    if seconds is None:
        longest = min(patience.first_wait * 2 ** (failures - 1), patience.longest_wait)
        seconds = longest * random.uniform(0.5, 1)  # noqa: S311 - so that not all come back at once
    elif seconds > patience.longest_asked:
        raise Refused(f"{broken}, and asks to wait {seconds:.0f} s") from broken
    log.warning("%s: %s; trying again in %.1f s%s", partial.url, broken, seconds, partial)
    time.sleep(seconds)


@contextmanager
def _parts(kept: Path, name: str) -> Iterator[Path]:
    """Wait until no other process fetches the file; yield the folder for its parts.

    Where files cannot be locked nobody waits, and each process has parts of its own, which go with it.
    """
    with open(kept.with_name(f"{kept.name}.lock"), "ab") as lock:
        told = False
        while (locked := try_lock(lock.fileno())) is False:
            if not told:
                log.info("another process is fetching %s; waiting for it", name)
            told = True
            time.sleep(INTERVAL)
        # Parts are named as the file is in the catalogue, SOURCE/FILE.
        with nullcontext(kept.parents[1]) if locked else temporary_folder(kept) as folder:
            yield folder
