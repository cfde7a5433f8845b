"""What builds of graph indexes have in common: nodes, blocks of vectors, and the files beside the library's.

`cort/retrieval/graph_search.py` describes the files.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from cort.formats.shards import all_ids, open_shards
from cort.formats.tables import arrow_writer
from cort.retrieval.graph_search import IDS, unit_lengths
from cort.retrieval.index_meta import write_meta
from cort.retrieval.indexes import IDS_FILE
from cort.retrieval.rankings import Rows, Vectors
from cort.retrieval.vectors import PassageVectors
from cort.runtime.errors import input_error
from cort.runtime.progress import track

# Vectors added at a time. Changes an HNSW graph. NGT links 200 at a time: multiples of that change no ONNG.
ADDED_AT_ONCE = 20_000

log = logging.getLogger(__name__)


def nodes_of(paths: Sequence[str], *, zeros: bool) -> tuple[PassageVectors, Rows]:
    """Open the vectors to build an index from, and list the rows of its nodes; zero vectors are nodes only if `zeros`.

    :raises InputError: if there are none, or one has another length than 1 or 0.
    """
    vectors = PassageVectors(open_shards(paths))
    lengths = unit_lengths(vectors)
    rows = np.arange(len(lengths)) if zeros else np.flatnonzero(lengths)
    if not len(rows):
        found, fix = ("no passage", "zero vectors alone")[len(lengths) > 0], "use another encoder"
        raise input_error(paths[0], found, "at least one passage, of length 1", fix)
    return vectors, rows


def blocks(vectors: PassageVectors, rows: Rows, done: int) -> Iterator[Vectors]:
    """Yield the vectors of the nodes from number `done` on, `ADDED_AT_ONCE` at a time, across shards."""
    starts = range(done, len(rows), ADDED_AT_ONCE)
    blocks = (vectors[rows[start : start + ADDED_AT_ONCE]].astype(np.float32) for start in starts)
    return track(blocks, len(rows), "vectors added", done, len)


def complete(folder: Path, kind: str, vectors: PassageVectors, rows: Rows, how: Mapping[str, int | str]) -> None:
    """Write ids.arrow and meta.json beside the library's files.

    :param how: the settings of the index.
    """
    ids = all_ids(vectors.passages)
    if len(rows) < len(ids):
        ids = ids.filter(pa.array(np.isin(np.arange(len(ids)), rows)))
    with arrow_writer(folder / IDS_FILE, IDS) as file:
        file.write_table(pa.table([ids], ["id"]).cast(IDS))
    meta = write_meta(folder, kind, vectors, len(rows), how)
    log.info("%d vectors of %d dimensions, %d MB", len(rows), meta.dimension, sum(meta.bytes.values()) // 1_000_000)
