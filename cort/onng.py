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

import argparse
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
from typing import Any

import numpy as np
import pyarrow as pa

from cort.formats.embeddings import Shard, all_ids, open_shards
from cort.retrieval.graph import (
    Found,
    Vectors,
    count_vectors,
    read_ids,
    read_meta,
    sizes_of,
    unit_blocks,
    write_ids,
    write_meta,
)
from cort.system import cli
from cort.system.errors import input_error
from cort.system.files import atomic_folder, checksum
from cort.system.progress import track

log = logging.getLogger(__name__)

DISTANCE = "Normalized L2"
INDEX_FILES = ("grp", "obj", "prf", "robj", "tre")
# Vectors linked at a time. NGT links 200 at a time itself: multiples of that give the graph of all at once.
LINKED_AT_ONCE = 5_000
PROGRESS_FILE = "progress.json"


@dataclass(frozen=True)
class Meta:
    """What an index was built from and how; `model` is the encoder's fingerprint, `bytes` the size of each file."""

    model: str
    count: int
    dimension: int
    edges: int
    outgoing: int
    incoming: int
    distance: str
    bytes: dict[str, int]


@dataclass(frozen=True)
class Onng:
    """An index that is open for searching; the width of a search is epsilon."""

    index: Any
    ids: pa.Array
    meta: Meta

    def search(self, query: Vectors, width: float, depth: int) -> Found:
        """Follow edges to passages within (1 + width) times the distance of the last result so far.

        Scores are computed from the index's distances (1 - d^2 / 2 for unit vectors).
        """
        pairs = self.index.search(query, size=depth, epsilon=width)
        rows, distances = zip(*pairs, strict=True) if pairs else ((), ())
        return Found(np.array(rows, dtype=np.int64), 1.0 - np.array(distances, dtype=np.float64) ** 2 / 2)


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
            kept = json.loads(path.read_text(encoding="utf-8"))
            linked, sizes = int(kept["linked"]), dict(kept["bytes"])
            whole = all((self.folder / name).stat().st_size == size for name, size in sizes.items())
        except FileNotFoundError:
            return 0
        except (ValueError, TypeError, KeyError, OSError) as error:
            log.warning("%s cannot be read (%s): the graph is begun anew", path, error)
            return 0
        if kept.get("identity") != self.identity or not whole:
            log.info("%s holds a part of another graph: ignored", self.folder)
            return 0
        work.mkdir()
        for name in sizes:
            shutil.copyfile(self.folder / name, work / name)
        log.info("goes on after %d vectors", linked)
        return linked

    def keep(self, work: Path, linked: int) -> None:
        """Put in place of what was kept the files that NGT has just saved in `work`, which it never reads again."""
        with atomic_folder(self.folder) as folder:
            sizes = {}
            for path in sorted(work.iterdir()):
                sizes[path.name] = path.stat().st_size
                shutil.move(path, folder / path.name)
            text = json.dumps({"identity": self.identity, "linked": linked, "bytes": sizes}, indent=2)
            (folder / PROGRESS_FILE).write_text(f"{text}\n", encoding="utf-8", newline="\n")

    def remove(self) -> None:
        """Remove what is kept."""
        shutil.rmtree(self.folder, ignore_errors=True)


def build(
    passages: Sequence[Shard],
    folder: Path,
    edges: int,
    outgoing: int,
    incoming: int,
    threads: int,
    checkpoint: Checkpoint | None = None,
) -> Meta:
    """Build the index of all passages in the empty `folder`. The result depends on neither shards nor threads.

    :raises InputError: without passages, or for vectors not of length 1.
    """
    count = count_vectors(passages)
    plain, optimized = folder / "anng", folder / "onng"
    _build_plain_graph(passages, plain, edges, threads, checkpoint)
    _optimize(plain, optimized, outgoing, incoming)
    for name in INDEX_FILES:
        os.replace(optimized / name, folder / name)
    shutil.rmtree(plain)
    shutil.rmtree(optimized)
    write_ids(folder, all_ids(passages))
    sizes = sizes_of(folder, INDEX_FILES)
    meta = Meta(passages[0].model, count, passages[0].dimension, edges, outgoing, incoming, DISTANCE, sizes)
    write_meta(folder, meta)
    return meta


def open_index(folder: str | Path) -> Onng:
    """Open an index for searching.

    :raises InputError: when a file is missing or not as it was written.
    """
    import ngtpy

    folder = Path(folder)
    meta = read_meta(folder, Meta, "onng")
    index = ngtpy.Index(str(folder), read_only=True, log_disabled=True)
    return Onng(index, read_ids(folder, meta.count, index.get_num_of_objects()), meta)


def _build_plain_graph(
    passages: Sequence[Shard], path: Path, edges: int, threads: int, checkpoint: Checkpoint | None
) -> None:
    import ngtpy

    linked = checkpoint.restore(path) if checkpoint else 0
    if not linked:
        # No limit of the edges followed in a search (0): the optimized graph has few as it is.
        dimension = passages[0].dimension
        ngtpy.create(str(path), dimension, edge_size_for_creation=edges, edge_size_for_search=0, distance_type=DISTANCE)
    index = ngtpy.Index(str(path), log_disabled=True)
    count, kept = count_vectors(passages), time.monotonic()
    blocks = unit_blocks(passages, LINKED_AT_ONCE, linked)
    for vectors in track(blocks, count, "vectors linked", done=linked, size=len):
        index.batch_insert(vectors, num_threads=threads, build=False)
        index.build_index(num_threads=threads)
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


def build_parser() -> argparse.ArgumentParser:
    """Options of this stage."""
    parser = cli.make_parser("cort.onng", __doc__)
    parser.add_argument("--passages", required=True, nargs="+", metavar="ARROW", help="embedding shards, all of them")
    parser.add_argument("--edges", type=int, default=100, metavar="N", help="edges per passage of the ANNG")
    parser.add_argument("--outgoing", type=int, default=10, metavar="N", help="outgoing edges kept per passage")
    parser.add_argument("--incoming", type=int, default=120, metavar="N", help="incoming edges kept per passage")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    parser.add_argument("--checkpoints", metavar="FOLDER", help="keeps the unfinished ANNG; removed in the end")
    parser.add_argument("--checkpoint-every", type=float, default=600.0, metavar="SECONDS")
    parser.add_argument("--output", required=True, metavar="FOLDER")
    return parser


def stage(args: argparse.Namespace) -> None:
    """Open the shards, build, put the folder in place."""
    for name in ("edges", "outgoing", "incoming", "threads"):
        if getattr(args, name) < 1:
            raise input_error(f"--{name}", str(getattr(args, name)), "1 or more", "give a positive number")
    passages = open_shards(args.passages)
    checkpoint = None
    if args.checkpoints:
        checkpoint = Checkpoint(Path(args.checkpoints), _identity(passages, args.edges), args.checkpoint_every)
    with atomic_folder(args.output) as folder:
        meta = build(passages, folder, args.edges, args.outgoing, args.incoming, args.threads, checkpoint)
    if checkpoint:
        checkpoint.remove()
    log.info("%d vectors of %d dimensions, %d MB", meta.count, meta.dimension, sum(meta.bytes.values()) // 1_000_000)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())
