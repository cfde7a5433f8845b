"""Explore an experiment in a browser: the results of a split, and live searches with any open system.

Serves the page that `snakemake` has written to this machine alone, and prints its address, whose random token keeps
other accounts of the machine away; --no-token leaves it out. Two systems answer any query side by side, with the time
of each part, the reason for each rank and, for a query of the split, the rank in the stored run. The page's API is open
to programs: /api/openapi.json. Ctrl-C ends the server.

With --judgements, the page opens with the first results of all systems to be judged by a person, one text after the
other, and appends each judgement to a file, which can be the `qrels` of a split.

Reads:  the results of an experiment that `snakemake` has built, with its report/explore/SPLIT
Writes: nothing, or judgements
Usage:  python -m cort.explore --experiment config/pydocs.yaml --open
        python -m cort.explore --results results/pydocs --systems bm25 fused --port 0
        python -m cort.explore --experiment my.yaml --split mine --judgements judged.jsonl --pool 20
"""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import signal
import sys
import threading
import time
import webbrowser
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from html import escape
from pathlib import Path
from secrets import token_urlsafe
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pydantic import Field

from cort.config import paths
from cort.online.options import LiveOptions, find_results, open_named
from cort.runtime import cli
from cort.runtime.devices import lease
from cort.runtime.errors import input_error, shorten
from cort.runtime.sections import JsonLinesFile, Maybe, Several, Text

if TYPE_CHECKING:
    from cort.config.experiment import Experiment
    from cort.online.line import Line
    from cort.online.searcher import Searcher

log = logging.getLogger(__name__)

PORT = 8765
#: the first line of a config that `make verdict` wrote: what was named
VERDICT = re.compile("# Written by `make verdict` for (.*)")


class Options(LiveOptions):
    """Options of this command, which is not a stage."""

    systems: Several[Text] = ()
    """To open (default: all)."""
    split: Maybe[Text] = None
    """Whose page is shown (default: the first)."""
    judgements: Maybe[JsonLinesFile] = None
    """Let a person judge the results; the file that gets the judgements."""
    pool: int = Field(10, ge=1)
    """Results of each system that are judged, with --judgements."""
    port: int = Field(PORT, ge=0)
    """Of the address; 0 for any free port (default: 8765)."""
    no_token: bool = False
    """Let every account of this machine read the collection, and judge."""
    open: bool = False
    """Open the page in a browser."""


def find_page(results: Experiment, split: str | None) -> Path:
    """Find the explorer of a split; by default, of the first split by name."""
    pages = {name: Path(results.at(paths.EXPLORER, split=name)) for name, _ in sorted(results.ranked_runs)}
    splits = [name for name, page in pages.items() if page.exists()]
    if not splits:
        folder = Path(results.at(paths.REPORT)) / "explore"
        raise input_error(folder, "no page", "the explorer of a split", "run `snakemake` first")
    if split is not None and split not in splits:
        raise input_error("--split", shorten(split), f"one of {', '.join(splits)}", "name one of these")
    return pages[split or splits[0]].parent


def next_step(options: Options, split: str) -> tuple[str, str]:
    """Say what to do with the judgements, and its command."""
    config, judgements = options.experiment or "CONFIG", str(options.judgements)
    if options.experiment and (made := VERDICT.match(Path(config).read_text("utf-8"))):
        # A verdict compares what it is given: all that it was given before. Earlier versions wrote no name.
        given = {"NAME": Path(config).stem} | json.loads(made[1]) | {"QRELS": judgements}
        return "When all is judged: ", "make verdict " + " ".join(f"{key}={shlex.quote(given[key])}" for key in given)
    about = f"When all is judged, set splits.{split}.qrels of {config} to {judgements}, and: "
    return about, f"make results CONFIG={shlex.quote(config)}"


@contextmanager
def announced(address: str, in_browser: bool) -> Iterator[None]:
    """Print the address, and open it in a browser on request.

    Other accounts see the arguments of a browser, but not the token: it gets a file that leads to the address.
    """
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()
    if not in_browser:
        yield
        return
    with TemporaryDirectory(prefix="cort-") as folder:
        page = Path(folder, "explorer.html")
        page.touch(0o600)
        page.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(address)}">\n', "utf-8")
        # Some browsers run in the terminal, and the call returns only when they are closed.
        threading.Thread(target=browse, args=[page.as_uri(), address], daemon=True).start()
        yield


def browse(page: str, address: str) -> None:
    """Open a page, which leads to an address, in the user's browser."""
    if not webbrowser.open(page):
        log.warning("no browser is known here: open %s yourself", address)


def stage(options: Options) -> None:
    """Open the systems, serve the page until a signal comes; Ctrl-C is not an error."""
    from cort.config.stored import open_systems
    from cort.online.judging import Judging
    from cort.online.line import Line, listening

    results = find_results(options)
    page = find_page(results, options.split)
    systems = options.systems or tuple(results.searchable)
    open_systems(results, systems)
    judging = None
    if options.judgements:
        then = next_step(options, page.name)
        judging = Judging(results, page.name, Path(options.judgements).resolve(), options.pool, then)
    with lease(int(options.device == "cuda")), listening(options.port) as listener:
        host, port = listener.getsockname()
        # One thread opens the systems and searches, because torch has a number of threads per calling thread.
        line, started = Line(), time.perf_counter()
        opening = line.submit(partial(open_named, options, results, systems))
        try:
            # While systems are opened, because it takes a moment.
            from cort.online.web import make_app, serve

            token = "" if options.no_token else token_urlsafe(24)
            app = make_app(opening.result(), page / "data", line, token, judging)
            log.info("opened %s in %.1f s; Ctrl-C to end", ", ".join(systems), time.perf_counter() - started)
            # Requests that come now wait in the socket until the server takes them.
            address = f"http://{host}:{port}/" + (f"{token}/" if token else "") + ("#judge" if judging else "")
            with announced(address, options.open):
                number = serve(app, listener)
            status = 0 if number == signal.SIGINT else 128 + number
        except KeyboardInterrupt:
            status = 128 + signal.SIGINT
        except SystemExit as error:
            status = int(error.code or 0)
        end(line, opening, status)


def end(line: Line, opening: Future[Searcher], status: int) -> None:
    """Close what is open at once, without waiting for a search that runs."""
    if not line.end():
        if opening.done():
            opening.result().kill()
        logging.shutdown()
        sys.stdout.flush()
        # The interpreter would wait for a thread in torch, or crash.
        os._exit(status)
    opening.result().close()
    if status:
        sys.exit(status)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
