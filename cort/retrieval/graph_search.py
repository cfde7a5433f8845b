"""Searches in graph indexes: ONNG (Iwasaki & Miyazaki, 2018) with NGT, HNSW (Malkov & Yashunin, 2018) with hnswlib.

The width of a search is the epsilon of an ONNG, or the ef of an HNSW index; wider searches find more and take longer.

An index is a folder with the library's files, ids.arrow (the id of each vector, in order) and meta.json, which records
how it was built and the size of each file.
"""

import multiprocessing
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats.artifacts import read_json
from cort.formats.records import Integers, Ranking
from cort.formats.runs import order
from cort.formats.shards import Shard, from_batch
from cort.formats.tables import open_arrow, refuse_damage
from cort.retrieval.graphs import GRAPHS
from cort.runtime.errors import input_error, shorten

# Half-precision storage moves a unit vector's length by 0.0005 at most.
UNIT_TOLERANCE = 0.01
ROWS_CHECKED_AT_ONCE = 65_536
IDS = pa.schema({"id": "string"})
IDS_FILE, META_FILE = "ids.arrow", "meta.json"
# The distance of HNSW: 1 - inner product.
HNSW_SPACE = "ip"
FIX = "delete the index and build it again"
QUERIES_PER_BLOCK = 64

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Meta:
    """What an index was built from, and the sizes of its files; `model` is the fingerprint of the encoder."""

    model: str
    count: int
    dimension: int
    bytes: dict[str, int]


class Found(NamedTuple):
    """Results of one search: rows of the index, and their inner products with the query."""

    rows: Integers
    scores: npt.NDArray[np.float64]


@dataclass(frozen=True)
class Graph(ABC):
    """An open index: the library's own index, the id of each row, and meta.json."""

    index: Any
    ids: pa.Array
    meta: Meta

    @staticmethod
    @abstractmethod
    def load(folder: Path, dimension: int) -> tuple[Any, int]:
        """Open the library's own index; return it and its number of vectors."""

    @abstractmethod
    def search(self, query: Vectors, width: float, depth: int) -> Found:
        """Search for one query in one thread; return at most `depth` results, fewer if no more can be reached."""

    def first(self, depth: int) -> Found:
        """Take passages by doc_id, as exact search does for a query whose vector is zero: all scores are 0."""
        rows = pc.select_k_unstable(self.ids, min(depth, len(self.ids)), [("id", "ascending")]).to_numpy()
        return Found(rows.astype(np.int64), np.zeros(len(rows)))


class Onng(Graph):
    """The width of a search is epsilon."""

    @staticmethod
    def load(folder: Path, dimension: int) -> tuple[Any, int]:
        """Open NGT's index."""
        import ngtpy

        index = ngtpy.Index(str(folder), read_only=True, log_disabled=True)
        return index, index.get_num_of_objects()

    def search(self, query: Vectors, width: float, depth: int) -> Found:
        """Follow edges to passages within (1 + width) times the distance of the last result so far.

        Scores are computed from the index's distances (1 - d^2 / 2 for unit vectors).
        """
        if not query.any():
            return self.first(depth)
        pairs = self.index.search(query, size=depth, epsilon=width)
        rows, distances = zip(*pairs, strict=True) if pairs else ((), ())
        return Found(np.array(rows, dtype=np.int64), 1.0 - np.array(distances, dtype=np.float64) ** 2 / 2)


class Hnsw(Graph):
    """The width of a search is ef, the number of results it keeps."""

    @staticmethod
    def load(folder: Path, dimension: int) -> tuple[Any, int]:
        """Open hnswlib's index."""
        (file,) = GRAPHS["hnsw"].files
        index = library().Index(space=HNSW_SPACE, dim=dimension)
        index.load_index(str(folder / file))
        return index, index.get_current_count()

    def search(self, query: Vectors, width: float, depth: int) -> Found:
        """Keep the best `width` passages found so far, and stop when none of them has a better neighbour."""
        if not query.any():
            return self.first(depth)
        self.index.set_ef(int(width))
        results = np.zeros((1, 0), np.int64), np.zeros((1, 0), np.float32)
        least, most = 0, min(depth, self.meta.count)
        k = most
        # hnswlib fails if it reaches fewer than k passages: bisect for the most that it can reach.
        while least < most:
            try:
                results = self.index.knn_query(query, k=k, num_threads=1)
                least = k
            except RuntimeError:
                most = k - 1
            k = (least + most + 1) // 2
        (rows,), (distances,) = results
        return Found(rows.astype(np.int64), 1.0 - distances.astype(np.float64))


KINDS: Mapping[str, type[Graph]] = {"onng": Onng, "hnsw": Hnsw}


def open_index(kind: str, folder: str | Path) -> Graph:
    """Open an index for searching.

    :raises InputError: if a file is missing or damaged, or the library is not installed.
    """
    folder = Path(folder)
    meta = read_meta(folder, kind)
    try:
        index, vectors = KINDS[kind].load(folder, meta.dimension)
    except (RuntimeError, TypeError, MemoryError) as error:
        files = GRAPHS[kind].files
        place = folder / files[0] if len(files) == 1 else folder
        raise input_error(place, f"an index that cannot be read ({error})", "a complete index", FIX) from error
    ids = _read_ids(folder / IDS_FILE)
    if not len(ids) == vectors == meta.count:
        raise input_error(folder, f"{len(ids)} ids and {vectors} vectors", f"{meta.count} of each", FIX)
    return KINDS[kind](index, ids, meta)


def _read_ids(path: Path) -> pa.Array:
    with refuse_damage(path, "list of ids", FIX):
        table = open_arrow(path, "list of ids", FIX)
        if table.schema != IDS:
            raise pa.ArrowInvalid(f"columns {', '.join(table.schema.names)}")
        return table["id"].combine_chunks()


def rank(index: Graph, queries: Sequence[Shard], width: float, depth: int, threads: int) -> Iterator[Ranking]:
    """Rank passages for each query, in the order of the queries; results do not depend on `threads`."""
    batches = [from_batch(batch) for shard in queries for batch in shard.table.to_batches(QUERIES_PER_BLOCK)]
    blocks = [vectors for _, vectors in batches]
    processes = max(1, min(threads, len(blocks)))
    # NGT holds Python's lock while it searches, hence processes. Forked ones share the memory of the index.
    global _shared
    _shared = index
    work = partial(_search_block, width=width, depth=depth)
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("fork")) as pool:
        results = pool.map(work, blocks) if processes > 1 else map(work, blocks)
        for (query_ids, _), block in zip(batches, results, strict=True):
            for query_id, found in zip(query_ids.to_pylist(), block, strict=True):
                yield to_ranking(query_id, index.ids, found)


_shared: Graph


def _search_block(block: npt.NDArray[np.floating], width: float, depth: int) -> list[Found]:
    return [_shared.search(query, width, depth) for query in block.astype(np.float32)]


def to_ranking(query_id: str, ids: pa.Array, found: Found) -> Ranking:
    """Look up the doc_ids of a search's results and order them by (-inner product, doc_id)."""
    doc_ids = ids.take(found.rows).to_pylist()
    by = order(doc_ids, found.scores)
    return Ranking(query_id, [doc_ids[position] for position in by], found.scores[by])


def refuse_other_queries(queries: Sequence[Shard], meta: Meta, index: str | Path) -> None:
    """Refuse queries of another dimension than the index, or of another length than 1 or 0."""
    # All shards of a set have the same dimension.
    if queries[0].dimension != meta.dimension:
        found, expected = f"{queries[0].dimension} dimensions", f"{meta.dimension} as in {index}"
        raise input_error(queries[0].path, found, expected, "encode the queries again")
    refuse_other_lengths(queries)


def refuse_other_lengths(shards: Sequence[Shard]) -> None:
    """Refuse vectors neither of length 1 nor zero: angle and inner product would rank them differently."""
    for shard in shards:
        # A shard may be a single batch of millions.
        for batch in shard.table.to_batches(ROWS_CHECKED_AT_ONCE):
            lengths = np.linalg.norm(from_batch(batch)[1].astype(np.float32), axis=1)
            wrong = lengths[~((np.abs(lengths - 1) <= UNIT_TOLERANCE) | (lengths == 0))]
            if len(wrong):
                fix = "use exact retrieval for a model that does not normalise, or encode again"
                raise input_error(shard.path, f"a vector of length {wrong[0]:.4g}", "unit vectors", fix)


def read_meta(folder: Path, kind: str) -> Meta:
    """Read meta.json, and check the sizes of the other files.

    :raises InputError: if a file is missing or has another size, or the index is of another kind.
    """
    path = folder / META_FILE
    node = read_json(path)
    if set(node.of(dict)) != {"model", "count", "dimension", *GRAPHS[kind].settings, "bytes"}:
        raise node.complain(f"the fields {shorten(', '.join(node.value))}", f"what `{kind}` wrote")
    meta: Meta = node.read(Meta)
    sizes = {name: node["bytes"][name].read(int) for name in (*GRAPHS[kind].files, IDS_FILE)}
    for name, size in sizes.items():
        check_size(folder / name, size)
    return meta


def check_size(file: Path, size: int | None) -> None:
    """Refuse a file of an index that is missing or not of the size that meta.json records."""
    found = f"{file.stat().st_size} bytes" if file.exists() else "no such file"
    if found != f"{size} bytes":
        raise input_error(file, found, f"{size} bytes", FIX)


def library() -> Any:
    """Import hnswlib, the one dependency that must be compiled; an `InputError` says if it is not installed."""
    try:
        import hnswlib
    except ImportError as error:
        fix = "install g++ and the headers of Python, then `make hnswlib` or `pip install hnswlib==0.8.0`"
        raise input_error("hnswlib", "no such package", "hnswlib 0.8.0", fix) from error
    return hnswlib
