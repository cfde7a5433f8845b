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
from cort.runtime.checksums import checksum
from cort.runtime.errors import input_error
from cort.runtime.files import atomic_folder, temporary_folder
from cort.runtime.options import optional, options_class, required, thread_count
from cort.runtime.program import program_of
from cort.runtime.progress import track
from cort.settings.models import Hnsw, Onng

HNSW_SEED = 100
VECTORS_ADDED_AT_ONCE = 5_000
DISTANCE = "Normalized L2"
# Vectors linked at a time. NGT itself links 200 at a time: multiples of that give the same graph as all at once.
LINKED_AT_ONCE = 5_000
PROGRESS_FILE = "progress.json"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Nodes:
    """The vectors of all passages, and the rows of those that are nodes of the graph."""

    vectors: PassageVectors
    rows: Rows

    @classmethod
    def open(cls, paths: Sequence[str], *, zeros: bool) -> "Nodes":
        """Open the vectors to build an index from; those of length 0 are nodes only if `zeros`.

        :raises InputError: if there are none, or one has another length than 1 or 0.
        """
        vectors = PassageVectors(open_shards(paths))
        lengths = unit_lengths(vectors)
        rows = np.arange(len(lengths)) if zeros else np.flatnonzero(lengths)
        if not len(rows):
            found, fix = ("no passage", "zero vectors alone")[len(lengths) > 0], "use another encoder"
            raise input_error(paths[0], found, "at least one passage, of length 1", fix)
        return cls(vectors, rows)

    def blocks(self, size: int, start: int = 0) -> Iterator[Vectors]:
        """Yield the vectors of the nodes from number `start` on, `size` at a time, across shards."""
        for at in range(start, len(self.rows), size):
            yield self.vectors[self.rows[at : at + size]].astype(np.float32)

    def complete_index(self, folder: Path, kind: str, how: Mapping[str, object]) -> None:
        """Write ids.arrow and meta.json beside the library's files.

        :param how: the settings of the index.
        """
        ids = all_ids(self.vectors.passages)
        if len(self.rows) < len(ids):
            ids = ids.filter(pa.array(np.isin(np.arange(len(ids)), self.rows)))
        with arrow_writer(folder / IDS_FILE, IDS) as file:
            file.write_table(pa.table([ids], ["id"]).cast(IDS))
        sizes = {name: (folder / name).stat().st_size for name in INDEXES[kind].files}
        count, dimension = len(ids), self.vectors.dimension
        meta = {"model": self.vectors.passages[0].model, "count": count, "dimension": dimension, **how, "bytes": sizes}
        write_artifact(folder / META_FILE, meta)
        log.info("%d vectors of %d dimensions, %d MB", count, dimension, sum(sizes.values()) // 1_000_000)


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
    nodes = Nodes.open(options.passages, zeros=True)
    how = {"M": options.M, "ef_construction": options.ef_construction}
    with atomic_folder(options.output) as folder:
        index = hnswlib.Index(space=HNSW_SPACE, dim=nodes.vectors.dimension)
        index.init_index(max_elements=len(nodes.rows), random_seed=HNSW_SEED, **how)
        added = 0
        for vectors in track(nodes.blocks(VECTORS_ADDED_AT_ONCE), len(nodes.rows), "vectors added", size=len):
            index.add_items(vectors, np.arange(added, added + len(vectors)), num_threads=1)
            added += len(vectors)
        index.save_index(str(folder / INDEXES["hnsw"].files[0]))
        nodes.complete_index(folder, "hnsw", {**how, "space": HNSW_SPACE})


@dataclass(frozen=True)
class Progress:
    """What belongs to a saved unfinished ANNG: its identity, and the number of vectors linked."""

    identity: str
    linked: int


@dataclass(frozen=True)
class Checkpoint:
    """Folder of an unfinished ANNG, replaced as a whole after `every` seconds."""

    folder: Path
    identity: str
    every: float

    def restore(self, work: Path) -> int:
        """Copy the saved graph to `work` if it belongs to this build; return its number of vectors, or 0."""
        if not self.folder.exists():
            return 0
        saved = read_artifact(self.folder / PROGRESS_FILE, Progress)
        if saved.identity != self.identity:
            log.info("%s holds a part of another graph: ignored", self.folder)
            return 0
        shutil.copytree(self.folder, work, ignore=shutil.ignore_patterns(PROGRESS_FILE))
        log.info("resumes after %d vectors", saved.linked)
        return saved.linked

    def keep(self, work: Path, linked: int) -> None:
        """Replace the saved graph by the files that NGT has just written to `work` and does not read again."""
        with atomic_folder(self.folder, recorded=False) as folder:
            for path in work.iterdir():
                shutil.move(path, folder / path.name)
            write_artifact(folder / PROGRESS_FILE, Progress(self.identity, linked))


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


def _build_plain_graph(nodes: Nodes, path: Path, options: OnngOptions, checkpoint: Checkpoint | None) -> None:
    import ngtpy

    linked = checkpoint.restore(path) if checkpoint else 0
    if not linked:
        # 0: a search follows all edges; the optimized graph has few anyway.
        limits = {"edge_size_for_creation": options.edges, "edge_size_for_search": 0}
        ngtpy.create(str(path), nodes.vectors.dimension, distance_type=DISTANCE, **limits)
    index = ngtpy.Index(str(path), log_disabled=True)
    saved, blocks = time.monotonic(), nodes.blocks(LINKED_AT_ONCE, linked)
    for vectors in track(blocks, len(nodes.rows), "vectors linked", done=linked, size=len):
        index.batch_insert(vectors, num_threads=options.threads, build=False)
        index.build_index(num_threads=options.threads)
        linked += len(vectors)
        if checkpoint and time.monotonic() - saved >= checkpoint.every:
            index.save()
            checkpoint.keep(path, linked)
            saved = time.monotonic()
    index.save()
    index.close()


def _optimize(plain: Path, optimized: Path, options: OnngOptions) -> None:
    import ngtpy

    optimizer = ngtpy.Optimizer(num_of_outgoings=options.outgoing, num_of_incomings=options.incoming, log_disabled=True)
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


def _identity(options: OnngOptions) -> str:
    """Hash all that determines the bytes of an ANNG; how the vectors are divided into shards also counts."""
    parts = {
        "vectors": [*map(checksum, options.passages)],
        "edges": options.edges,
        "program": [program_of("cort.index onng"), version("ngt")],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def build_onng(options: OnngOptions) -> None:
    """Build the index; it depends on neither shards nor threads."""
    # NGT leaves out vectors that are zero in silence, which would move the rows of the others.
    nodes, checkpoint = Nodes.open(options.passages, zeros=False), None
    if options.checkpoints:
        checkpoint = Checkpoint(Path(options.checkpoints), _identity(options), options.checkpoint_every)
    with atomic_folder(options.output) as folder, temporary_folder(options.output) as work:
        plain, optimized = work / "anng", work / "onng"
        _build_plain_graph(nodes, plain, options, checkpoint)
        _optimize(plain, optimized, options)
        for name in {*INDEXES["onng"].files} - {IDS_FILE}:
            os.replace(optimized / name, folder / name)
        how = {"edges": options.edges, "outgoing": options.outgoing, "incoming": options.incoming}
        nodes.complete_index(folder, "onng", how | {"distance": DISTANCE})
    if checkpoint:
        shutil.rmtree(checkpoint.folder, ignore_errors=True)
