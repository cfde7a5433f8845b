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

import hashlib
import json
import logging
import os
import shutil
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from cort.config.models import Onng
from cort.formats.artifacts import read_artifact, write_artifact
from cort.retrieval.graph_build import blocks, complete, nodes_of
from cort.retrieval.indexes import IDS_FILE, INDEXES
from cort.retrieval.rankings import Rows
from cort.retrieval.vectors import PassageVectors
from cort.runtime.checksums import checksum
from cort.runtime.errors import InputError, input_error
from cort.runtime.files import atomic_folder, temporary_folder
from cort.runtime.program import program_of
from cort.runtime.sections import ArrowFile, FolderPath, Maybe, Several, Threads

DISTANCE = "Normalized L2"

PROGRESS_FILE = "progress.json"

log = logging.getLogger(__name__)


class Options(Onng):
    """Options of this stage."""

    passages: Several[ArrowFile]
    """All embedding shards."""
    threads: Threads = len(os.sched_getaffinity(0))
    checkpoints: Maybe[FolderPath] = None
    """Keeps the unfinished ANNG; removed at the end."""
    checkpoint_every: float = 600.0
    output: FolderPath


@dataclass(frozen=True)
class Progress:
    """What belongs to a saved unfinished ANNG: its identity, the number of vectors added, checksums of NGT's files."""

    identity: str
    added: int
    files: dict[str, str]


@dataclass(frozen=True)
class Checkpoint:
    """Folder of an unfinished ANNG, replaced as a whole after `every` seconds."""

    folder: Path
    identity: str
    every: float

    def restore(self, work: Path) -> int:
        """Copy the saved graph to `work` if it is whole and of this build; return its number of vectors, or 0."""
        if not self.folder.exists():
            return 0
        try:
            saved = read_artifact(self.folder / PROGRESS_FILE, Progress)
            # NGT crashes on some damage.
            for path in map(self.folder.joinpath, saved.files):
                if checksum(path) != saved.files[path.name]:
                    raise input_error(path, "other bytes", "those that were written", "delete it")
        except (InputError, OSError) as error:
            log.warning("the build begins anew, without a damaged checkpoint: %s", error)
            shutil.rmtree(self.folder)
            return 0
        if saved.identity != self.identity:
            log.info("%s holds an unfinished graph of another build: ignored", self.folder)
            return 0
        shutil.copytree(self.folder, work, ignore=shutil.ignore_patterns(PROGRESS_FILE))
        log.info("resumes after %d vectors", saved.added)
        return saved.added

    def keep(self, work: Path, added: int) -> None:
        """Replace the saved graph by the files that NGT has just written to `work` and does not read again."""
        with atomic_folder(self.folder) as folder:
            for path in work.iterdir():
                shutil.move(path, folder / path.name)
            sums = {path.name: checksum(path) for path in folder.iterdir()}
            write_artifact(folder / PROGRESS_FILE, Progress(self.identity, added, sums))


def _identity(options: Options) -> str:
    """Hash all that determines the bytes of an ANNG; how the vectors are divided into shards also counts."""
    decisive = {
        "vectors": [*map(checksum, options.passages)],
        "edges": options.edges,
        "program": [program_of(__name__), version("ngt")],
    }
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def _build_anng(
    options: Options, vectors: PassageVectors, rows: Rows, path: Path, checkpoint: Checkpoint | None
) -> None:
    import ngtpy

    added = checkpoint.restore(path) if checkpoint else 0
    if not added:
        # 0: a search follows all edges; the optimized graph has few anyway.
        limits = {"edge_size_for_creation": options.edges, "edge_size_for_search": 0}
        ngtpy.create(str(path), vectors.dimension, distance_type=DISTANCE, **limits)
    index = ngtpy.Index(str(path), log_disabled=True)
    saved = time.monotonic()
    for block in blocks(vectors, rows, added):
        index.batch_insert(block, num_threads=options.threads)
        added += len(block)
        if checkpoint and time.monotonic() - saved >= checkpoint.every:
            index.save()
            checkpoint.keep(path, added)
            saved = time.monotonic()
    index.save()
    index.close()


def stage(options: Options) -> None:
    """Build the index; it depends on neither shards nor threads."""
    import ngtpy

    # NGT leaves out vectors that are zero in silence, which would move the rows of the others.
    vectors, rows = nodes_of(options.passages, zeros=False)
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
        complete(folder, "onng", vectors, rows, {"edges": options.edges, **edges, "distance": DISTANCE})
    if checkpoint:
        shutil.rmtree(checkpoint.folder.parent, ignore_errors=True)
