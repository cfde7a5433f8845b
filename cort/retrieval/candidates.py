"""The pairs of a query and a passage that a re-ranker scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from cort.formats.runs import Run
from cort.runtime.errors import input_error

BY_IDS = [("query_id", "ascending"), ("doc_id", "ascending")]


def check_depths(runs: Sequence[str], depths: Sequence[int]) -> None:
    """Refuse options that do not have one depth for each run."""
    if len(depths) != len(runs):
        raise input_error("--depths", f"{len(depths)} numbers", f"{len(runs)}, one per run", "name as many")


def distinct_pairs(runs: Iterable[Run], depths: Iterable[int]) -> pa.Table:
    """Collect the distinct pairs within the top of each run, down to its depth, sorted by query and document id."""
    parts = []
    for run, depth in zip(runs, depths, strict=True):
        ids = pa.table({"query_id": run.ids_of_queries(), "doc_id": run.doc_ids})
        parts.append(ids.filter(run.ranks() <= depth))
    return _distinct(parts)


def pairs_of_triples(triples: pa.Table) -> pa.Table:
    """Collect the distinct pairs of a query with its positive or negative, sorted by query and document id."""
    names = ["query_id", "doc_id"]
    parts = [triples.select(["query_id", column]).rename_columns(names) for column in ("positive", "negative")]
    return _distinct(parts)


def _distinct(parts: list[pa.Table]) -> pa.Table:
    pairs = pa.concat_tables(parts).group_by(["query_id", "doc_id"], use_threads=False).aggregate([])
    return pairs.sort_by(BY_IDS)
