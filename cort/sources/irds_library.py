"""The library ir_datasets, changed for this process: no pickles, no progress bars, and no long wait for a network.

Its own copies of documents are pickles, which may be out of date; its iterators read the original files here.
"""

from __future__ import annotations

import functools
import hashlib
import locale
import logging
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from cort.system.errors import InputError, input_error
from cort.system.locks import acquire

log = logging.getLogger(__name__)

# Seconds to wait for a connection, and for an answer.
PATIENCE = (3, 60)
LONGEST_REASON = 600


@functools.cache
def library() -> Any:
    """Import ir_datasets, which takes half a second."""
    # It reads text in the encoding of the locale.
    if (encoding := locale.getpreferredencoding(False)).lower() not in ("utf-8", "utf8"):
        raise input_error("ir_datasets", f"the encoding {encoding}", "UTF-8, as in its files", "set PYTHONUTF8=1")
    import ir_datasets
    import tqdm
    from ir_datasets.indices import lz4_pickle

    # Messages go to our log.
    ir_datasets.log._logger_cache["ir_datasets"] = logging.getLogger("ir_datasets")
    # Bars that are off do not count, and downloads resume from their counts.
    nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    silent = SimpleNamespace(tqdm=lambda *items, **options: tqdm.tqdm(*items, **options | {"file": nowhere}))
    ir_datasets.lazy_libs._cache["tqdm"] = silent
    store = lz4_pickle.PickleLz4FullStore
    store.built = lambda _: False
    store.__iter__ = lambda self: iter(self.init_iter_fn())
    lz4_pickle._read_next = lz4_pickle.Lz4PickleLookup.transaction = _refuse_pickles
    ir_datasets.util.Download.path = _fetching(ir_datasets.util.Download.path)
    return ir_datasets


def one_line(error: Exception) -> str:
    """Return the message of an error, shortened."""
    return " ".join(str(error).split())[:LONGEST_REASON] or type(error).__name__


def _refuse_pickles(*_: object) -> NoReturn:
    raise ValueError("it keeps these records as pickles, which are refused")


def _fetching(path: Callable[..., Any]) -> Callable[..., Any]:
    """Let one process at a time fetch a file, and only from where it is."""

    def fetch(download: Any, force: bool = True) -> Any:
        place = Path(download._cache_path or os.devnull)
        if not force or download._path or (download._cache_path and place.exists()):
            if force and place.is_file() and not download._path:
                _warn_of_other(place, download.expected_md5)
            return path(download, force)
        if download._cache_path:
            place.parent.mkdir(parents=True, exist_ok=True)
            _lock = acquire(place.with_name(f"{place.name}.lock"), timeout=-1)
        if not any(map(_is_reachable, download.mirrors)):
            raise _missing(download, " and no connection")
        try:
            return path(download)
        except Exception as error:
            raise _missing(download, f" after a failed download ({one_line(error)})") from error

    return fetch


def _warn_of_other(path: Path, expected: str | None) -> None:
    """Warn of a file that was there before and is not the published one."""
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if expected and found != expected:
        log.warning("%s: MD5 %s, but %s was published; if that is unexpected, delete the file", path, found, expected)


def _is_reachable(source: Any) -> bool:
    """Whether a file exists, or the server answers at all."""
    import requests

    if not hasattr(source, "url"):
        return bool(source.path(force=False).exists())
    try:
        requests.head(source.url, timeout=PATIENCE)
    except requests.ConnectionError as error:
        # ir_datasets can be told to ignore certificates.
        return isinstance(error, requests.exceptions.SSLError)
    return True


def _missing(download: Any, why: str) -> InputError:
    urls = " or ".join(source.url for source in download.mirrors if hasattr(source, "url"))
    first = vars(download.mirrors[0])
    place = download._cache_path or first.get("_path", urls)
    expected = f"the file at {urls}" if urls else "a file that is not public"
    fix = "put it there, or connect to the network" if urls else first["_message"]
    found = f"no such file{why if urls else ''}"
    return input_error(place, found, f"{expected}, MD5 {download.expected_md5}", fix)
