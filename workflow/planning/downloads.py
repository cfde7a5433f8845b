"""Which public files are still to be fetched, the room they take, and whether network or folder has them."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cort.downloads.catalog import PublicFile, load_catalog
from cort.system.errors import input_error
from workflow.experiment.config import Config
from workflow.experiment.downloads import KEPT
from workflow.planning.costs import MB
from workflow.planning.dryrun import Job

RULES = ("download", "extract")
# Seconds for a host to answer; hosts asked at a time.
PATIENCE = 5
AT_ONCE = 8


def missing_files(jobs: Iterable[Job], config: Config, folder: Path) -> list[PublicFile]:
    """List what jobs would fetch: files and archives that are neither in the user's folder nor downloaded before."""
    catalog, mine = load_catalog(), _own_folder(config, folder)
    found: dict[str, PublicFile] = {}
    for job in jobs:
        if job.rule in RULES:
            file = catalog.find(f"{job.wildcards['source']}/{job.wildcards['file']}")
            source = catalog.source_of(file.name)
            there = [*file.copies_in(mine), *source.copies_in(mine)]
            if not there and not (folder / KEPT / source.name).is_file():
                found[source.name] = source
    return list(found.values())


def room_for_archives(files: Iterable[PublicFile]) -> float:
    """MB of archives that will be kept beside what is extracted from them."""
    return sum(file.about for file in files if file.name in load_catalog().archives) / MB


def check_folder(config: Config, folder: Path) -> list[str]:
    """Complain of a folder for downloads that is not there."""
    mine = _own_folder(config, folder)
    if mine is None or mine.is_dir():
        return []
    found, fix = f"{mine}, no such folder", "fix the path, or remove the key"
    return [str(input_error("downloads.folder", found, "the folder with the files you have", fix))]


def check_mirrors(files: Iterable[PublicFile]) -> list[str]:
    """Ask the mirrors of every file until one answers."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [line for line in pool.map(_ask, files) if line]


def _ask(file: PublicFile) -> str | None:
    import requests

    from cort.downloads.fetch import by_hand
    from cort.downloads.transfer import explain, new_session

    reasons = []
    with new_session() as session:
        for url in file.urls:
            headers = {**load_catalog().headers_for(url), "Range": "bytes=0-0"}
            try:
                with session.get(url, headers=headers, stream=True, timeout=PATIENCE) as response:
                    if response.ok:
                        return None
                    reasons.append((url, f"status {response.status_code}"))
            except (requests.RequestException, ValueError) as error:
                reasons.append((url, explain(error)))
    return str(by_hand(file, reasons))


def _own_folder(config: Config, folder: Path) -> Path | None:
    name = config["downloads"]["folder"]
    return folder / name if name else None
