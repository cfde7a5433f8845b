"""Input and files of all kinds of graph index, and their checks.

An index is a folder with the library's files, ids.arrow (the id of each vector, in order) and meta.json, which records
how it was built and the size of each file.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.formats.artifacts import read_json, write_artifact
from cort.formats.shards import Shard, all_ids, all_vectors, count_rows, from_batch, open_shards
from cort.formats.tables import arrow_writer
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

log = logging.getLogger(__name__)

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Meta:
    """What an index was built from, and the sizes of its files; `model` is the fingerprint of the encoder."""

    model: str
    count: int
    dimension: int
    bytes: dict[str, int]


def open_passages(paths: Sequence[str]) -> list[Shard]:
    """Open the vectors to build an index from.

    :raises InputError: if there are none, or one has another length than 1 or 0.
    """
    passages = open_shards(paths)
    if not count_rows(passages):
        raise input_error(passages[0].path, "no passage", "at least one", "encode the passages again")
    _refuse_other_lengths(passages)
    return passages


def without_zeros(passages: Sequence[Shard]) -> list[Shard]:
    """Leave out vectors that are zero, as NGT does silently, which moves the rows of the others.

    :raises InputError: if there are no others.
    """
    left = []
    for shard in passages:
        batches = shard.table.to_batches(ROWS_CHECKED_AT_ONCE)
        kept = [(batch, from_batch(batch)[1].any(axis=1)) for batch in batches]
        # Filtering copies vectors.
        batches = [batch if mask.all() else batch.filter(pa.array(mask)) for batch, mask in kept]
        left.append(replace(shard, table=pa.Table.from_batches(batches, shard.table.schema)))
    if not count_rows(left):
        fix = "use exact retrieval, or another encoder"
        raise input_error(passages[0].path, "zero vectors alone", "vectors of length 1", fix)
    return left


def blocks_of(passages: Sequence[Shard], rows: int, start: int = 0) -> Iterator[Vectors]:
    """Yield the vectors from row `start` on in blocks of `rows` rows, across shards; the last may be smaller."""
    table = pa.concat_tables([shard.table for shard in passages])
    for at in range(start, len(table), rows):
        yield all_vectors([replace(passages[0], table=table.slice(at, rows))])


def refuse_other_queries(queries: Sequence[Shard], meta: Meta, index: str | Path) -> None:
    """Refuse queries of another dimension than the index, or of another length than 1 or 0."""
    # All shards of a set have the same dimension.
    if queries[0].dimension != meta.dimension:
        found, expected = f"{queries[0].dimension} dimensions", f"{meta.dimension} as in {index}"
        raise input_error(queries[0].path, found, expected, "encode the queries again")
    _refuse_other_lengths(queries)


def _refuse_other_lengths(shards: Sequence[Shard]) -> None:
    """Refuse vectors neither of length 1 nor zero: angle and inner product would rank them differently."""
    for shard in shards:
        # A shard may be a single batch of millions.
        for batch in shard.table.to_batches(ROWS_CHECKED_AT_ONCE):
            lengths = np.linalg.norm(from_batch(batch)[1].astype(np.float32), axis=1)
            wrong = lengths[~((np.abs(lengths - 1) <= UNIT_TOLERANCE) | (lengths == 0))]
            if len(wrong):
                fix = "use exact retrieval for a model that does not normalise, or encode again"
                raise input_error(shard.path, f"a vector of length {wrong[0]:.4g}", "unit vectors", fix)


def complete_index(folder: Path, passages: Sequence[Shard], kind: str, how: Mapping[str, object]) -> None:
    """Write ids.arrow and meta.json beside the library's files.

    :param how: the settings of the index.
    """
    ids = pa.table([all_ids(passages)], ["id"]).cast(IDS)
    with arrow_writer(folder / IDS_FILE, IDS) as file:
        file.write_table(ids)
    sizes = {name: (folder / name).stat().st_size for name in (*GRAPHS[kind].files, IDS_FILE)}
    count, dimension = len(ids), passages[0].dimension
    meta = {"model": passages[0].model, "count": count, "dimension": dimension, **how, "bytes": sizes}
    write_artifact(folder / META_FILE, meta)
    log.info("%d vectors of %d dimensions, %d MB", count, dimension, sum(sizes.values()) // 1_000_000)


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
