"""Build the ONNG graph index of the passages (Iwasaki & Miyazaki 2018; CoRT paper, section 4.5.3) with NGT.

First an approximate nearest neighbour graph (ANNG) with `edges` edges per passage, then from it the optimized graph
with `outgoing` and up to `incoming` edges. NGT's tuning of search parameters is off: it takes minutes, and the search
here names its epsilon itself. The distance is "Normalized L2", which orders unit vectors as the angle and the inner
product do; an epsilon means something else under each distance, so the distance is recorded.

Reads:  embedding shards of the passages, unit vectors
Writes: a folder with NGT's files (grp, obj, prf, robj, tre), ids.arrow (id of each vector, in order) and meta.json
Usage:  python -m cort.onng --passages 1-of-2.arrow 2-of-2.arrow --edges 100 --outgoing 10 --incoming 120 --threads 4
            --output onng
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort import cli
from cort.errors import input_error
from cort.files import atomic_folder
from cort.formats.arrow import open_arrow
from cort.formats.embeddings import Shard, all_ids, open_shards
from cort.progress import track

log = logging.getLogger(__name__)

DISTANCE = "Normalized L2"
INDEX_FILES = ("grp", "obj", "prf", "robj", "tre")
# Half-precision storage moves a unit vector's length by 0.0005 at most.
UNIT_TOLERANCE = 0.01
IDS = pa.schema([("id", pa.string())])


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


def build(passages: Sequence[Shard], folder: Path, edges: int, outgoing: int, incoming: int, threads: int) -> Meta:
    """Build the index of all passages in the empty `folder`. The result depends on neither shards nor threads.

    :raises InputError: without passages, or for vectors not of length 1.
    """
    count = sum(shard.table.num_rows for shard in passages)
    if count == 0:
        raise input_error(passages[0].path, "no passage", "at least one", "encode the passages again")
    plain, optimized = folder / "anng", folder / "onng"
    _build_plain_graph(passages, plain, edges, threads)
    _optimize(plain, optimized, outgoing, incoming)
    for name in INDEX_FILES:
        os.replace(optimized / name, folder / name)
    shutil.rmtree(plain)
    shutil.rmtree(optimized)
    _write_ids(folder / "ids.arrow", all_ids(passages))
    sizes = {name: (folder / name).stat().st_size for name in (*INDEX_FILES, "ids.arrow")}
    meta = Meta(passages[0].model, count, passages[0].dimension, edges, outgoing, incoming, DISTANCE, sizes)
    (folder / "meta.json").write_text(json.dumps(asdict(meta), indent=2) + "\n", encoding="utf-8", newline="\n")
    return meta


def open_index(folder: str | Path) -> tuple[Any, pa.Array, Meta]:
    """Open an index for searching: NGT's index, the ids of its vectors, and how it was built.

    :raises InputError: when a file is missing or not as it was written.
    """
    import ngtpy

    folder = Path(folder)
    meta = _read_meta(folder)
    for name, size in meta.bytes.items():
        path = folder / name
        if not path.exists() or path.stat().st_size != size:
            found = f"{path.stat().st_size} bytes" if path.exists() else "no such file"
            raise input_error(path, found, f"{size} bytes", "delete the index and build it again")
    ids = open_arrow(folder / "ids.arrow", "list of ids", "delete the index and build it again")["id"].combine_chunks()
    index = ngtpy.Index(str(folder), read_only=True, log_disabled=True)
    if not len(ids) == index.get_num_of_objects() == meta.count:
        found = f"{len(ids)} ids and {index.get_num_of_objects()} vectors"
        raise input_error(folder, found, f"{meta.count} of each", "delete the index and build it again")
    return index, ids, meta


def refuse_other_lengths(vectors: npt.NDArray[np.floating], source: str | Path) -> None:
    """Check that all vectors have length 1, without which the angle does not order as the inner product does.

    :raises InputError: with the first other length.
    """
    lengths = np.linalg.norm(vectors.astype(np.float32), axis=1)
    wrong = lengths[~(np.abs(lengths - 1) <= UNIT_TOLERANCE)]
    if len(wrong):
        fix = "use exact retrieval for a model that does not normalise, or encode again"
        raise input_error(source, f"a vector of length {wrong[0]:.4g}", "unit vectors", fix)


def _build_plain_graph(passages: Sequence[Shard], path: Path, edges: int, threads: int) -> None:
    import ngtpy

    dimension = passages[0].dimension
    # No limit of the edges followed in a search (0): the optimized graph has few as it is.
    ngtpy.create(str(path), dimension, edge_size_for_creation=edges, edge_size_for_search=0, distance_type=DISTANCE)
    index = ngtpy.Index(str(path), log_disabled=True)
    blocks = ((shard.path, vectors) for shard in passages for _, vectors in shard.blocks())
    for source, vectors in track(blocks, None, "blocks of vectors"):
        refuse_other_lengths(vectors, source)
        # Linked only once all are there, so that the graph does not depend on the blocks.
        index.batch_insert(vectors.astype(np.float32), num_threads=threads, build=False)
    index.build_index(num_threads=threads)
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
    optimizer.execute(str(plain), str(optimized))


def _write_ids(path: Path, ids: pa.ChunkedArray) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, IDS) as file:
        file.write_table(pa.table([ids], schema=IDS))


def _read_meta(folder: Path) -> Meta:
    path = folder / "meta.json"
    try:
        return Meta(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise input_error(path, f"({error})", "what `onng` wrote", "delete the index and build it again") from error


def build_parser() -> argparse.ArgumentParser:
    """Options of this stage."""
    parser = cli.make_parser("cort.onng", __doc__)
    parser.add_argument("--passages", required=True, nargs="+", metavar="ARROW", help="embedding shards, all of them")
    parser.add_argument("--edges", type=int, default=100, metavar="N", help="edges per passage of the ANNG")
    parser.add_argument("--outgoing", type=int, default=10, metavar="N", help="outgoing edges kept per passage")
    parser.add_argument("--incoming", type=int, default=120, metavar="N", help="incoming edges kept per passage")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    parser.add_argument("--output", required=True, metavar="FOLDER")
    return parser


def stage(args: argparse.Namespace) -> None:
    """Open the shards, build, put the folder in place."""
    for name in ("edges", "outgoing", "incoming", "threads"):
        if getattr(args, name) < 1:
            raise input_error(f"--{name}", str(getattr(args, name)), "1 or more", "give a positive number")
    passages = open_shards(args.passages)
    with atomic_folder(args.output) as folder:
        meta = build(passages, folder, args.edges, args.outgoing, args.incoming, args.threads)
    log.info("%d vectors of %d dimensions, %d MB", meta.count, meta.dimension, sum(meta.bytes.values()) // 1_000_000)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())
