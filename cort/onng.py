"""Build the ONNG graph index of the passages (Iwasaki & Miyazaki 2018; CoRT paper, section 4.5.3) with NGT.

First an approximate nearest neighbour graph (ANNG) with `edges` edges per passage, then from it the optimized graph
with `outgoing` and up to `incoming` edges. NGT's tuning of search parameters is off: it takes minutes, and the search
here names its epsilon itself. The distance is "Normalized L2", which orders unit vectors as the angle and the inner
product do; an epsilon means something else under each distance, so the distance is recorded.

The ANNG takes nearly all of the time, more than in proportion to the passages. With --checkpoints it is kept there from
time to time, and a build that was interrupted goes on from it, to the same bytes.

Reads:  embedding shards of the passages, unit vectors
Writes: a folder with NGT's files (grp, obj, prf, robj, tre), ids.arrow (id of each vector, in order) and meta.json
Usage:  python -m cort.onng --passages 1-of-2.arrow 2-of-2.arrow --edges 100 --outgoing 10 --incoming 120 --threads 4
            --output onng
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from cort.formats.artifacts import read_artifact, write_artifact
from cort.formats.embeddings import Shard
from cort.retrieval.graph import blocks_of, complete_index, open_passages
from cort.retrieval.graphs import GRAPHS
from cort.retrieval.options import check_positive
from cort.system import cli
from cort.system.errors import InputError
from cort.system.files import atomic_folder, checksum, temporary_folder
from cort.system.options import optional, required, thread_count
from cort.system.progress import track

log = logging.getLogger(__name__)

DISTANCE = "Normalized L2"
INDEX_FILES = GRAPHS["onng"].files
# Vectors linked at a time. NGT links 200 at a time itself: multiples of that give the graph of all at once.
LINKED_AT_ONCE = 5_000
PROGRESS_FILE = "progress.json"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of this stage."""

    passages: tuple[str, ...] = required("ARROW", "embedding shards, all of them")
    edges: int = optional(100, "edges per passage of the ANNG", "N")
    outgoing: int = optional(10, "outgoing edges kept per passage", "N")
    incoming: int = optional(120, "incoming edges kept per passage", "N")
    threads: int = thread_count(len(os.sched_getaffinity(0)))
    checkpoints: str | None = optional(None, "keeps the unfinished ANNG; removed in the end", "FOLDER")
    checkpoint_every: float = optional(600.0, metavar="SECONDS")
    output: str = required("FOLDER")


@dataclass(frozen=True)
class Progress:
    """What is kept of an unfinished ANNG: which one it is, its vectors, and the sizes of its files."""

    identity: str
    linked: int
    bytes: dict[str, int]


@dataclass(frozen=True)
class Checkpoint:
    """Where an unfinished ANNG is kept, in a folder of its own that is always whole; `every` is in seconds."""

    folder: Path
    identity: str
    every: float

    def restore(self, work: Path) -> int:
        """Copy what is kept of this very build to `work`, if anything; the number of vectors it has."""
        path = self.folder / PROGRESS_FILE
        try:
            kept = read_artifact(path, Progress)
            whole = all((self.folder / name).stat().st_size == size for name, size in kept.bytes.items())
        except FileNotFoundError:
            return 0
        except (InputError, OSError) as error:
            log.warning("%s cannot be read (%s): the graph is begun anew", path, error)
            return 0
        if kept.identity != self.identity or not whole:
            log.info("%s holds a part of another graph: ignored", self.folder)
            return 0
        work.mkdir()
        for name in kept.bytes:
            shutil.copyfile(self.folder / name, work / name)
        log.info("goes on after %d vectors", kept.linked)
        return kept.linked

    def keep(self, work: Path, linked: int) -> None:
        """Put in place of what was kept the files that NGT has just saved in `work`, which it never reads again."""
        with atomic_folder(self.folder, recorded=False) as folder:
            sizes = {}
            for path in sorted(work.iterdir()):
                sizes[path.name] = path.stat().st_size
                shutil.move(path, folder / path.name)
            write_artifact(folder / PROGRESS_FILE, Progress(self.identity, linked, sizes))


def _build_plain_graph(passages: Sequence[Shard], path: Path, options: Options, checkpoint: Checkpoint | None) -> None:
    import ngtpy

    linked = checkpoint.restore(path) if checkpoint else 0
    if not linked:
        # No limit of the edges followed in a search (0): the optimized graph has few as it is.
        limits = {"edge_size_for_creation": options.edges, "edge_size_for_search": 0}
        ngtpy.create(str(path), passages[0].dimension, distance_type=DISTANCE, **limits)
    index = ngtpy.Index(str(path), log_disabled=True)
    count, kept = sum(shard.table.num_rows for shard in passages), time.monotonic()
    blocks = blocks_of(passages, LINKED_AT_ONCE, linked)
    for vectors in track(blocks, count, "vectors linked", done=linked, size=len):
        index.batch_insert(vectors, num_threads=options.threads, build=False)
        index.build_index(num_threads=options.threads)
        linked += len(vectors)
        if checkpoint and time.monotonic() - kept >= checkpoint.every:
            index.save()
            checkpoint.keep(path, linked)
            kept = time.monotonic()
    index.save()
    index.close()


def _optimize(plain: Path, optimized: Path, outgoing: int, incoming: int) -> None:
    import ngtpy

    optimizer = ngtpy.Optimizer(num_of_outgoings=outgoing, num_of_incomings=incoming, log_disabled=True)
    optimizer.set_processing_modes(
        # NGT 2.8.0.post1 reads the fewest edges to keep from memory it never wrote: of equal calls some remove
        # shortcut edges, most none.
        shortcut_reduction=False,
        search_parameter_optimization=False,
        prefetch_parameter_optimization=False,
        accuracy_table_generation=False,
    )
    log.info("optimizes the graph")
    optimizer.execute(str(plain), str(optimized))


def _identity(passages: Sequence[Shard], edges: int) -> str:
    """Name an ANNG by all that decides its bytes; how the vectors are parted does not, but tells files apart."""
    parts = {
        "vectors": [checksum(shard.path) for shard in passages],
        "edges": edges,
        "program": [checksum(__file__), version("ngt")],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def stage(options: Options) -> None:
    """Open the shards, build, put the folder in place. The result depends on neither shards nor threads."""
    check_positive(options, "edges", "outgoing", "incoming", "threads")
    passages = open_passages(options.passages)
    checkpoint = None
    if options.checkpoints:
        identity = _identity(passages, options.edges)
        checkpoint = Checkpoint(Path(options.checkpoints), identity, options.checkpoint_every)
    with atomic_folder(options.output) as folder, temporary_folder(options.output) as work:
        plain, optimized = work / "anng", work / "onng"
        _build_plain_graph(passages, plain, options, checkpoint)
        _optimize(plain, optimized, options.outgoing, options.incoming)
        for name in INDEX_FILES:
            os.replace(optimized / name, folder / name)
        how = {name: getattr(options, name) for name in ("edges", "outgoing", "incoming")}
        complete_index(folder, passages, "onng", how | {"distance": DISTANCE})
    if checkpoint:
        shutil.rmtree(checkpoint.folder, ignore_errors=True)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
