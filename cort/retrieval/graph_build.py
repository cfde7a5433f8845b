"""What builds of graph indexes have in common: nodes, blocks of vectors, checkpoints, files beside the library's.

A checkpoint is the unfinished graph, saved as a whole from time to time; an interrupted build resumes from it.
`cort/retrieval/graph_search.py` describes the files of a finished one.
"""

import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from cort.formats.artifacts import read_artifact, write_artifact
from cort.formats.tables import arrow_writer
from cort.retrieval.graph_search import IDS, unit_lengths
from cort.retrieval.index_meta import write_meta
from cort.retrieval.indexes import IDS_FILE
from cort.retrieval.rankings import Rows, Vectors
from cort.retrieval.vectors import PassageVectors, open_vectors
from cort.runtime.checksums import checksum
from cort.runtime.errors import InputError, input_error
from cort.runtime.files import atomic_folder, temporary_folder
from cort.runtime.program import program_of
from cort.runtime.progress import track
from cort.runtime.sections import ArrowFile, FolderPath, Maybe, Section, Several, Threads

# Vectors added at a time. Changes an HNSW graph. NGT links 200 at a time: multiples of that change no ONNG.
ADDED_AT_ONCE = 20_000
PROGRESS_FILE = "progress.json"
# Seconds between two checkpoints: at least the first number, and at most the last one, as an interruption loses what
# follows. A checkpoint writes the whole graph; it is this many times its cost apart from the next, so that they take a
# twentieth of the time.
LEAST, TIMES_ITS_COST, MOST = 600, 19, 7200

log = logging.getLogger(__name__)


class GraphBuildOptions(Section):
    """Options of stages that build a graph."""

    passages: Several[ArrowFile]
    """All embedding shards."""
    checkpoints: Maybe[FolderPath] = None
    """Keeps the unfinished graph; removed at the end."""
    threads: Threads = len(os.sched_getaffinity(0))
    output: FolderPath


@dataclass(frozen=True)
class Progress:
    """What belongs to an unfinished graph: its identity, the number of vectors added, checksums of its files."""

    identity: str
    added: int
    files: dict[str, str]


@contextmanager
def building(options: GraphBuildOptions) -> Iterator[tuple[Path, Path]]:
    """Give the folder of the index, which appears as a whole, and one for work; then remove checkpoints."""
    with atomic_folder(options.output) as folder, temporary_folder(options.output) as work:
        yield folder, work
    if options.checkpoints:
        shutil.rmtree(options.checkpoints, ignore_errors=True)


def nodes_of(paths: Sequence[str], *, zeros: bool) -> tuple[PassageVectors, Rows]:
    """Open the vectors to build an index from, and list the rows of its nodes; zero vectors are nodes only if `zeros`.

    :raises InputError: if there are none, or one has another length than 1 or 0.
    """
    vectors = open_vectors(paths)
    lengths = unit_lengths(vectors)
    rows = np.arange(len(lengths)) if zeros else np.flatnonzero(lengths)
    if not len(rows):
        found, fix = ("no passage", "zero vectors alone")[len(lengths) > 0], "use another encoder"
        raise input_error(paths[0], found, "at least one passage, of length 1", fix)
    return vectors, rows


def _folder_of(options: GraphBuildOptions) -> Path:
    return Path(options.checkpoints or "") / "graph"


def resume(options: GraphBuildOptions, module: str, decisive: object) -> tuple[Path, Progress]:
    """Find what is saved of this build, if it is whole: the folder of the graph, and its progress, or that of none.

    :param decisive: all that determines the bytes of the graph, but for the vectors and the code of `module`.
    """
    folder = _folder_of(options)
    if options.checkpoints is None:
        return folder, Progress("", 0, {})
    made_from = [[*map(checksum, options.passages)], program_of(module), decisive]
    none = Progress(hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest(), 0, {})
    if not folder.exists():
        return folder, none
    try:
        saved = read_artifact(folder / PROGRESS_FILE, Progress)
        # Libraries crash on some damage.
        for path in map(folder.joinpath, saved.files):
            if checksum(path) != saved.files[path.name]:
                raise input_error(path, "other bytes", "those that were written", "delete it")
    except (InputError, OSError) as error:
        log.warning("the build begins anew, without a damaged checkpoint: %s", error)
        return folder, none
    if saved.identity != none.identity:
        log.info("%s holds an unfinished graph of another build: ignored", folder)
        return folder, none
    log.info("resumes after %d vectors", saved.added)
    return folder, saved


def blocks(
    options: GraphBuildOptions,
    vectors: PassageVectors,
    rows: Rows,
    before: Progress,
    work: Path,
    save: Callable[[], object],
) -> Iterator[Vectors]:
    """Yield the vectors of the nodes that are to be added, `ADDED_AT_ONCE` at a time, across shards.

    Now and then, when a block was added, the saved graph is replaced.

    :param save: writes the graph to `work`; its files are moved.
    """
    starts = range(before.added, len(rows), ADDED_AT_ONCE)
    saved, cost = time.monotonic(), 0.0
    added = (vectors[rows[start : start + ADDED_AT_ONCE]].astype(np.float32) for start in starts)
    for start, block in zip(starts, track(added, len(rows), "vectors added", before.added, len), strict=True):
        yield block
        began = time.monotonic()
        if options.checkpoints is None or began - saved < min(max(LEAST, TIMES_ITS_COST * cost), MOST):
            continue
        save()
        with atomic_folder(_folder_of(options)) as folder:
            for path in work.iterdir():
                shutil.move(path, folder / path.name)
            sums = {path.name: checksum(path) for path in folder.iterdir()}
            write_artifact(folder / PROGRESS_FILE, Progress(before.identity, start + len(block), sums))
        saved = time.monotonic()
        cost = saved - began


def complete(folder: Path, kind: str, vectors: PassageVectors, rows: Rows, how: Mapping[str, int | str]) -> None:
    """Write ids.arrow and meta.json beside the library's files.

    :param how: the settings of the index.
    """
    ids = vectors.ids
    if len(rows) < len(ids):
        ids = ids.filter(pa.array(np.isin(np.arange(len(ids)), rows)))
    with arrow_writer(folder / IDS_FILE, IDS) as file:
        file.write_table(pa.table([ids], ["id"]).cast(IDS))
    meta = write_meta(folder, kind, vectors, len(rows), how)
    log.info("%d vectors of %d dimensions, %d MB", len(rows), meta.dimension, sum(meta.bytes.values()) // 1_000_000)
