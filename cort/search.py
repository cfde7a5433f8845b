"""Search an experiment's collection: BM25, a dense ranker and both together, side by side, with the time of each part.

In a terminal it asks for queries until Ctrl-D, and opens the systems while the first one is typed. With --query, or
with lines on standard input, it prints a JSON line per query and system: query, system, results (rank, doc_id, score,
text) and milliseconds by part.

Reads:  the manifest of an experiment that `snakemake` has built, and what it names
Writes: nothing
Usage:  python -m cort.search --experiment config/pydocs.yaml
        python -m cort.search --manifest results/pydocs/manifest.json --systems bm25 cort --query "list of files"
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cort.system import cli
from cort.system.devices import lease
from cort.system.errors import InputError, input_error, shorten

if TYPE_CHECKING:
    from cort.online.manifest import Contents
    from cort.online.searcher import Answer, Searcher

log = logging.getLogger(__name__)

PROMPT = "query> "


def manifest_of(experiment: str | Path) -> Path:
    """Find the manifest of an experiment, of whose file nothing but the name of the dataset is read."""
    import yaml

    try:
        found = yaml.safe_load(Path(experiment).read_text(encoding="utf-8"))
        dataset = found["dataset"]
    except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError) as error:
        words = shorten(" ".join(str(error).split()))
        raise input_error(experiment, f"no dataset ({words})", "the file of an experiment", "name another") from None
    return Path("results") / str(dataset) / "manifest.json"


def choose_systems(contents: Contents) -> list[str]:
    """Take the first BM25, the first dense and the first interleaved system, as far as there are such."""
    from cort.online.manifest import GRAPHS

    first = (contents.first("bm25"), contents.first("exact", *GRAPHS), contents.first("interleave"))
    return [name for name in first if name is not None] or list(contents.systems)[:1]


def as_json(query: str, answer: Answer, texts: Sequence[str]) -> str:
    """Write one answer as a line."""
    results = [one._asdict() | {"text": text} for one, text in zip(answer.results, texts, strict=True)]
    milliseconds = {name: round(value, 3) for name, value in answer.milliseconds.items()}
    line = {"query": query, "system": answer.system, "results": results, "milliseconds": milliseconds}
    return json.dumps(line, ensure_ascii=False)


def read_lines(lines: Iterable[str]) -> Iterator[str]:
    """Yield queries, one per line.

    :raises InputError: an empty line.
    """
    for row, line in enumerate(lines, start=1):
        if not line.strip():
            raise input_error("standard input", "no word", "a query in each line", "drop the line", row)
        yield line.strip()


def print_lines(searcher: Searcher, queries: Iterable[str], depth: int) -> None:
    """Answer queries in JSON lines."""
    for query in queries:
        for name in searcher.systems:
            answer = searcher.search(name, query, depth)
            texts = searcher.passages.texts([one.doc_id for one in answer.results])
            _say(as_json(query, answer, texts))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def ask(opening: Future[Searcher], worker: ThreadPoolExecutor, depth: int) -> None:
    """Ask for queries and show their answers until the input ends.

    :param opening: what may not be open yet; who types does not notice.
    :param worker: the thread that opens and searches.
    :raises InputError: what was wrong when the systems were opened; what is wrong with a query is told, and no more.
    """
    # Makes input() editable.
    import readline  # noqa: F401

    while True:
        try:
            query = input(PROMPT).strip()
            if not query:
                continue
            if not opening.done():
                log.info("still opening")
            searcher = opening.result()
            found = worker.submit(side_by_side, searcher, query, depth, shutil.get_terminal_size().columns)
            if isinstance(error := found.exception(), InputError):
                log.error("%s", error)
            else:
                _say(found.result())
        except (EOFError, KeyboardInterrupt):
            _say("")
            return


def side_by_side(searcher: Searcher, query: str, depth: int, width: int) -> str:
    """Answer a query with all systems, in columns."""
    from cort.online.terminal import show

    answers = [searcher.search(name, query, depth) for name in searcher.systems]
    texts = [searcher.passages.texts([one.doc_id for one in answer.results]) for answer in answers]
    return show(answers, texts, width)


def command_line() -> argparse.ArgumentParser:
    """Options of this command, which is no stage."""
    parser = cli.make_parser("cort.search", __doc__)
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--experiment", metavar="YAML", help="its dataset names the manifest in results/")
    place.add_argument("--manifest", metavar="JSON", help="what the stage `manifest` wrote")
    parser.add_argument("--systems", nargs="+", metavar="NAME", help="default: first BM25, dense, interleaved system")
    parser.add_argument("--query", metavar="TEXT", help="answer this one in JSON lines")
    parser.add_argument("--depth", type=int, default=10, metavar="N", help="results per system (default 10)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of models and vectors")
    parser.add_argument("--memory-mb", type=int, default=2000, metavar="MB", help="heap of Java (default 2000)")
    return parser


def stage(args: argparse.Namespace) -> None:
    """Open the systems, answer."""
    from cort.online.manifest import read_contents
    from cort.online.open_searcher import open_searcher

    if args.query is not None and not args.query.strip():
        raise input_error("--query", "no word", "a query", "write one")
    if args.depth < 1 or args.threads < 1:
        found = f"{args.depth}, {args.threads}"
        raise input_error("--depth, --threads", found, "1 or more of each", "fix them")
    contents = read_contents(manifest_of(args.experiment) if args.manifest is None else args.manifest)
    systems = args.systems or choose_systems(contents)

    open_systems = partial(
        open_searcher, contents, systems, devices=[args.device], threads=args.threads, memory_mb=args.memory_mb
    )
    with lease(int(args.device == "cuda")):
        if args.query is None and sys.stdin.isatty():
            interact(open_systems, args.depth)
            return
        started = time.perf_counter()
        with closing(open_systems()) as searcher:
            log.info("%s open after %.1f s", ", ".join(systems), time.perf_counter() - started)
            queries = read_lines(sys.stdin) if args.query is None else [args.query.strip()]
            print_lines(searcher, queries, args.depth)


def interact(open_systems: Callable[[], Searcher], depth: int) -> None:
    """Show the prompt at once and open the systems behind it."""
    # One thread for both: torch keeps the number of its own threads by thread.
    with ThreadPoolExecutor(1, "searching") as worker:
        opening = worker.submit(open_systems)
        try:
            ask(opening, worker, depth)
        finally:
            opening.result().close()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit status."""
    return cli.run(command_line(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())
