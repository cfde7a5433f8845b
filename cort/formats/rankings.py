"""Rankings as parquet, with the scores as they were computed: of parts of a collection, before they are a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats.records import Ranking
from cort.formats.tables import ROW_GROUP, SCORES, iter_batches, open_writer, regroup
from cort.system.errors import input_error


def write_rankings(path: str | Path, rankings: Iterable[Ranking]) -> int:
    """Write rankings atomically, one after the other; the number of rows written."""
    rows = 0
    with open_writer(path, SCORES) as writer:
        for table in regroup(map(_to_batch, rankings), ROW_GROUP):
            writer.write_table(table)
            rows += len(table)
    return rows


def _to_batch(ranking: Ranking) -> pa.RecordBatch:
    queries = pa.repeat(pa.scalar(ranking.query_id, pa.string()), len(ranking.doc_ids))
    return pa.record_batch([queries, pa.array(ranking.doc_ids, pa.string()), ranking.scores], schema=SCORES)


def iter_rankings(path: str | Path) -> Iterator[Ranking]:
    """Read rankings one at a time.

    :raises InputError: for scores that are not finite, and for a query that comes twice.
    """
    seen: set[str] = set()
    held: list[pa.RecordBatch] = []
    for batch in iter_batches(path, SCORES):
        if not np.isfinite(batch["score"].to_numpy()).all():
            raise input_error(path, "a score that is not finite", "numbers", "retrieve again")
        for part in _by_query(batch):
            if held and held[0]["query_id"][0] != part["query_id"][0]:
                yield _joined(path, held, seen)
                held = []
            held.append(part)
    if held:
        yield _joined(path, held, seen)


def _by_query(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch where the next query begins."""
    runs = pc.run_end_encode(batch["query_id"])
    start = 0
    for end in runs.run_ends.to_pylist():
        yield batch.slice(start, end - start)
        start = end


def _joined(path: str | Path, parts: list[pa.RecordBatch], seen: set[str]) -> Ranking:
    table = pa.Table.from_batches(parts)
    query_id = table["query_id"][0].as_py()
    if query_id in seen:
        raise input_error(path, f"query {query_id} twice", "the results of a query together", "retrieve again")
    seen.add(query_id)
    return Ranking(query_id, table["doc_id"].to_pylist(), table["score"].to_numpy())
