"""Tables that systems are compared by: the values of each query, and the mean recall at each depth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.formats import tables
from cort.formats.artifacts import csv_text, read_csv
from cort.runtime.errors import input_error, shorten
from cort.runtime.files import write_text


@dataclass(frozen=True)
class Values:
    """Per-query values of a system: ``values[i, j]`` is that of query i by measure j."""

    query_ids: list[str]
    measures: list[str]
    values: npt.NDArray[np.float64]


def write_values(path: str | Path, values: Mapping[str, Mapping[str, float]]) -> None:
    """Write query_id -> measure -> value as `tables.PER_QUERY`, in the order given."""
    rows = [(query_id, measure, value) for query_id, row in values.items() for measure, value in row.items()]
    tables.write_table(path, pa.table([*map(list, zip(*rows, strict=True))], schema=tables.PER_QUERY))


def read_values(path: str | Path) -> Values:
    """Read per-query values: every query has every measure, in one order."""
    table = tables.read_table(path, tables.PER_QUERY)
    query_ids, measures = (table[name].unique().to_pylist() for name in ("query_id", "measure"))
    return Values(query_ids, measures, table["value"].to_numpy().reshape(len(query_ids), -1))


def values_of(per_query: Mapping[str, Mapping[str, float]]) -> Values:
    """Arrange query_id -> measure -> value, of which there is at least one."""
    measures = [*next(iter(per_query.values()))]
    rows = [[row[measure] for measure in measures] for row in per_query.values()]
    return Values([*per_query], measures, np.array(rows, np.float64))


def check_named(names: Sequence[str], files: Mapping[str, Sequence[str]], kind: str = "system") -> None:
    """Check that each option in `files` names one file per system (or split), and that no name is repeated."""
    for option, paths in files.items():
        if len(paths) != len(names):
            fix = f"name a file for each {kind}, in their order"
            raise input_error(option, f"{len(paths)} files", f"{len(names)}, one per {kind}", fix)
    if repeated := [name for position, name in enumerate(names) if name in names[:position]]:
        raise input_error(f"--{kind}s", f"{shorten(repeated[0])} twice", f"each {kind} once", "drop one")


def refuse_unlike(files: Sequence[str | Path], values: Sequence[Values]) -> None:
    """Refuse systems that were not evaluated on the same queries by the same measures."""
    for path, system in zip(files, values, strict=True):
        for kind, attribute in {"queries": "query_ids", "measures": "measures"}.items():
            if (names := getattr(system, attribute)) != getattr(values[0], attribute):
                found = f"{len(names)} {kind} that differ from those of {files[0]}"
                fix = "measure all systems on the same split by the same measures"
                raise input_error(path, found, f"the same {kind} in the same order", fix)


def write_recall(path: str | Path, recall: Sequence[float]) -> None:
    """Write recall at depths 1, 2, ... in full precision."""
    write_text(path, csv_text(("depth", "recall"), enumerate(recall, start=1)))


def read_recall(path: str | Path) -> list[float]:
    """Read recall at depths 1, 2, ..."""
    return [float(row["recall"]) for row in read_csv(path)]
