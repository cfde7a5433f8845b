"""What all kinds of graph index share: the files beside the graph and their checks, searches and rankings.

An index is a folder with the library's files, ids.arrow (id of each vector, in order) and meta.json, which says how it
was built and how large each file is. A search has a width: epsilon of an ONNG, ef of an HNSW index; a larger one finds
more and takes longer.
"""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.formats.embeddings import Shard, all_ids
from cort.formats.records import Ranking
from cort.formats.runs import order
from cort.formats.tables import open_arrow
from cort.retrieval.graphs import GRAPHS
from cort.system.errors import InputError, input_error
from cort.system.files import write_text

# Half-precision storage moves a unit vector's length by 0.0005 at most.
UNIT_TOLERANCE = 0.01
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


class Timed(NamedTuple):
    """What one search found, and the seconds it took."""

    found: Found
    seconds: float


@dataclass(frozen=True)
class Graph(ABC):
    """An index that is open for searching: the library's own, the id of each row, and what it was built of."""

    index: Any
    ids: pa.Array
    meta: Meta

    #: size of the blocks for `search_blocks`
    queries_per_block: ClassVar[int]

    @abstractmethod
    def search(self, query: Vectors, width: float, depth: int) -> Found:
        """Search one query in one thread; `depth` results at most, fewer where the graph leads to no more."""

    @abstractmethod
    def search_blocks(self, blocks: Sequence[Matrix], width: float, depth: int, threads: int) -> Iterator[Timed]:
        """Search every query of every block; the results do not depend on `threads`."""


def count_vectors(passages: Sequence[Shard]) -> int:
    """Count the vectors an index is to be built of.

    :raises InputError: there are none.
    """
    count: int = sum(shard.table.num_rows for shard in passages)
    if count == 0:
        raise input_error(passages[0].path, "no passage", "at least one", "encode the passages again")
    return count


def unit_blocks(passages: Sequence[Shard], rows: int, start: int = 0) -> Iterator[Vectors]:
    """Yield the vectors from row `start` on in blocks of `rows`, however they lie in shards; the last may have fewer.

    :raises InputError: for vectors not of length 1.
    """
    waiting: list[Vectors] = []
    held = 0
    for shard in passages:
        for _, vectors in shard.blocks():
            skipped = min(start, len(vectors))
            start -= skipped
            # Checked and converted piece by piece: a shard may be one block of millions.
            for at in range(skipped, len(vectors), rows):
                piece = vectors[at : at + rows]
                refuse_other_lengths(piece, shard.path)
                waiting.append(piece.astype(np.float32))
                held += len(piece)
                while held >= rows:
                    joined = np.concatenate(waiting)
                    yield joined[:rows]
                    waiting, held = [joined[rows:]], held - rows
    if held:
        yield np.concatenate(waiting)


def refuse_other_lengths(vectors: Matrix, source: str | Path) -> None:
    """Check that all vectors have length 1, without which the angle does not order as the inner product does.

    :raises InputError: with the first other length.
    """
    lengths = np.linalg.norm(vectors.astype(np.float32), axis=1)
    wrong = lengths[~(np.abs(lengths - 1) <= UNIT_TOLERANCE)]
    if len(wrong):
        fix = "use exact retrieval for a model that does not normalise, or encode again"
        raise input_error(source, f"a vector of length {wrong[0]:.4g}", "unit vectors", fix)


def refuse_other_queries(queries: Sequence[Shard], meta: Meta, index: str | Path) -> None:
    """Check that the queries have the dimension of the index and length 1.

    :raises InputError: names the shard.
    """
    for shard in queries:
        if shard.dimension != meta.dimension:
            found, expected = f"{shard.dimension} dimensions", f"{meta.dimension} as in {index}"
            raise input_error(shard.path, found, expected, "encode the queries again")
        for _, vectors in shard.blocks():
            refuse_other_lengths(vectors, shard.path)


def complete_index(folder: Path, passages: Sequence[Shard], kind: str, how: Mapping[str, object]) -> None:
    """Write the id of each row beside the library's files, and what the index was built of.

    :param how: the settings it was built with.
    """
    with pa.OSFile(str(folder / IDS_FILE), "wb") as sink, pa.ipc.new_file(sink, IDS) as file:
        file.write_table(pa.table([all_ids(passages)], schema=IDS))
    sizes = {name: (folder / name).stat().st_size for name in (*GRAPHS[kind].files, IDS_FILE)}
    count, dimension = count_vectors(passages), passages[0].dimension
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


def damaged(folder: Path, error: Exception) -> InputError:
    """Make the error for files that the library cannot read."""
    return input_error(folder, f"an index that cannot be read ({error})", "a whole one", FIX)


def to_ranking(query_id: str, ids: pa.Array, found: Found) -> Ranking:
    """Name the results of one search and order them by (-inner product, doc_id)."""
    doc_ids = ids.take(pa.array(found.rows)).to_pylist()
    by = order(doc_ids, found.scores)
    return Ranking(query_id, [doc_ids[position] for position in by], found.scores[by])


def query_blocks(queries: Sequence[Shard], rows: int) -> tuple[list[str], list[Matrix]]:
    """All query ids, and the vectors in blocks of at most `rows`, in the same order."""
    batches = [block for shard in queries for block in shard.blocks()]
    query_ids = [query_id for some, _ in batches for query_id in some.to_pylist()]
    blocks = [vectors[at : at + rows] for _, vectors in batches for at in range(0, len(vectors), rows)]
    return query_ids, blocks
