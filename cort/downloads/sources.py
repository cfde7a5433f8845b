"""Where a file is taken from: somebody's folder, this project's own downloads, else a mirror."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cort.downloads.catalog import Catalog, PublicFile
from cort.downloads.checks import problem_with
from cort.downloads.mirrors import discard_partials, fetch
from cort.downloads.transfer import Patience
from cort.system.errors import input_error
from cort.system.files import atomic_file, temporary_folder, try_lock

log = logging.getLogger(__name__)

# Seconds between two looks at a lock.
INTERVAL = 0.2


@dataclass(frozen=True)
class Sources:
    """Places to look in: `folder` is the user's, which is only read; `own` is where downloads are kept."""

    catalog: Catalog
    own: Path
    folder: Path | None = None
    patience: Patience = field(default_factory=Patience)

    def in_folder(self, file: PublicFile) -> Path | None:
        """Find a file in the user's folder; None if it has none of its names there.

        :raises InputError: for one that is there and not what the catalogue means.
        """
        wrong = []
        for path in candidates(file, self.folder):
            problem = problem_with(path, file)
            if problem is None:
                log.info("%s is %s", file.name, path)
                return path
            wrong.append((path, problem))
        if wrong:
            path, problem = wrong[0]
            fix = f"fetch it again{_from(file)}, or move it out of that folder"
            raise input_error(path, problem, f"{file.name} ({file.facts})", fix)
        return None

    def obtain(self, file: PublicFile) -> Path:
        """Path of a checked copy of a file that has URLs, fetched if need be."""
        return self.in_folder(file) or self._kept(file)

    def _kept(self, file: PublicFile) -> Path:
        """Own copy of a file; of several processes that want it, one fetches it."""
        kept = self.own / file.name
        kept.parent.mkdir(parents=True, exist_ok=True)
        with _parts(kept, file.name) as parts:
            if kept.exists():
                problem = problem_with(kept, file)
                if problem is None:
                    log.info("%s was downloaded before", file.name)
                    return kept
                kept.unlink()
                log.warning("%s: found %s, expected %s; deleted, fetching it again", kept, problem, file.facts)
            part = fetch(file, self.catalog, parts, self.patience)
            with open(part, "rb") as handle:
                os.fsync(handle.fileno())
            os.replace(part, kept)
            discard_partials(file, parts)
        return kept


def candidates(file: PublicFile, folder: Path | None) -> Iterator[Path]:
    """Yield the files of a folder that may be the one: under the catalogue's name, its own, or that of its URLs."""
    if folder is None or not file.can_be_checked:
        return
    for name in file.own_names:
        if (folder / name).is_file():
            yield folder / name


def place(source: Path, output: Path) -> None:
    """Put a file in its place, without taking more disk where possible; `source` stays."""
    with atomic_file(output) as temporary:
        try:
            # Somebody else's file is no link: Snakemake sets the time of what a job made.
            if source.stat().st_uid != os.geteuid():
                raise PermissionError
            os.link(source.resolve(), temporary)
        except OSError:
            shutil.copyfile(source, temporary)


def _from(file: PublicFile) -> str:
    return f" from {file.urls[0]}" if file.urls else ""


@contextmanager
def _parts(kept: Path, name: str) -> Iterator[Path]:
    """Wait until no other process fetches the file; yield the folder for its parts.

    Where files cannot be locked nobody waits, and each process has parts of its own, which go with it.
    """
    descriptor = os.open(kept.with_name(f"{kept.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        told = False
        while (locked := try_lock(descriptor)) is False:
            if not told:
                log.info("another process is fetching %s; waiting for it", name)
            told = True
            time.sleep(INTERVAL)
        if locked:
            # Parts are named as the file is in the catalogue, SOURCE/FILE.
            yield kept.parents[1]
        else:
            with temporary_folder(kept) as folder:
                yield folder
    finally:
        os.close(descriptor)
