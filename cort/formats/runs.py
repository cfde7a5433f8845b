"""TREC run files: ``query_id Q0 doc_id rank score tag``, one ranking per query, best first.

What is written has strictly decreasing scores in single precision, so that trec_eval (which ignores the rank column and
orders by score, then by descending doc id), pytrec_eval and the official MS MARCO script see the same order.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from cort.errors import input_error, shorten
from cort.files import atomic_file
from cort.formats.lines import BYTE_ORDER_MARK, iter_lines
from cort.records import Ranking

COLUMNS = ("query_id", "q0", "doc_id", "rank", "score", "tag")
ROWS_PER_BLOCK = 500_000


@dataclass(frozen=True)
class Run:
    """The rankings of many queries, in columns.

    `query_ids[i]` has the results ``offsets[i]`` to ``offsets[i + 1]`` of `doc_ids` and `scores`, by (-score, doc_id).
    """

    query_ids: list[str]
    offsets: npt.NDArray[np.int64]
    doc_ids: pa.Array
    scores: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.query_ids)

    def __iter__(self) -> Iterator[Ranking]:
        for position, query_id in enumerate(self.query_ids):
            start, end = int(self.offsets[position]), int(self.offsets[position + 1])
            yield Ranking(query_id, self.doc_ids.slice(start, end - start).to_pylist(), self.scores[start:end])

    def by_query(self) -> RunByQuery:
        """Access by query id."""
        return RunByQuery(self)


class RunByQuery:
    """A run looked up by query id; a query without results has an empty ranking."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._position = {query_id: position for position, query_id in enumerate(run.query_ids)}

    def __getitem__(self, query_id: str) -> list[str]:
        position = self._position.get(query_id)
        if position is None:
            return []
        start, end = int(self._run.offsets[position]), int(self._run.offsets[position + 1])
        doc_ids: list[str] = self._run.doc_ids.slice(start, end - start).to_pylist()
        return doc_ids


def order(doc_ids: npt.NDArray[np.object_] | Sequence[str], scores: npt.NDArray[np.floating]) -> npt.NDArray[np.intp]:
    """Positions that sort one ranking by (-score, doc_id)."""
    return np.lexsort((np.asarray(doc_ids, dtype=object).astype(str), -np.asarray(scores)))


def alphabetic_codes(ids: pa.Array) -> npt.NDArray[np.int64]:
    """Give equal ids equal numbers that sort as the strings, in the order of their bytes, do."""
    encoded = pc.dictionary_encode(ids)
    place = np.empty(len(encoded.dictionary), dtype=np.int64)
    place[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(place))
    codes: npt.NDArray[np.int64] = place[encoded.indices.to_numpy()]
    return codes


def strictly_decreasing(scores: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    """Lower tied scores of one non-increasing ranking by the fewest single-precision steps that make it strict."""
    bits = np.asarray(scores, dtype=np.float32).view(np.int32).astype(np.int64)
    # A monotone map from floats to integers: neighbouring floats become neighbouring integers.
    keys = np.where(bits < 0, np.int64(-(2**31)) - bits, bits)
    index = np.arange(len(keys))
    keys = np.minimum.accumulate(keys + index) - index
    lowered = np.where(keys < 0, np.int64(-(2**31)) - keys, keys)
    return lowered.astype(np.int32).view(np.float32)


def write_run(path: str | Path, rankings: Iterable[Ranking], tag: str) -> int:
    """Write rankings (each sorted, best first) atomically; the number of lines written.

    Scores become strictly decreasing single-precision numbers. An empty ranking writes no line.
    """
    lines = 0
    options = pa.csv.WriteOptions(include_header=False, delimiter=" ", quoting_style="none")
    with atomic_file(path) as temporary, open(temporary, "wb") as handle:
        for block in _blocks(rankings):
            table = _block_table(block, tag)
            pa.csv.write_csv(table, handle, options)
            lines += table.num_rows
    return lines


def _blocks(rankings: Iterable[Ranking]) -> Iterator[list[Ranking]]:
    block: list[Ranking] = []
    rows = 0
    for ranking in rankings:
        if len(ranking.doc_ids) == 0:
            continue
        block.append(ranking)
        rows += len(ranking.doc_ids)
        if rows >= ROWS_PER_BLOCK:
            yield block
            block, rows = [], 0
    if block:
        yield block


def _block_table(block: list[Ranking], tag: str) -> pa.Table:
    lengths = [len(ranking.doc_ids) for ranking in block]
    queries = pa.array([ranking.query_id for ranking in block], pa.string())
    repeat = pa.array(np.repeat(np.arange(len(block)), lengths))
    rows = sum(lengths)
    return pa.table(
        {
            "query_id": queries.take(repeat),
            "q0": pa.repeat("Q0", rows),
            "doc_id": pa.array(list(itertools.chain.from_iterable(ranking.doc_ids for ranking in block)), pa.string()),
            "rank": pa.array(np.concatenate([np.arange(1, length + 1) for length in lengths])),
            "score": pa.array(np.concatenate([strictly_decreasing(ranking.scores) for ranking in block])),
            "tag": pa.repeat(tag, rows),
        }
    )


def read_run(path: str | Path) -> Run:
    """Read and check a run file (plain or .gz): fields, finite scores, no document twice in one ranking."""
    table = _read_fields(path)
    scores = table["score"].combine_chunks().to_numpy()
    bad = np.flatnonzero(~np.isfinite(scores))
    if len(bad):
        row = int(bad[0])
        raise input_error(path, f"the score {scores[row]}", "a finite number", "mend or drop the line", row + 1)
    encoded = pc.dictionary_encode(table["query_id"].combine_chunks())
    queries = encoded.indices.to_numpy().astype(np.int64)
    doc_ids = table["doc_id"].combine_chunks()
    docs = alphabetic_codes(doc_ids)
    _refuse_duplicates(path, queries, docs, table)
    by = np.lexsort((docs, -scores, queries))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(queries, minlength=len(encoded.dictionary)))])
    return Run(encoded.dictionary.to_pylist(), offsets.astype(np.int64), doc_ids.take(pa.array(by)), scores[by])


def _refuse_duplicates(
    path: str | Path, queries: npt.NDArray[np.int64], docs: npt.NDArray[np.int64], table: pa.Table
) -> None:
    pairs = queries * (int(docs.max(initial=0)) + 1) + docs
    by = np.argsort(pairs, kind="stable")
    repeated = by[1:][pairs[by][1:] == pairs[by][:-1]]
    if len(repeated):
        row = int(repeated.min())
        doc_id, query_id = table["doc_id"][row].as_py(), table["query_id"][row].as_py()
        raise input_error(
            path,
            f"document {shorten(doc_id)} again in the ranking of query {shorten(query_id)}",
            "each document once per query",
            "drop the line",
            row + 1,
        )


def _read_fields(path: str | Path) -> pa.Table:
    convert = pa.csv.ConvertOptions(
        column_types={name: pa.float64() if name == "score" else pa.string() for name in COLUMNS},
        include_columns=["query_id", "doc_id", "score"],
        strings_can_be_null=False,
        null_values=[],
    )
    try:
        with open(path, "rb") as handle:
            head = _head(handle, path)
            # The fast parser takes exactly one kind of separator and no surprises; all else goes line by line.
            if b"\r" in head or head.startswith(BYTE_ORDER_MARK):
                return _read_fields_slowly(path)
            separator = "\t" if b"\t" in head else " "
            compression = "gzip" if str(path).endswith(".gz") else None
            table = pa.csv.read_csv(
                pa.CompressedInputStream(handle, compression) if compression else handle,
                read_options=pa.csv.ReadOptions(column_names=list(COLUMNS), block_size=16 << 20),
                parse_options=pa.csv.ParseOptions(delimiter=separator, quote_char=False, ignore_empty_lines=False),
                convert_options=convert,
            )
    except (pa.ArrowInvalid, OSError, zlib.error):
        if not Path(path).exists():
            raise
        return _read_fields_slowly(path)
    if table.num_rows and not _looks_clean(table):
        return _read_fields_slowly(path)
    return table


def _head(handle: IO[bytes], path: str | Path) -> bytes:
    """Peek at the first text bytes, plain or gzipped."""
    head = handle.read(65_536)
    handle.seek(0)
    return zlib.decompressobj(wbits=31).decompress(head, 65_536) if str(path).endswith(".gz") else head


def _looks_clean(table: pa.Table) -> bool:
    return not any(
        pc.any(pc.match_substring_regex(table[name], r"[\s\x{FEFF}]|^$")).as_py() for name in ("query_id", "doc_id")
    )


def _read_fields_slowly(path: str | Path) -> pa.Table:
    columns: tuple[list[str], list[str], list[float]] = ([], [], [])
    for row, line in iter_lines(path):
        fields = line.split()
        if len(fields) != len(COLUMNS):
            raise input_error(
                path,
                f"{len(fields)} fields",
                "the 6 fields `query_id Q0 doc_id rank score tag`",
                "mend the line",
                row,
            )
        try:
            score = float(fields[4])
        except ValueError:
            raise input_error(path, f"the score {shorten(fields[4])}", "a number", "mend the line", row) from None
        columns[0].append(fields[0])
        columns[1].append(fields[2])
        columns[2].append(score)
    types = (pa.string(), pa.string(), pa.float64())
    return pa.table(
        [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)],
        names=["query_id", "doc_id", "score"],
    )
