"""Builds of graph indexes: HNSW (Malkov & Yashunin, 2018) with hnswlib, ONNG (Iwasaki & Miyazaki, 2018) with NGT.

`cort/retrieval/graph_search.py` describes the files.
"""

import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa

from cort.formats.artifacts import read_artifact, write_artifact
from cort.formats.shards import all_ids, open_shards
from cort.formats.tables import arrow_writer
from cort.retrieval.graph_search import HNSW_SPACE, IDS, library, unit_lengths
from cort.retrieval.indexes import IDS_FILE, INDEXES, META_FILE
from cort.retrieval.rankings import Rows, Vectors
from cort.retrieval.vectors import PassageVectors
from cort.runtime.checksums import SUFFIX, checksum, verify
from cort.runtime.errors import InputError, input_error
from cort.runtime.files import atomic_folder, temporary_folder
from cort.runtime.options import optional, options_class, required, thread_count
from cort.runtime.program import program_of
from cort.runtime.progress import track
from cort.settings.models import Hnsw, Onng

HNSW_SEED = 100
DISTANCE = "Normalized L2"
# Vectors added at a time. NGT itself links 200 at a time: multiples of that give the same graph as all at once.
ADDED_AT_ONCE = 5_000
PROGRESS_FILE = "progress.json"

log = logging.getLogger(__name__)


def _nodes_of(paths: Sequence[str], *, zeros: bool) -> tuple[PassageVectors, Rows]:
    """Open the vectors to build an index from, and list the rows of its nodes; zero vectors are nodes only if `zeros`.

    :raises InputError: if there are none, or one has another length than 1 or 0.
    """
    vectors = PassageVectors(open_shards(paths))
    lengths = unit_lengths(vectors)
    rows = np.arange(len(lengths)) if zeros else np.flatnonzero(lengths)
    if not len(rows):
        found, fix = ("no passage", "zero vectors alone")[len(lengths) > 0], "use another encoder"
        raise input_error(paths[0], found, "at least one passage, of length 1", fix)
    return vectors, rows


def _blocks(vectors: PassageVectors, rows: Rows, done: int = 0) -> Iterator[Vectors]:
    """Yield the vectors of the nodes from number `done` on, `ADDED_AT_ONCE` at a time, across shards."""
    starts = range(done, len(rows), ADDED_AT_ONCE)
    blocks = (vectors[rows[start : start + ADDED_AT_ONCE]].astype(np.float32) for start in starts)
    return track(blocks, len(rows), "vectors added", done, len)


def _complete(folder: Path, kind: str, vectors: PassageVectors, rows: Rows, how: Mapping[str, object]) -> None:
    """Write ids.arrow and meta.json beside the library's files.

    :param how: the settings of the index.
    """
    ids = all_ids(vectors.passages)
    if len(rows) < len(ids):
        ids = ids.filter(pa.array(np.isin(np.arange(len(ids)), rows)))
    with arrow_writer(folder / IDS_FILE, IDS) as file:
        file.write_table(pa.table([ids], ["id"]).cast(IDS))
    sizes = {name: (folder / name).stat().st_size for name in INDEXES[kind].files}
    about = {"model": vectors.passages[0].model, "count": len(rows), "dimension": vectors.dimension}
    write_artifact(folder / META_FILE, {**about, **how, "bytes": sizes})
    log.info("%d vectors of %d dimensions, %d MB", len(rows), vectors.dimension, sum(sizes.values()) // 1_000_000)


@options_class
class HnswOptions(Hnsw):
    """An HNSW graph of vectors (Malkov & Yashunin, 2018), with hnswlib.

    The distance is 1 - inner product, of unit vectors. One thread inserts the passages in order and draws their layers
    with a fixed seed; with more threads, layers and edges would depend on scheduling.

    Reads:  embedding shards of the passages, unit vectors
    Writes: a folder with graph.hnsw, ids.arrow (id of each vector, in order) and meta.json
    """

    passages: tuple[str, ...] = required("ARROW", "all embedding shards")
    output: str = required("FOLDER")


def build_hnsw(options: HnswOptions) -> None:
    """Build the index; it does not depend on how passages are divided into shards."""
    hnswlib = library()
    vectors, rows = _nodes_of(options.passages, zeros=True)
    how = {"M": options.M, "ef_construction": options.ef_construction}
    with atomic_folder(options.output) as folder:
        index = hnswlib.Index(space=HNSW_SPACE, dim=vectors.dimension)
        index.init_index(max_elements=len(rows), random_seed=HNSW_SEED, **how)
        for block in _blocks(vectors, rows):
            index.add_items(block, num_threads=1)
        index.save_index(str(folder / INDEXES["hnsw"].files[0]))
        _complete(folder, "hnsw", vectors, rows, {**how, "space": HNSW_SPACE})


@dataclass(frozen=True)
class Progress:
    """What belongs to a saved unfinished ANNG: its identity, and the number of vectors added."""

    identity: str
    added: int


@dataclass(frozen=True)
class Checkpoint:
    """Folder of an unfinished ANNG, replaced as a whole after `every` seconds."""

    folder: Path
    identity: str
    every: float

    def restore(self, work: Path) -> int:
        """Copy the saved graph to `work` if it is undamaged and of this build; return its number of vectors, or 0."""
        if not self.folder.exists():
            return 0
        try:
            verify([self.folder])
            saved = read_artifact(self.folder / PROGRESS_FILE, Progress)
        except (InputError, OSError) as error:
            log.warning("the build begins anew, without a damaged checkpoint: %s", error)
            shutil.rmtree(self.folder)
            return 0
        if saved.identity != self.identity:
            log.info("%s holds an unfinished graph of another build: ignored", self.folder)
            return 0
        shutil.copytree(self.folder, work, ignore=shutil.ignore_patterns(PROGRESS_FILE, SUFFIX))
        log.info("resumes after %d vectors", saved.added)
        return saved.added

    def keep(self, work: Path, added: int) -> None:
        """Replace the saved graph by the files that NGT has just written to `work` and does not read again."""
        with atomic_folder(self.folder) as folder:
            for path in work.iterdir():
                shutil.move(path, folder / path.name)
            write_artifact(folder / PROGRESS_FILE, Progress(self.identity, added))


@options_class
class OnngOptions(Onng):
    """An ONNG graph of vectors (Iwasaki & Miyazaki, 2018; CoRT paper, section 4.5.3), with NGT.

    First an approximate nearest neighbor graph (ANNG) with `edges` edges per passage is built; from it the optimized
    graph, with `outgoing` and up to `incoming` edges. NGT's tuning of search parameters is off: it takes minutes, and
    searches here set their own epsilon. The distance is "Normalized L2", which orders unit vectors as the angle and the
    inner product do. The meaning of epsilon depends on the distance, so meta.json records it. Passages whose vector is
    zero have no such distance and are left out.

    Nearly all of the time goes into the ANNG, and grows faster than the number of passages. With --checkpoints it is
    saved there from time to time, and an interrupted build resumes from it, to the same bytes.

    Reads:  embedding shards of the passages, unit vectors
    Writes: a folder with NGT's files (grp, obj, prf, robj, tre), ids.arrow (id of each vector, in order) and meta.json
    """

    passages: tuple[str, ...] = required("ARROW", "all embedding shards")
    threads: int = thread_count(len(os.sched_getaffinity(0)))
    checkpoints: str | None = optional(None, "keeps the unfinished ANNG; removed at the end", "FOLDER")
    checkpoint_every: float = optional(600.0, metavar="SECONDS")
    output: str = required("FOLDER")


def _identity(options: OnngOptions) -> str:
    """Hash all that determines the bytes of an ANNG; how the vectors are divided into shards also counts."""
    decisive = {
        "vectors": [*map(checksum, options.passages)],
        "edges": options.edges,
        "program": [program_of("cort.index onng"), version("ngt")],
    }
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def _build_anng(
    options: OnngOptions, vectors: PassageVectors, rows: Rows, path: Path, checkpoint: Checkpoint | None
) -> None:
    import ngtpy

    added = checkpoint.restore(path) if checkpoint else 0
    if not added:
        # 0: a search follows all edges; the optimized graph has few anyway.
        limits = {"edge_size_for_creation": options.edges, "edge_size_for_search": 0}
        ngtpy.create(str(path), vectors.dimension, distance_type=DISTANCE, **limits)
    index = ngtpy.Index(str(path), log_disabled=True)
    saved = time.monotonic()
    for block in _blocks(vectors, rows, added):
        index.batch_insert(block, num_threads=options.threads)
        added += len(block)
        if checkpoint and time.monotonic() - saved >= checkpoint.every:
            index.save()
            checkpoint.keep(path, added)
            saved = time.monotonic()
    index.save()
    index.close()


def build_onng(options: OnngOptions) -> None:
    """Build the index; it depends on neither shards nor threads."""
    import ngtpy

    # NGT leaves out vectors that are zero in silence, which would move the rows of the others.
    vectors, rows = _nodes_of(options.passages, zeros=False)
    checkpoint = None
    if options.checkpoints:
        checkpoint = Checkpoint(Path(options.checkpoints) / "anng", _identity(options), options.checkpoint_every)
    with atomic_folder(options.output) as folder, temporary_folder(options.output) as work:
        plain, optimized = work / "anng", work / "onng"
        _build_anng(options, vectors, rows, plain, checkpoint)
        edges = {"outgoing": options.outgoing, "incoming": options.incoming}
        optimizer = ngtpy.Optimizer(**{f"num_of_{kind}s": number for kind, number in edges.items()}, log_disabled=True)
        optimizer.set_processing_modes(
            # NGT 2.8.0.post1 reads the number of edges to keep from uninitialised memory, so equal calls may remove
            # different edges.
            shortcut_reduction=False,
            search_parameter_optimization=False,
            prefetch_parameter_optimization=False,
            accuracy_table_generation=False,
        )
        log.info("optimizes the graph")
        optimizer.execute(str(plain), str(optimized))
        for name in {*INDEXES["onng"].files} - {IDS_FILE}:
            os.replace(optimized / name, folder / name)
        _complete(folder, "onng", vectors, rows, {"edges": options.edges, **edges, "distance": DISTANCE})
    if checkpoint:
        shutil.rmtree(checkpoint.folder.parent, ignore_errors=True)
