"""BM25 for many queries at once, with Anserini's batch search, and its parameters."""

import json
import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from cort.formats.artifacts import Node, read_json
from cort.formats.cleaning import convert
from cort.formats.records import Ranking
from cort.formats.runs import Run, read_run
from cort.retrieval import anserini
from cort.retrieval.options import BM25Options
from cort.runtime.errors import InputError, input_error
from cort.runtime.progress import track

log = logging.getLogger(__name__)

MAIN_CLASS = "io.anserini.search.SearchCollection"
# Name of the file that Anserini writes.
RUN = "run"
# Anserini's defaults (Trotman et al., 2012); the CoRT paper's baseline is tuned: k1 0.82, b 0.68.
K1, B = 0.9, 0.4
LARGEST_K1 = 1000
# Anserini holds all results of one command in the heap, about 100 bytes each; with twice that, garbage collection is
# cheap. A command takes seconds to start and to reach full speed.
BYTES_PER_RESULT = 200


class Parameters(NamedTuple):
    """Term frequency saturation, and strength of length normalisation."""

    k1: float
    b: float


class Searcher:
    """An index, and the options that its searches share."""

    def __init__(self, options: BM25Options) -> None:
        # Before Anserini, which tries to download an index that is not a folder.
        self._form, self._language = anserini.check_manifest(options.index)
        self.options = options

    def search(
        self, texts: Sequence[str], grid: Sequence[Parameters], folder: Path
    ) -> Iterator[tuple[Parameters, Run]]:
        """Search for all `texts` with each parameter pair in one Java process; yield a run per pair.

        The query_ids of the runs are positions in `texts`, as decimal numbers. Files in `folder` are deleted.

        :param grid: all pairs of some values of k1 and b, as from `make_grid`.
        """
        k1s, bs = (list(dict.fromkeys(map(str, values))) for values in zip(*grid, strict=True))
        converted = convert(pa.array(texts, "string"), self._form).to_pylist()
        model = ["-language", self._language, "-bm25", "-bm25.k1", *k1s, "-bm25.b", *bs]
        try:
            search_all(self.options, converted, model, folder)
        except InputError as error:
            if anserini.TOO_MANY not in str(error):
                raise
            long = sum(len(set(re.findall(r"\w+", text.lower()))) > anserini.MOST_WORDS for text in texts)
            log.warning("searching again, as about %d queries have more than %d terms", long, anserini.MOST_WORDS)
            search_all(self.options, converted, model, folder, limited=False)
        for pair in grid:
            yield pair, take_run(folder, "" if len(grid) == 1 else f"_bm25(k1={pair.k1},b={pair.b})_default")


def search_all(
    options: BM25Options, texts: Sequence[str], model: Sequence[str], folder: Path, limited: bool = True
) -> None:
    """Search for all `texts` in one Java process, which writes its runs into `folder`.

    :param model: options of Anserini that say how passages are scored.
    :param limited: as for `run_java`.
    """
    topics = folder / "topics.jsonl"
    with open(topics, "w", encoding="ascii", newline="\n") as handle:
        for position, text in enumerate(texts):
            # With leading zeros, because Anserini sorts the queries by id as text.
            handle.write(json.dumps({"id": f"{position:09d}", "title": text}) + "\n")
    arguments = ["-index", str(Path(options.index).resolve()), "-topics", topics.name]
    arguments += ["-topicReader", "JsonString", "-output", RUN, "-runtag", "anserini"]
    arguments += ["-hits", str(options.reach), "-threads", str(options.threads), *model]
    anserini.run_java(MAIN_CLASS, arguments, options.memory_mb, options.threads, folder, limited)
    topics.unlink()


def take_run(folder: Path, suffix: str = "") -> Run:
    """Read and delete a run of `search_all`; Anserini marks runs with several parameters by a suffix."""
    path = folder / f"{RUN}{suffix}"
    _refuse_truncated(path)
    run = read_run(path)
    path.unlink()
    return run


def make_grid(k1s: Sequence[float], bs: Sequence[float]) -> list[Parameters]:
    """List all pairs, in ascending order."""
    return [Parameters(float(k1), float(b)) for k1 in sorted(set(k1s)) for b in sorted(set(bs))]


def read_parameters(path: str | Path) -> Parameters:
    """Read ``{"k1": ..., "b": ...}``; other keys are ignored."""
    return _parameters(read_json(path))


def _parameters(content: Node) -> Parameters:
    return Parameters(content["k1"].within(float, 0, LARGEST_K1), content["b"].within(float, 0, 1))


def parameters_of_folds(path: str | Path) -> dict[str, Parameters]:
    """Read the parameters of each query that is in a fold."""
    folds = read_json(path)["folds"].items()
    return {query_id: _parameters(fold) for fold in folds for query_id in fold["queries"].read(list[str])}


def rank(
    searcher: Searcher,
    queries: pa.Table,
    parameters: Parameters,
    folder: Path,
    own: Mapping[str, Parameters] | None = None,
) -> Iterator[Ranking]:
    """Yield the ranking of each query with results, in the order of `queries`, with few Java processes.

    :param own: parameters of queries that have some of their own.
    """
    for chunk in in_commands(queries, searcher.options):
        query_ids, texts = (chunk[name].to_pylist() for name in ("query_id", "text"))
        rows: dict[Parameters, list[int]] = {}
        for row, query_id in enumerate(query_ids):
            rows.setdefault((own or {}).get(query_id, parameters), []).append(row)
        places: dict[int, tuple[Run, int]] = {}
        for pair, chosen in rows.items():
            for _, run in searcher.search([texts[row] for row in chosen], [pair], folder):
                places |= {chosen[int(name)]: (run, place) for place, name in enumerate(run.query_ids)}
        for row in sorted(places):
            run, place = places[row]
            yield run[place]._replace(query_id=query_ids[row])


def in_commands(queries: pa.Table, options: BM25Options) -> Iterator[pa.Table]:
    """Divide queries among Java processes."""
    size = queries_per_command(queries.num_rows, options.reach, options.memory_mb)
    chunks = (queries.slice(start, size) for start in range(0, queries.num_rows, size))
    return track(chunks, queries.num_rows, "queries", size=len)


def queries_per_command(queries: int, depth: int, memory_mb: int) -> int:
    """Divide queries evenly among the fewest commands whose results fit in the heap; return at least 1."""
    most = max(1, memory_mb * 1_000_000 // (BYTES_PER_RESULT * depth))
    queries = max(1, queries)
    return math.ceil(queries / math.ceil(queries / most))


def _refuse_truncated(path: Path) -> None:
    """Anserini does not notice when it cannot write its output."""
    with open(path, "rb") as handle:
        handle.seek(max(path.stat().st_size - 1, 0))
        if handle.read() not in (b"", b"\n"):
            raise input_error(path, "a truncated line", "complete lines", "free disk space, or write to another disk")
