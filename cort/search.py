"""Search an experiment's collection: BM25, a dense ranker and both together, side by side, with the time of each part.

In a terminal it asks for queries until Ctrl-D, and opens the systems while the first one is typed. With --query, or
with lines on standard input, it prints a JSON line per query and system: query, system, results (rank, doc_id, score,
text) and milliseconds by part, or error in the place of the last two; status 1 in the end if there was one.

Reads:  the manifest of an experiment that `snakemake` has built, and what it names
Writes: nothing
Usage:  python -m cort.search --experiment config/pydocs.yaml
        python -m cort.search --manifest results/pydocs/manifest.json --systems bm25 cort --query "list of files"
"""

from __future__ import annotations

import io
import itertools
import json
import logging
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cort.online.options import SearchOptions, choose_systems, find_manifest, opener
from cort.online.timing import PARTS
from cort.retrieval.options import check_positive
from cort.system import cli
from cort.system.devices import lease
from cort.system.errors import InputError, input_error
from cort.system.options import optional

if TYPE_CHECKING:
    from cort.online.searcher import Answer, Searcher

log = logging.getLogger(__name__)

PROMPT = "query> "
BETWEEN = "  "
UNSEEN = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
MOST = 1_000_000
#: what a column needs for rank, score and a word or two
NARROWEST = 24


def print_lines(searcher: Searcher, queries: Iterable[str], depth: int, source: str) -> None:
    """Answer queries in JSON lines; one that cannot be answered gets the reason for an answer.

    Systems are opened and warmed up one after the other, so that BM25 answers while torch is still being imported.

    :raises InputError: in the end, names the first of these.
    """
    wrong: list[tuple[int, str]] = []
    for row, query in enumerate(map(str.strip, queries), start=1):
        shown = query.encode(errors="replace").decode()
        for name in searcher.systems:
            if row == 1:
                searcher.warm_up(name)
            line: dict[str, object] = {"query": shown, "system": name}
            try:
                answer, texts = answer_with_texts(searcher, name, query, depth)
            except InputError as error:
                _say(_json(line | {"error": str(error)}))
                wrong.append((row, str(error)))
                continue
            results = [one._asdict() | {"text": text} for one, text in zip(answer.results, texts, strict=True)]
            milliseconds = {part: round(value, 3) for part, value in answer.milliseconds.items()}
            _say(_json(line | dict(results=results, milliseconds=milliseconds)))
    if wrong:
        (first, why), count = wrong[0], len({row for row, _ in wrong})
        raise input_error(source, f"{count} that cannot be answered ({why})", "queries", "fix them", first)


def _json(line: Mapping[str, object]) -> str:
    """Write a line that moves no cursor: controls that JSON allows, and turns of the direction, are escaped, too."""
    text = json.dumps(line, ensure_ascii=False)
    return UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def answer_with_texts(searcher: Searcher, system: str, query: str, depth: int) -> tuple[Answer, list[str]]:
    """Answer a query, and read the texts of what was found."""
    answer = searcher.search(system, query, depth)
    return answer, searcher.passages.texts([one.doc_id for one in answer.results])


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def side_by_side(searcher: Searcher, query: str, depth: int, width: int) -> str:
    """Answer a query with all systems, in columns."""
    return show([answer_with_texts(searcher, name, query, depth) for name in searcher.systems], width)


def show(answers: Sequence[tuple[Answer, Sequence[str]]], width: int) -> str:
    """Set one column per answer, with its texts, or one below the other where a line has too few characters."""
    column = (width - len(BETWEEN) * (len(answers) - 1)) // len(answers)
    if column < NARROWEST:
        lines = [line for answer, texts in answers for line in (*_cells(answer, texts, width), "")]
        return "\n".join(_fit(line, width).rstrip() for line in lines)
    sides = [_cells(answer, texts, column) for answer, texts in answers]
    rows = itertools.zip_longest(*sides, fillvalue="")
    return "\n".join(BETWEEN.join(_fit(cell, column) for cell in row).rstrip() for row in rows)


def _cells(answer: Answer, texts: Sequence[str], width: int) -> list[str]:
    """Lines of an answer: its title, what was found, and the times of the parts."""
    rows = [(str(one.rank), text, f"{one.score:.4g}") for one, text in zip(answer.results, texts, strict=True)]
    rank, score = (max((len(row[place]) for row in rows), default=0) for place in (0, 2))
    body = [f"{number:>{rank}} {_fit(text, width - rank - score - 2)} {value:>{score}}" for number, text, value in rows]
    title, line = f"{answer.system}: {answer.milliseconds['total']:.1f} ms", "-" * width
    # A comma ends each line, and is cut off; a name and its number stay together.
    words = " ".join(f"{one},".replace(" ", "\xa0") for one in timings(answer.milliseconds))
    wrapped = textwrap.wrap(words, width + 1, break_long_words=False)
    times = [one.replace("\xa0", " ").removesuffix(",") for one in wrapped]
    return [title, line, *(body or ["(nothing found)"]), line, *times]


def timings(milliseconds: dict[str, float]) -> list[str]:
    """Words for the parts that ran, and for the total."""
    return [f"{name} {milliseconds[name]:.1f}" for name in (*PARTS, "total") if name in milliseconds]


def _fit(text: str, width: int) -> str:
    """Cut or pad a text to columns of a terminal; some characters take two, others none or would move the cursor."""
    shown, used = "", 0
    for character in text:
        printable = character if character.isprintable() else " "
        size = 0 if unicodedata.combining(printable) else 2 if unicodedata.east_asian_width(printable) in "WF" else 1
        if used + size > width:
            break
        shown, used = shown + printable, used + size
    return shown + " " * (width - used)


@dataclass(frozen=True, kw_only=True)
class Options(SearchOptions):
    """Options of this command, which is no stage."""

    systems: tuple[str, ...] = optional((), "default: first BM25, dense, fused system", "NAME")
    query: str | None = optional(None, "answer this one in JSON lines", "TEXT")
    depth: int = optional(10, "results per system (default 10)", "N")


def stage(options: Options) -> None:
    """Open the systems, answer."""
    from cort.online.manifest import read_manifest

    path = find_manifest(options)
    check_positive(options, "depth")
    if options.depth > MOST:
        raise input_error("--depth", str(options.depth), f"{MOST} at most", "ask for fewer")
    manifest = read_manifest(path)
    systems = options.systems or choose_systems(manifest)

    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            # Bytes that are no UTF-8 are the mistake of one query.
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")
    with lease(int(options.device == "cuda")):
        if options.query is None and sys.stdin.isatty():
            interact(opener(options, manifest, systems), options.depth)
            return
        with closing(opener(options, manifest, systems, models_later=True)()) as searcher:
            if options.query is None:
                print_lines(searcher, sys.stdin, options.depth, "standard input")
            else:
                print_lines(searcher, [options.query], options.depth, "--query")


def interact(open_systems: Callable[[], Searcher], depth: int) -> None:
    """Ask for queries at once, open the systems behind the prompt, and show answers until the input ends.

    :raises InputError: what was wrong when the systems were opened; what is wrong with a query is told, and no more.
    """
    # Makes input() editable.
    import readline  # noqa: F401

    # One thread for both: torch keeps the number of its own threads by thread.
    with ThreadPoolExecutor(1, "searching") as worker:
        opening = worker.submit(open_systems)
        try:
            while True:
                query = input(PROMPT).strip()
                if not query:
                    continue
                if not opening.done():
                    log.info("still opening")
                searcher, width = opening.result(), shutil.get_terminal_size().columns
                found = worker.submit(side_by_side, searcher, query, depth, width)
                if isinstance(error := found.exception(), InputError):
                    log.error("%s", error)
                else:
                    _say(found.result())
        except (EOFError, KeyboardInterrupt):
            _say("")
        finally:
            opening.result().close()


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
