"""Look at an experiment's systems in a browser: the explorer of a split, and live searches with any open system.

Serves the page that `snakemake` has written, to this machine alone, and prints its address. A query that is typed there
is answered by two systems side by side, with the time of each part, why each result ranks where it does, and, if it is
a query of the split, its place in the stored run. The page's questions are open to programs: /api/openapi.json.
Ctrl-C ends it.

Reads:  the manifest of an experiment that `snakemake` has built, what it names, and its report/explore/SPLIT
Writes: nothing
Usage:  python -m cort.explore --experiment config/pydocs.yaml --open
        python -m cort.explore --manifest results/pydocs/manifest.json --systems bm25 fused --port 0
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
import webbrowser
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cort.online.options import SearchOptions, find_manifest, opener
from cort.system import cli
from cort.system.devices import lease
from cort.system.errors import input_error, shorten
from cort.system.options import flag, optional

if TYPE_CHECKING:
    from cort.online.searcher import Searcher
    from cort.online.serving import Line

log = logging.getLogger(__name__)

PORT = 8765
# The program that the page is; its data are those of the build.
PAGE = Path(__file__).parent / "reporting" / "explorer"


@dataclass(frozen=True, kw_only=True)
class Options(SearchOptions):
    """Options of this command, which is no stage."""

    systems: tuple[str, ...] = optional((), "that are opened; default: all", "NAME")
    split: str | None = optional(None, "of the page; default: the first", "NAME")
    port: int = optional(PORT, f"of the address (default {PORT}); 0 for any that is free", "N")
    open: bool = flag("the page in a browser")


def find_page(manifest: Path, split: str | None) -> Path:
    """Find the explorer of a split, the first by name if none is named, that was built beside a manifest."""
    folder = manifest.parent / "report" / "explore"
    splits = sorted(path.parent.name for path in folder.glob("*/index.html"))
    if not splits:
        expected = "the explorer of a split"
        raise input_error(folder, "no page", expected, "run `snakemake` first")
    if split is not None and split not in splits:
        raise input_error("--split", shorten(split), f"one of {', '.join(splits)}", "name one of these")
    return folder / (split or splits[0])


def announce(address: str, in_browser: bool) -> None:
    """Print the address, and open it if that is wanted."""
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()
    if in_browser:
        # Some browsers are programs of a terminal, which end when they are closed.
        threading.Thread(target=browse, args=[address], daemon=True).start()


def browse(address: str) -> None:
    """Open an address in the browser of whoever is at this machine."""
    if not webbrowser.open(address):
        log.warning("no browser is known here: open %s yourself", address)


def stage(options: Options) -> None:
    """Open the systems, serve the page."""
    from cort.online.manifest import read_manifest
    from cort.online.serving import Line, listening

    path = find_manifest(options)
    manifest, page = read_manifest(path), find_page(path, options.split)
    systems = options.systems or tuple(manifest.systems)
    manifest.check_names(systems)
    with lease(int(options.device == "cuda")), listening(options.port) as listener:
        # One thread for opening and searching: torch keeps the number of its own threads by thread.
        line, started = Line(), time.perf_counter()
        opening = line.submit(opener(options, manifest, systems))
        try:
            searcher = opening.result()
            log.info("%s open after %.1f s; Ctrl-C ends it", ", ".join(systems), time.perf_counter() - started)
            status = answer(searcher, page, line, listener, options.open)
        except KeyboardInterrupt:
            status = 128 + signal.SIGINT
        except SystemExit as error:
            status = int(error.code or 0)
        end(line, opening, status)


def answer(searcher: Searcher, page: Path, line: Line, listener: socket.socket, in_browser: bool) -> int:
    """Serve until a signal comes; the exit status: Ctrl-C is how this is ended."""
    from cort.online.serving import serve
    from cort.online.web import Site, make_app

    host, port = listener.getsockname()
    app = make_app(searcher, Site(PAGE, page / "data"), line, port)
    number = serve(app, listener, lambda: announce(f"http://{host}:{port}/", in_browser))
    return 0 if number == signal.SIGINT else 128 + number


def end(line: Line, opening: Future[Searcher], status: int) -> None:
    """Close what is open, at once: a search that runs is not waited for."""
    if not line.end():
        if opening.done():
            opening.result().kill()
        logging.shutdown()
        sys.stdout.flush()
        # A thread that is in torch would be waited for, or end the interpreter in disorder.
        os._exit(status)
    opening.result().close()
    if status:
        sys.exit(status)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
