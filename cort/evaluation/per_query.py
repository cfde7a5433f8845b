"""Values of every query by every measure (a table), and recall at every depth (CSV), written and read."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from cort.evaluation.significance import Matrix
from cort.formats import tables
from cort.system.errors import input_error
from cort.system.files import write_text

REBUILD = "delete the file and build it again"


@dataclass(frozen=True)
class Values:
    """What a system reaches: ``values[i, j]`` is that of query i by measure j."""

    query_ids: list[str]
    measures: list[str]
    values: Matrix


def write_values(path: str | Path, values: Mapping[str, Mapping[str, float]]) -> None:
    """Write query_id -> measure -> value as `tables.PER_QUERY`, in the order given."""
    rows = [(query_id, measure, value) for query_id, row in values.items() for measure, value in row.items()]
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    tables.write_table(path, pa.table(columns, schema=tables.PER_QUERY))


def read_values(path: str | Path) -> Values:
    """Read per-query values and check that every query has every measure."""
    table = tables.read_table(path, tables.PER_QUERY)
    queries, measures = (table[name].combine_chunks().dictionary_encode() for name in ("query_id", "measure"))
    shape = len(queries.dictionary), len(measures.dictionary)
    rows = np.arange(table.num_rows)
    whole = table.num_rows == shape[0] * shape[1] > 0
    if not whole or (queries.indices.to_numpy() * shape[1] + measures.indices.to_numpy() != rows).any():
        raise input_error(path, f"{table.num_rows} rows", "every measure of every query, in one order", REBUILD)
    values = table["value"].to_numpy().reshape(shape)
    return Values(queries.dictionary.to_pylist(), measures.dictionary.to_pylist(), values)


def write_recall(path: str | Path, recall: Sequence[float]) -> None:
    """Write recall at depths 1, 2, ... with every digit."""
    write_text(path, "depth,recall\n" + "".join(f"{depth},{value!r}\n" for depth, value in enumerate(recall, start=1)))


def read_recall(path: str | Path) -> list[float]:
    """Read recall at depths 1, 2, ..."""
    with open(path, newline="", encoding="utf-8") as handle:
        rows = list(csv.reader(handle))
    try:
        if rows[:1] != [["depth", "recall"]] or [int(row[0]) for row in rows[1:]] != list(range(1, len(rows))):
            raise ValueError
        return [float(row[1]) for row in rows[1:]]
    except (ValueError, IndexError):
        raise input_error(path, "another table", "the columns depth and recall, depths from 1 on", REBUILD) from None
