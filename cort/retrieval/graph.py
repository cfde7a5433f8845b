"""What all kinds of graph index share: the files beside the graph and their checks, searches and rankings.

An index is a folder with the library's files, ids.arrow (id of each vector, in order) and meta.json, which says how it
was built and how large each file is. A search has a width: epsilon of an ONNG, ef of an HNSW index; a larger one finds
more and takes longer.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.formats.arrow import open_arrow
from cort.formats.embeddings import Shard, all_ids, all_vectors, from_batch, open_shards
from cort.formats.records import Ranking
from cort.formats.runs import order
from cort.retrieval.graphs import GRAPHS
from cort.system.errors import input_error
from cort.system.files import write_text

# Half-precision storage moves a unit vector's length by 0.0005 at most.
UNIT_TOLERANCE = 0.01
ROWS_CHECKED_AT_ONCE = 65_536
QUERIES_PER_BLOCK = 64
IDS = pa.schema([("id", pa.string())])
IDS_FILE, META_FILE = "ids.arrow", "meta.json"
FIX = "delete the index and build it again"

log = logging.getLogger(__name__)

Vectors = npt.NDArray[np.float32]
Matrix = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Meta:
    """What every index says of itself, beside the settings it was built with.

    :ivar model: fingerprint of the encoder.
    :ivar bytes: size of each file.
    """

    model: str
    count: int
    dimension: int
    bytes: Mapping[str, int]


class Found(NamedTuple):
    """What one search found: rows of the index, and their inner products with the query."""

    rows: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float64]


@dataclass(frozen=True)
class Graph(ABC):
    """An index that is open for searching: the library's own, the id of each row, and what it was built of."""

    index: Any
    ids: pa.Array
    meta: Meta

    @abstractmethod
    def search(self, query: Vectors, width: float, depth: int) -> Found:
        """Search one query in one thread; `depth` results at most, fewer where the graph leads to no more."""


def rank(index: Graph, queries: Sequence[Shard], width: float, depth: int, threads: int) -> Iterator[Ranking]:
    """Rank passages for each query, in the order of the queries; the results do not depend on `threads`."""
    batches = [from_batch(batch) for shard in queries for batch in shard.table.to_batches(QUERIES_PER_BLOCK)]
    blocks = [vectors for _, vectors in batches]
    processes = max(1, min(threads, len(blocks)))
    # NGT holds Python's lock while it searches. Forked processes share the index's memory.
    global _shared
    _shared = index
    work = partial(_search_block, width=width, depth=depth)
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("fork")) as pool:
        results = pool.map(work, blocks) if processes > 1 else map(work, blocks)
        for (query_ids, _), found in zip(batches, results, strict=True):
            for query_id, one in zip(query_ids.to_pylist(), found, strict=True):
                yield to_ranking(query_id, index.ids, one)


_shared: Graph


def _search_block(block: Matrix, width: float, depth: int) -> list[Found]:
    return [_shared.search(query, width, depth) for query in block.astype(np.float32)]


def to_ranking(query_id: str, ids: pa.Array, found: Found) -> Ranking:
    """Name the results of one search and order them by (-inner product, doc_id)."""
    doc_ids = ids.take(pa.array(found.rows)).to_pylist()
    by = order(doc_ids, found.scores)
    return Ranking(query_id, [doc_ids[position] for position in by], found.scores[by])


def open_passages(paths: Sequence[str]) -> list[Shard]:
    """Open the vectors that an index is to be built of.

    :raises InputError: there are none; one is not of length 1.
    """
    passages = open_shards(paths)
    if not any(len(shard.table) for shard in passages):
        raise input_error(passages[0].path, "no passage", "at least one", "encode the passages again")
    _refuse_other_lengths(passages)
    return passages


def blocks_of(passages: Sequence[Shard], rows: int, start: int = 0) -> Iterator[Vectors]:
    """Yield the vectors from row `start` on in blocks of `rows`, wherever the shards end; the last may be smaller."""
    table = pa.concat_tables([shard.table for shard in passages])
    for at in range(start, len(table), rows):
        yield all_vectors([replace(passages[0], table=table.slice(at, rows))])


def refuse_other_queries(queries: Sequence[Shard], meta: Meta, index: str | Path) -> None:
    """Check that the queries have the dimension of the index and length 1.

    :raises InputError: names the shard.
    """
    # Shards of one set have the same dimension.
    if queries[0].dimension != meta.dimension:
        found, expected = f"{queries[0].dimension} dimensions", f"{meta.dimension} as in {index}"
        raise input_error(queries[0].path, found, expected, "encode the queries again")
    _refuse_other_lengths(queries)


def _refuse_other_lengths(shards: Sequence[Shard]) -> None:
    """Check that all vectors have length 1, without which the angle does not order as the inner product does."""
    for shard in shards:
        # Piece by piece: a shard may be one batch of millions.
        for batch in shard.table.to_batches(ROWS_CHECKED_AT_ONCE):
            lengths = np.linalg.norm(from_batch(batch)[1].astype(np.float32), axis=1)
            wrong = lengths[~(np.abs(lengths - 1) <= UNIT_TOLERANCE)]
            if len(wrong):
                fix = "use exact retrieval for a model that does not normalise, or encode again"
                raise input_error(shard.path, f"a vector of length {wrong[0]:.4g}", "unit vectors", fix)


def complete_index(folder: Path, passages: Sequence[Shard], kind: str, how: Mapping[str, object]) -> None:
    """Write the id of each row beside the library's files, and what the index was built of.

    :param how: the settings it was built with.
    """
    ids = pa.table([all_ids(passages)], schema=IDS)
    with pa.OSFile(str(folder / IDS_FILE), "wb") as sink, pa.ipc.new_file(sink, IDS) as file:
        file.write_table(ids)
    sizes = {name: (folder / name).stat().st_size for name in (*GRAPHS[kind].files, IDS_FILE)}
    count, dimension = len(ids), passages[0].dimension
    meta = {"model": passages[0].model, "count": count, "dimension": dimension, **how, "bytes": sizes}
    write_text(folder / META_FILE, json.dumps(meta, indent=2) + "\n")
    log.info("%d vectors of %d dimensions, %d MB", count, dimension, sum(sizes.values()) // 1_000_000)


def read_meta(folder: Path, kind: str) -> Meta:
    """Read what an index was built of, and check that its files are as they were written.

    :raises InputError: when a file is missing or not as it was written, or the index is of another kind.
    """
    path = folder / META_FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        names = [field.name for field in fields(Meta)]
        if set(found) != {*names, *GRAPHS[kind].settings}:
            raise ValueError(f"the fields {', '.join(found)}")
        meta = Meta(**{name: found[name] for name in names})
        sizes = meta.bytes.items()
    except (ValueError, TypeError, AttributeError) as error:
        raise input_error(path, f"({error})", f"what `{kind}` wrote", FIX) from error
    for name, size in sizes:
        file = folder / name
        if not file.exists() or file.stat().st_size != size:
            found = f"{file.stat().st_size} bytes" if file.exists() else "no such file"
            raise input_error(file, found, f"{size} bytes", FIX)
    return meta


def read_ids(folder: Path, count: int, vectors: int) -> pa.Array:
    """Read the id of each row.

    :param count: rows the index was built of; `vectors` is how many its graph has.
    :raises InputError: when these differ.
    """
    ids = open_arrow(folder / IDS_FILE, "list of ids", FIX)["id"].combine_chunks()
    if not len(ids) == vectors == count:
        raise input_error(folder, f"{len(ids)} ids and {vectors} vectors", f"{count} of each", FIX)
    return ids
