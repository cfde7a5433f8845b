"""Search an experiment's collection: BM25, a dense ranker and both together, with the time of each part.

In a terminal, it prompts for queries until Ctrl-D, and opens the systems while the first one is typed. With --query, or
with lines on standard input, it prints a JSON line per query and system: query, system, results (rank, doc_id, score,
text) and milliseconds by part, or error instead of the last two; with any error, the exit status is 1.

Reads:  the results of an experiment that `snakemake` has built
Writes: nothing
Usage:  python -m cort.search --experiment config/pydocs.yaml
        python -m cort.search --results results/pydocs --systems bm25 cort --query "list of files"
"""

from __future__ import annotations

import io
import itertools
import json
import logging
import re
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from pydantic import SkipValidation

from cort.config.fields import Depth
from cort.online.options import LiveOptions, find_results, open_named
from cort.runtime import cli
from cort.runtime.devices import lease
from cort.runtime.errors import InputError, input_error
from cort.runtime.sections import Maybe, Several, Text, same_as
from cort.systems.timing import PARTS

if TYPE_CHECKING:
    from cort.online.searcher import LiveAnswer, Searcher

log = logging.getLogger(__name__)

PROMPT = "query> "
UNSEEN = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
MOST = 1_000_000


def print_lines(searcher: Searcher, queries: Iterable[str], depth: int, source: str) -> None:
    """Answer queries in JSON lines; a query that cannot be answered gets an error instead.

    Systems are opened and warmed up one after the other, so that BM25 answers while torch is still being imported.

    :raises InputError: at the end, if there was an error; names the first one.
    """
    wrong: list[tuple[int, str]] = []
    for row, query in enumerate(map(str.strip, queries), start=1):
        shown = query.encode(errors="replace").decode()
        for name in searcher.systems:
            if row == 1:
                searcher.warm_up(name)
            line: dict[str, object] = {"query": shown, "system": name}
            try:
                answer, texts = searcher.answer(name, query, depth)
            except InputError as error:
                _say(_json(line | {"error": str(error)}))
                wrong.append((row, str(error)))
                continue
            results = [result._asdict() | {"text": text} for result, text in zip(answer.results, texts, strict=True)]
            milliseconds = {part: round(value, 3) for part, value in answer.milliseconds.items()}
            _say(_json(line | dict(results=results, milliseconds=milliseconds)))
    if wrong:
        (first, why), count = wrong[0], len({row for row, _ in wrong})
        raise input_error(source, f"{count} that cannot be answered ({why})", "queries", "fix them", first)


def _json(line: Mapping[str, object]) -> str:
    """Write a line of JSON; escape also the control and bidirectional characters that JSON allows."""
    text = json.dumps(line, ensure_ascii=False)
    return UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def show(answer: LiveAnswer, texts: Sequence[str], width: int) -> str:
    """Show an answer in as many columns as the terminal has: rank, score and text of each result, and the times."""
    times = ", ".join(f"{part} {answer.milliseconds[part]:.1f}" for part in PARTS if part in answer.milliseconds)
    head = f"{answer.system}: {answer.milliseconds['total']:.1f} ms ({times})"
    pairs = zip(answer.results, texts, strict=True)
    rows = [f"{result.rank:>4}  {result.score:<10.4g}  {text}" for result, text in pairs]
    return "\n".join(fit(line, width) for line in [head, *(rows or ["(no results)"]), ""])


def fit(text: str, width: int) -> str:
    """Cut a text to terminal columns: a character takes up to two, and one that moves the cursor is a blank."""
    shown = "".join(character if character.isprintable() else " " for character in text)
    sizes = (
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in shown
    )
    return shown[: sum(used <= width for used in itertools.accumulate(sizes))]


class Options(LiveOptions):
    """Options of this command, which is not a stage."""

    systems: Several[Text] = ()
    """Default: the first BM25, dense and fused system."""
    # Answered by an error of its own if it is no Unicode.
    query: Maybe[SkipValidation[str]] = None
    """Answer this query in JSON lines."""
    depth: int = same_as(Depth, "depth", default=10)
    """Results per system (default 10)."""


def stage(options: Options) -> None:
    """Open the systems, answer."""
    from cort.config.stored import typical_systems

    results = find_results(options)
    if options.depth > MOST:
        raise input_error("--depth", str(options.depth), f"{MOST} at most", "ask for fewer")
    systems = options.systems or typical_systems(results)
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            # Invalid UTF-8 is an error of its query only.
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")
    with lease(int(options.device == "cuda")):
        if options.query is None and sys.stdin.isatty():
            interact(partial(open_named, options, results, systems), options.depth)
            return
        queries, source = (sys.stdin, "standard input") if options.query is None else ([options.query], "--query")
        once = options.query is not None
        with closing(open_named(options, results, systems, models_later=True, once=once)) as searcher:
            print_lines(searcher, queries, options.depth, source)


def interact(open_searcher: Callable[[], Searcher], depth: int) -> None:
    """Prompt for queries at once, open the systems in the background, and show answers until the input ends.

    :raises InputError: if the systems cannot be opened; the error of a query is only logged.
    """
    # Makes input() editable.
    import readline  # noqa: F401

    # One thread opens the systems and searches, because torch has a number of threads per calling thread.
    with ThreadPoolExecutor(1, "searching") as worker:
        opening = worker.submit(open_searcher)
        try:
            while True:
                query = input(PROMPT).strip()
                if not query:
                    continue
                if not opening.done():
                    log.info("still opening")
                searcher = opening.result()
                try:
                    for name in searcher.systems:
                        found = worker.submit(searcher.answer, name, query, depth).result()
                        _say(show(*found, shutil.get_terminal_size().columns))
                except InputError as error:
                    log.error("%s", error)
        except (EOFError, KeyboardInterrupt):
            _say("")
        finally:
            opening.result().close()


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
