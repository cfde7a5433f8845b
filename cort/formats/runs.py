"""TREC run files: ``query_id Q0 doc_id rank score tag``, one ranking per query, best first.

What is written has strictly decreasing scores in single precision, so that trec_eval (which ignores the rank column and
orders by score, then by descending doc id), pytrec_eval and the official MS MARCO script see the same order.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from cort.formats.ids import MULTIPLIER, Words, hashes, is_plain, sort_keys
from cort.formats.lines import BYTE_ORDER_MARK, iter_lines
from cort.formats.records import Ranking
from cort.system.errors import input_error, shorten
from cort.system.files import atomic_file

COLUMNS = ("query_id", "q0", "doc_id", "rank", "score", "tag")
ROWS_PER_BLOCK = 100_000
CODED = pa.dictionary(pa.int32(), pa.string())
FIELDS = pa.schema([("query_id", CODED), ("doc_id", pa.string()), ("score", pa.float64())])
WRITE_OPTIONS = pa.csv.WriteOptions(include_header=False, delimiter=" ", quoting_style="none")
ROWS_PER_SORT = 10_000
# Of a file that is read; larger ones are not faster and take memory.
BYTES_PER_BLOCK = 4 << 20

Codes: TypeAlias = npt.NDArray[np.int32]


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

    def __getitem__(self, position: int) -> Ranking:
        start, end = int(self.offsets[position]), int(self.offsets[position + 1])
        doc_ids = self.doc_ids.slice(start, end - start).to_pylist()
        return Ranking(self.query_ids[position], doc_ids, self.scores[start:end])

    def __iter__(self) -> Iterator[Ranking]:
        return map(self.__getitem__, range(len(self)))

    def query_numbers(self) -> npt.NDArray[np.int64]:
        """Position in `query_ids` of the query of each result."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def ranks(self) -> npt.NDArray[np.int64]:
        """Rank of each result in its ranking, from 1."""
        return np.arange(1, len(self.doc_ids) + 1) - np.repeat(self.offsets[:-1], np.diff(self.offsets))

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
        return [] if position is None else self._run[position].doc_ids


def order(doc_ids: npt.NDArray[np.object_] | Sequence[str], scores: npt.NDArray[np.floating]) -> npt.NDArray[np.intp]:
    """Positions that sort one ranking by (-score, doc_id)."""
    return np.lexsort((np.asarray(doc_ids, dtype=object).astype(str), -np.asarray(scores)))


def strictly_decreasing(
    scores: npt.NDArray[np.floating], ranking: npt.NDArray[np.int64] | int = 0
) -> npt.NDArray[np.float32]:
    """Lower tied scores of one non-increasing ranking by the fewest single-precision steps that make it strict.

    :param ranking: for scores of several rankings, one after the other: the number of each score's ranking, from 0.
    """
    bits = np.asarray(scores, dtype=np.float32).view(np.int32).astype(np.int64)
    # A monotone map from floats to integers: neighbouring floats become neighbouring integers.
    keys = np.where(bits < 0, np.int64(-(2**31)) - bits, bits)
    # Each ranking begins below all that the one before it can have reached, so that it does not see it.
    index = np.arange(len(keys)) - np.left_shift(ranking, 34)
    keys = np.minimum.accumulate(keys + index) - index
    lowered = np.where(keys < 0, np.int64(-(2**31)) - keys, keys)
    return lowered.astype(np.int32).view(np.float32)


def write_run(path: str | Path, rankings: Iterable[Ranking], tag: str) -> int:
    """Write rankings (each sorted, best first) atomically; the number of lines written.

    Scores become strictly decreasing single-precision numbers. An empty ranking writes no line.
    """
    lines = 0
    with atomic_file(path) as temporary, open(temporary, "wb") as handle, ThreadPoolExecutor(1) as pool:
        writing: Future[None] | None = None
        # Arrow writes a block while Python makes the next one.
        for block in _blocks(rankings):
            table = _block_table(block, tag)
            lines += table.num_rows
            if writing is not None:
                writing.result()
            writing = pool.submit(pa.csv.write_csv, table, handle, WRITE_OPTIONS)
        if writing is not None:
            writing.result()
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
    number = np.repeat(np.arange(len(block)), lengths)
    rows = len(number)
    ranks = np.arange(1, rows + 1) - np.cumsum([0, *lengths[:-1]])[number]
    return pa.table(
        {
            "query_id": queries.take(pa.array(number)),
            "q0": pa.repeat("Q0", rows),
            "doc_id": pa.array(list(itertools.chain.from_iterable(ranking.doc_ids for ranking in block)), pa.string()),
            "rank": pa.array(ranks),
            "score": pa.array(strictly_decreasing(np.concatenate([one.scores for one in block]), number)),
            "tag": pa.repeat(tag, rows),
        }
    )


def read_run(path: str | Path, *, order_ties: bool = True) -> Run:
    """Read and check a run file (plain or .gz): fields, finite scores, no document twice in one ranking.

    :param order_ties: False leaves documents of equal scores as they stand in the file, for who does not ask.
    """
    table = _read_fields(path)
    scores = table["score"].combine_chunks().to_numpy()
    bad = np.flatnonzero(~np.isfinite(scores))
    if len(bad):
        row = int(bad[0])
        raise input_error(path, f"the score {scores[row]}", "a finite number", "fix or drop the line", row + 1)
    query_ids, queries = _encode(table["query_id"])
    doc_ids = table["doc_id"].combine_chunks()
    del table
    _refuse_duplicates(path, query_ids, queries, doc_ids)
    if not _is_falling(queries, scores):
        by = np.lexsort((-scores, queries))
        queries, scores, doc_ids = queries[by], scores[by], doc_ids.take(pa.array(by))
    offsets = np.searchsorted(queries, np.arange(len(query_ids) + 1)).astype(np.int64)
    return Run(query_ids, offsets, _order_ties(queries, scores, doc_ids) if order_ties else doc_ids, scores)


def _encode(column: pa.ChunkedArray) -> tuple[list[str], Codes]:
    """List the different ids in order of first mention, and the place of each row's id in the list."""
    encoded = column.unify_dictionaries().combine_chunks()
    # An empty table has no chunk, and a chunked array of none.
    if isinstance(encoded, pa.ChunkedArray):
        return [], np.empty(0, dtype=np.int32)
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()


def _is_falling(queries: Codes, scores: npt.NDArray[np.float64]) -> bool:
    """Whether the rows are grouped by query, in the order of the codes, with scores that never rise."""
    next_query = np.diff(queries)
    return bool(((next_query > 0) | ((next_query == 0) & (scores[1:] <= scores[:-1]))).all())


def _order_ties(queries: Codes, scores: npt.NDArray[np.float64], doc_ids: pa.Array) -> pa.Array:
    """Order documents of equal scores by their ids; the rows are grouped by query and sorted by score."""
    as_before = np.concatenate([[False], (queries[1:] == queries[:-1]) & (scores[1:] == scores[:-1]), [False]])
    tied = np.flatnonzero(as_before[1:] | as_before[:-1])
    if len(tied) == 0:
        return doc_ids
    group = np.cumsum(~as_before[tied], dtype=np.int32)
    keys = sort_keys(doc_ids.take(pa.array(tied)))
    # Small pieces, cut between groups, sort several times as fast as the whole.
    starts = np.searchsorted(group, group[::ROWS_PER_SORT])
    bounds = [*np.unique(starts).tolist(), len(tied)]
    places = np.arange(len(scores))
    for start, end in itertools.pairwise(bounds):
        places[tied[start:end]] = tied[start + np.lexsort((keys[start:end], group[start:end]))]
    return doc_ids.take(pa.array(places))


def _refuse_duplicates(path: str | Path, query_ids: Sequence[str], queries: Codes, doc_ids: pa.Array) -> None:
    """Check that no document stands twice in a ranking."""
    pairs = _pairs(queries, doc_ids)
    pairs.sort()
    repeated = pairs[1:][pairs[1:] == pairs[:-1]]
    if len(repeated) == 0:
        return
    suspects = np.flatnonzero(np.isin(_pairs(queries, doc_ids), repeated))
    seen: set[tuple[int, str]] = set()
    for row in suspects.tolist():
        pair = int(queries[row]), doc_ids[row].as_py()
        if pair in seen:
            found = f"document {shorten(pair[1])} again in the ranking of query {shorten(query_ids[pair[0]])}"
            raise input_error(path, found, "each document once per query", "drop the line", row + 1)
        seen.add(pair)


def _pairs(queries: Codes, doc_ids: pa.Array) -> Words:
    """Give equal pairs equal numbers, and, but for rare accidents, different ones to different pairs."""
    pairs = hashes(doc_ids)
    of_query = queries.astype(np.uint64)
    of_query *= MULTIPLIER
    pairs += of_query
    return pairs


def _read_fields(path: str | Path) -> pa.Table:
    kept = {"column_types": FIELDS, "include_columns": FIELDS.names}
    convert = pa.csv.ConvertOptions(**kept, strings_can_be_null=False, null_values=[])
    try:
        head = _head(path)
        # The fast parser takes exactly one kind of separator and no surprises; all else goes line by line.
        if b"\r" in head or head.startswith(BYTE_ORDER_MARK):
            return _read_fields_slowly(path)
        separator = "\t" if b"\t" in head else " "
        # Arrow's own files: what Python reads it would have to copy.
        with pa.OSFile(str(path)) as file:
            table = pa.csv.read_csv(
                pa.CompressedInputStream(file, "gzip") if str(path).endswith(".gz") else file,
                read_options=pa.csv.ReadOptions(column_names=list(COLUMNS), block_size=BYTES_PER_BLOCK),
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


def _head(path: str | Path) -> bytes:
    """Read the first text bytes, plain or gzipped."""
    with open(path, "rb") as handle:
        head = handle.read(65_536)
    return zlib.decompressobj(wbits=31).decompress(head, 65_536) if str(path).endswith(".gz") else head


def _looks_clean(table: pa.Table) -> bool:
    """Whether no id is empty or has white space or a byte order mark in it."""
    parts = [*(chunk.dictionary for chunk in table["query_id"].chunks), *table["doc_id"].chunks]
    return not any(
        not is_plain(part) and pc.any(pc.match_substring_regex(part, r"[\s\x{FEFF}]|^$")).as_py() for part in parts
    )


def _read_fields_slowly(path: str | Path) -> pa.Table:
    query_ids, doc_ids, scores = [], [], []
    for row, line in iter_lines(path):
        fields = line.split()
        if len(fields) != len(COLUMNS):
            expected = "the 6 fields `query_id Q0 doc_id rank score tag`"
            raise input_error(path, f"{len(fields)} fields", expected, "fix the line", row)
        try:
            scores.append(float(fields[4]))
        except ValueError:
            raise input_error(path, f"the score {shorten(fields[4])}", "a number", "fix the line", row) from None
        query_ids.append(fields[0])
        doc_ids.append(fields[2])
    return pa.table([query_ids, doc_ids, scores], schema=FIELDS)
