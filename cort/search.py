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

import json
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cort.retrieval.fusion import FUSIONS
from cort.retrieval.graphs import GRAPHS
from cort.retrieval.options import JavaOptions, check_positive
from cort.system import cli
from cort.system.devices import lease
from cort.system.errors import InputError, input_error, shorten
from cort.system.options import optional

if TYPE_CHECKING:
    from cort.online.manifest import Manifest
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


def choose_systems(manifest: Manifest) -> list[str]:
    """Take the first BM25, the first dense and the first fused system, as far as there are such."""
    first = (manifest.first("bm25"), manifest.first("exact", *GRAPHS), manifest.first(*FUSIONS))
    return [name for name in first if name is not None] or list(manifest.systems)[:1]


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


@dataclass(frozen=True, kw_only=True)
class Options(JavaOptions):
    """Options of this command, which is no stage."""

    experiment: str | None = optional(None, "its dataset names the manifest in results/", "YAML")
    manifest: str | None = optional(None, "what the stage `manifest` wrote, in the place of --experiment", "JSON")
    systems: tuple[str, ...] = optional((), "default: first BM25, dense, fused system", "NAME")
    query: str | None = optional(None, "answer this one in JSON lines", "TEXT")
    depth: int = optional(10, "results per system (default 10)", "N")
    threads: int = optional(len(os.sched_getaffinity(0)), metavar="N")
    device: Literal["cpu", "cuda"] = optional("cpu", "of models and vectors")


def stage(options: Options) -> None:
    """Open the systems, answer."""
    from cort.online.manifest import read_manifest
    from cort.online.open_searcher import open_searcher

    if (options.experiment is None) == (options.manifest is None):
        found = "neither" if options.manifest is None else "both"
        raise input_error("--experiment, --manifest", found, "one of the two", "name what is to be searched")
    if options.query is not None and not options.query.strip():
        raise input_error("--query", "no word", "a query", "write one")
    check_positive(options, "depth", "threads")
    manifest = read_manifest(options.manifest or manifest_of(str(options.experiment)))
    systems = options.systems or choose_systems(manifest)

    open_systems = partial(
        open_searcher,
        manifest,
        systems,
        devices=[options.device],
        threads=options.threads,
        memory_mb=options.memory_mb,
    )
    with lease(int(options.device == "cuda")):
        if options.query is None and sys.stdin.isatty():
            interact(open_systems, options.depth)
            return
        started = time.perf_counter()
        with closing(open_systems()) as searcher:
            log.info("%s open after %.1f s", ", ".join(systems), time.perf_counter() - started)
            queries = read_lines(sys.stdin) if options.query is None else [options.query.strip()]
            print_lines(searcher, queries, options.depth)


def interact(open_systems: Callable[[], Searcher], depth: int) -> None:
    """Show the prompt at once and open the systems behind it."""
    # One thread for both: torch keeps the number of its own threads by thread.
    with ThreadPoolExecutor(1, "searching") as worker:
        opening = worker.submit(open_systems)
        try:
            ask(opening, worker, depth)
        finally:
            opening.result().close()


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
