"""Build an HNSW graph index of the passages (Malkov & Yashunin 2018) with hnswlib: the fast approximate kind.

`M` (M) is the number of edges a passage gets on each layer, twice as many on the lowest; `ef_construction` is
the width of the search for them. Distances are 1 - inner product, over unit vectors.

Equal inputs give equal bytes: the layers are drawn with a fixed seed, in the order of the passages, by one thread. With
more threads both the draws and the edges would depend on which of them is first, so there is no such option.

Reads:  embedding shards of the passages, unit vectors
Writes: a folder with graph.hnsw, ids.arrow (id of each vector, in order) and meta.json
Usage:  python -m cort.hnsw --passages 1-of-2.arrow 2-of-2.arrow --M 16 --ef-construction 200 --output hnsw
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.formats.embeddings import Shard, all_ids, open_shards
from cort.retrieval.graph import (
    Found,
    Vectors,
    count_vectors,
    damaged,
    read_ids,
    read_meta,
    sizes_of,
    unit_blocks,
    write_ids,
    write_meta,
)
from cort.system import cli
from cort.system.errors import input_error
from cort.system.files import atomic_folder
from cort.system.progress import track

log = logging.getLogger(__name__)

GRAPH_FILE = "graph.hnsw"
SPACE = "ip"
SEED = 100
ADDED_AT_ONCE = 5_000
# With one, hnswlib would divide by log(1) to draw layers.
CONNECTIONS = range(2, 1_001)


@dataclass(frozen=True)
class Meta:
    """What an index was built from and how; `model` is the encoder's fingerprint, `bytes` the size of each file."""

    model: str
    count: int
    dimension: int
    M: int
    ef_construction: int
    space: str
    bytes: dict[str, int]


@dataclass(frozen=True)
class Hnsw:
    """An index that is open for searching; the width of a search is ef, the results it keeps while it goes on."""

    index: Any
    ids: pa.Array
    meta: Meta

    def search(self, query: Vectors, width: float, depth: int) -> Found:
        """Keep the best `width` passages found so far, and end when none of them leads to a better one."""
        self.index.set_ef(int(width))
        rows, distances = _search(self.index, query, min(depth, self.meta.count))
        return Found(rows, 1.0 - distances.astype(np.float64))

    def search_all(self, queries: Vectors, width: int, depth: int, threads: int) -> list[Found]:
        """Search many queries; the results do not depend on `threads`."""
        self.index.set_ef(width)
        depth = min(depth, self.meta.count)
        try:
            rows, distances = self.index.knn_query(queries, k=depth, num_threads=threads)
        except RuntimeError:
            # The graph does not lead some query to so many passages.
            return [self.search(query, width, depth) for query in queries]
        scores = 1.0 - distances.astype(np.float64)
        return [Found(*found) for found in zip(rows.astype(np.int64), scores, strict=True)]


def build(passages: Sequence[Shard], folder: Path, M: int, ef_construction: int) -> Meta:
    """Build the index of all passages in the empty `folder`. The result does not depend on the shards.

    :raises InputError: without passages or hnswlib, or for vectors not of length 1.
    """
    count, dimension = count_vectors(passages), passages[0].dimension
    index = library().Index(space=SPACE, dim=dimension)
    index.init_index(max_elements=count, M=M, ef_construction=ef_construction, random_seed=SEED)
    added = 0
    for vectors in track(unit_blocks(passages, ADDED_AT_ONCE), count, "vectors added", size=len):
        index.add_items(vectors, np.arange(added, added + len(vectors)), num_threads=1)
        added += len(vectors)
    index.save_index(str(folder / GRAPH_FILE))
    write_ids(folder, all_ids(passages))
    sizes = sizes_of(folder, [GRAPH_FILE])
    meta = Meta(passages[0].model, count, dimension, M, ef_construction, SPACE, sizes)
    write_meta(folder, meta)
    return meta


def open_index(folder: str | Path) -> Hnsw:
    """Open an index for searching.

    :raises InputError: when a file is missing or not as it was written, or hnswlib is not installed.
    """
    folder = Path(folder)
    meta = read_meta(folder, Meta, "hnsw")
    index = library().Index(space=SPACE, dim=meta.dimension)
    try:
        index.load_index(str(folder / GRAPH_FILE))
    except RuntimeError as error:
        raise damaged(folder / GRAPH_FILE, error) from error
    return Hnsw(index, read_ids(folder, meta.count, index.get_current_count()), meta)


def library() -> Any:
    """Import hnswlib, the one dependency that must be compiled.

    :raises InputError: it is not there.
    """
    try:
        import hnswlib
    except ImportError as error:
        fix = "install g++ and the headers of Python, then `make hnswlib` or `pip install hnswlib==0.8.0`"
        raise input_error("hnswlib", "no such package", "hnswlib 0.8.0", fix) from error
    return hnswlib


def _search(index: Any, query: Vectors, depth: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Search for `depth` results, or for as many as the graph leads to: hnswlib refuses to return fewer than asked."""
    found, least, most, asked = None, 0, depth, depth
    while least < most:
        try:
            found = index.knn_query(query, k=asked, num_threads=1)
            least = asked
        except RuntimeError:
            most = asked - 1
        asked = (least + most + 1) // 2
    if found is None:
        return np.zeros(0, np.int64), np.zeros(0, np.float32)
    return found[0][0].astype(np.int64), found[1][0]


def build_parser() -> argparse.ArgumentParser:
    """Options of this stage."""
    parser = cli.make_parser("cort.hnsw", __doc__)
    parser.add_argument("--passages", required=True, nargs="+", metavar="ARROW", help="embedding shards, all of them")
    parser.add_argument("--M", type=int, default=16, metavar="M", help="edges per passage and layer")
    parser.add_argument("--ef-construction", type=int, default=200, metavar="N", help="width of the search for edges")
    parser.add_argument("--output", required=True, metavar="FOLDER")
    return parser


def stage(args: argparse.Namespace) -> None:
    """Open the shards, build, put the folder in place."""
    if args.M not in CONNECTIONS:
        expected = f"{CONNECTIONS[0]} to {CONNECTIONS[-1]}"
        raise input_error("--M", str(args.M), expected, "give such a number")
    if args.ef_construction < 1:
        raise input_error("--ef-construction", str(args.ef_construction), "1 or more", "give a positive number")
    library()
    passages = open_shards(args.passages)
    with atomic_folder(args.output) as folder:
        meta = build(passages, folder, args.M, args.ef_construction)
    log.info("%d vectors of %d dimensions, %d MB", meta.count, meta.dimension, sum(meta.bytes.values()) // 1_000_000)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())
