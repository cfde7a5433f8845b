"""TREC run files: ``query_id Q0 doc_id rank score tag``, one ranking per query, best first.

Written scores decrease strictly in single precision, so that trec_eval (which ignores the rank column and orders by
score, then by descending doc_id), pytrec_eval and the official MS MARCO script see the same order.

Rankings of a part of a collection are not yet a run: they are written as parquet, with their original scores.
"""

from __future__ import annotations

import itertools
import logging
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats.fields import NUMBER, BadLine, checked_id, checked_number, split_fields
from cort.formats.ids import joined, string_bytes
from cort.formats.lines import iter_lines, read_columns
from cort.formats.ordering import is_falling, ranked
from cort.formats.pairs import Pairs, find_repeated
from cort.formats.records import Integers, Ranking, in_blocks, offsets_of
from cort.runtime.errors import input_error, shorten
from cort.runtime.files import atomic_file

log = logging.getLogger(__name__)

Codes = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.float64]

COLUMNS = ("query_id", "Q0", "doc_id", "rank", "score", "tag")
# Those of ColBERT's rankings.
SCORED = ("query_id", "doc_id", "rank", "score")
CANDIDATES = ("query_id", "doc_id", "query", "passage")
CANDIDATE_IDS = pa.schema({"query_id": "string", "doc_id": "string"})
ROWS_PER_BLOCK = 100_000
# Anserini lowers each tied score by this much more than the one before.
STEP = 1e-6
CODED = pa.dictionary(pa.int32(), pa.string())
FIELDS = pa.schema({"query_id": CODED, "doc_id": "string", "rank": "float64", "score": "float64"})
# Also what `checked_number` refuses.
NUMERIC = re.compile(rf"{NUMBER.pattern}|[+-]?(nan|inf)", re.IGNORECASE)


@dataclass(frozen=True)
class Run:
    """The rankings of many queries, in columns.

    Query `query_ids[i]` has the results ``offsets[i]:offsets[i + 1]`` of `doc_ids` and `scores`, by (-score, doc_id).

    :ivar given_ranks: of a run with gaps, the rank of each result.
    """

    query_ids: list[str]
    offsets: Integers
    doc_ids: pa.Array
    scores: Numbers
    given_ranks: Integers | None = None

    @classmethod
    def of_sizes(cls, query_ids: list[str], sizes: npt.ArrayLike, doc_ids: pa.Array, scores: Numbers) -> Run:
        """Join results, given the number of each query."""
        return cls(query_ids, offsets_of(sizes), doc_ids, scores)

    def __len__(self) -> int:
        return len(self.query_ids)

    def __getitem__(self, position: int) -> Ranking:
        start, end = int(self.offsets[position]), int(self.offsets[position + 1])
        doc_ids = self.doc_ids.slice(start, end - start).to_pylist()
        return Ranking(self.query_ids[position], doc_ids, self.scores[start:end])

    def __iter__(self) -> Iterator[Ranking]:
        return map(self.__getitem__, range(len(self)))

    def query_numbers(self) -> Integers:
        """Return the position in `query_ids` of each result's query."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def ids_of_queries(self) -> pa.Array:
        """Return the query_id of each result."""
        return pa.array(self.query_ids, "string").take(self.query_numbers())

    def pairs(self) -> Pairs:
        """Return the query and the document of each result."""
        return Pairs(self.ids_of_queries(), self.doc_ids)

    def ranks(self) -> Integers:
        """Return the rank of each result in its ranking, from 1."""
        if self.given_ranks is not None:
            return self.given_ranks
        return np.arange(1, len(self.doc_ids) + 1) - np.repeat(self.offsets[:-1], np.diff(self.offsets))

    def filter(self, kept: npt.NDArray[np.bool_]) -> Run:
        """Keep some of the results; a query may have none left."""
        sizes = np.bincount(self.query_numbers()[kept], minlength=len(self))
        ranks = None if self.given_ranks is None else self.given_ranks[kept]
        return Run(self.query_ids, offsets_of(sizes), self.doc_ids.filter(pa.array(kept)), self.scores[kept], ranks)

    def select(self, query_ids: list[str], places: Integers) -> Run:
        """Take the rankings at some places, by new names; that at -1 is empty."""
        # The last offset has no ranking of its own.
        sizes = np.append(np.diff(self.offsets), 0)[places]
        starts = np.repeat(self.offsets[places] - offsets_of(sizes)[:-1], sizes)
        rows = starts + np.arange(len(starts))
        return Run.of_sizes(query_ids, sizes, self.doc_ids.take(rows), self.scores[rows])

    def by_query(self) -> RunByQuery:
        """Look up rankings by query_id."""
        return RunByQuery(self)


class RunByQuery:
    """A run looked up by query_id; a query without results has an empty ranking."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._position = {query_id: position for position, query_id in enumerate(run.query_ids)}

    def __getitem__(self, query_id: str) -> list[str]:
        return self.ranking(query_id).doc_ids

    def ranking(self, query_id: str) -> Ranking:
        """Return the results of a query with their scores."""
        position = self._position.get(query_id)
        return Ranking(query_id, [], np.empty(0)) if position is None else self._run[position]


def top(run: Run, depth: int) -> Run:
    """Keep the first `depth` results of each query."""
    return run.filter(run.ranks() <= depth)


def strictly_decreasing(scores: npt.NDArray[np.floating], ranking: Integers | int = 0) -> npt.NDArray[np.float32]:
    """Lower tied scores of a non-increasing ranking by as few single-precision steps as make it strictly decreasing.

    For several concatenated rankings, `ranking` is the number of each score's ranking, from 0.
    """
    bits = np.asarray(scores, dtype=np.float32).view(np.int32).astype(np.int64)
    # Map floats to integers monotonically, adjacent floats to adjacent integers.
    keys = np.where(bits < 0, np.int64(-(2**31)) - bits, bits)
    # Each ranking starts below anything that the previous one can have reached, so that they do not interact.
    index = np.arange(len(keys)) - np.left_shift(ranking, 34)
    keys = np.minimum.accumulate(keys + index) - index
    lowered = np.where(keys < 0, np.int64(-(2**31)) - keys, keys)
    return lowered.astype(np.int32).view(np.float32)


def as_written(run: Run) -> Run:
    """Lower tied scores of non-increasing rankings as `write_runs` does, so that ties are measured as in a file."""
    return replace(run, scores=strictly_decreasing(run.scores, run.query_numbers()).astype(np.float64))


def write_run(
    path: str | Path, rankings: Iterable[Ranking], tag: str, change: Callable[[Run], Run] = lambda run: run
) -> int:
    """Write rankings (each sorted, best first) as `write_runs` does. An empty ranking has no line.

    :param change: drops results that should not be written.
    """
    filled = (ranking for ranking in rankings if len(ranking.doc_ids))
    blocks = in_blocks(filled, lambda ranking: len(ranking.doc_ids), ROWS_PER_BLOCK)
    return write_runs(path, map(change, map(run_of, blocks)), tag)


def write_runs(path: str | Path, runs: Iterable[Run], tag: str) -> int:
    """Write the rankings of some queries after those of others, atomically; return the number of lines.

    Scores become strictly decreasing single-precision numbers.

    :raises InputError: if the tag is not exactly one field.
    """
    try:
        checked_id("tag", tag)
    except BadLine as bad:
        found, expected, _ = bad.args
        raise input_error("--tag", found, expected, "choose another") from None
    lines = 0
    with atomic_file(path) as temporary, open(temporary, "wb") as handle, ThreadPoolExecutor(1) as pool:
        writing = pool.submit(lambda: None)
        # One thread writes a block while this one prepares the next.
        for run in (run for run in runs if len(run.doc_ids)):
            columns = _columns_of(run, tag)
            lines += len(columns[0])
            writing.result()
            writing = pool.submit(_write_lines, handle, columns)
        writing.result()
    return lines


def _write_lines(handle: BinaryIO, columns: Sequence[Any]) -> None:
    texts = [column.cast("string") if isinstance(column, pa.Array) else column for column in columns]
    lines, _ = string_bytes(pc.binary_join_element_wise(*texts, " "))
    handle.write(lines.data)


def run_of(rankings: Sequence[Ranking]) -> Run:
    """Join rankings, at least one, of different queries."""
    doc_ids = pa.array(itertools.chain.from_iterable(ranking.doc_ids for ranking in rankings), "string")
    offsets = offsets_of([len(ranking.doc_ids) for ranking in rankings])
    scores = np.concatenate([ranking.scores for ranking in rankings])
    return Run([ranking.query_id for ranking in rankings], offsets, doc_ids, scores)


def _columns_of(run: Run, tag: str) -> list[Any]:
    scores = pa.array(strictly_decreasing(run.scores, run.query_numbers()))
    return [run.ids_of_queries(), "Q0", run.doc_ids, pa.array(run.ranks()), scores, f"{tag}\n"]


def tag_of(path: str | Path) -> str | None:
    """Return the tag of a run, the last field of its first line; None for an empty run."""
    return next((line.split()[-1] for _, line in iter_lines(path) if line.strip()), None)


def read_run(path: str | Path, *, order_ties: bool = True, columns: Sequence[str] = COLUMNS, gaps: bool = False) -> Run:
    """Read a run file, plain or .gz; check that it has all fields, finite scores, and no document twice per query.

    A run without results is legal: its system found nothing for any query.

    :param order_ties: False saves time by leaving documents with equal scores in the order of the file.
    :param columns: or `SCORED`, where documents with equal scores are ordered by rank.
    :param gaps: whether results may have been left out, so that the ranks are those of the file.
    """
    by_rank = columns == SCORED
    table = read_columns(path, columns, FIELDS, partial(_parse, columns))
    if not table.num_rows:
        return Run([], np.zeros(1, dtype=np.int64), pa.array([], "string"), np.empty(0))
    ranks, scores = table["rank"].to_numpy(), table["score"].to_numpy()
    encoded = table["query_id"].unify_dictionaries().combine_chunks()
    query_ids: list[str] = encoded.dictionary.to_pylist()
    queries = encoded.indices.to_numpy()
    doc_ids = joined(table["doc_id"])
    del table
    refuse_repeated_documents(path, query_ids, queries, doc_ids)
    if by_rank or not is_falling(queries, scores):
        by = np.lexsort((*([ranks] if by_rank else []), -scores, queries))
        queries, scores, ranks, doc_ids = queries[by], scores[by], ranks[by], doc_ids.take(by)
    _compare_ranks(path, queries, scores, ranks, "rank" if by_rank else "doc_id")
    offsets = np.searchsorted(queries, np.arange(len(query_ids) + 1)).astype(np.int64)
    if order_ties and not by_rank:
        by = ranked(scores, doc_ids, queries)
        doc_ids, ranks = doc_ids.take(by), ranks[by]
    return Run(query_ids, offsets, doc_ids, scores, _rising(path, queries, ranks) if gaps else None)


def _rising(path: str | Path, queries: Codes, ranks: Numbers) -> Integers:
    """Return ranks as integers; refuse those that do not begin at 1 or more and rise within each ranking."""
    whole = np.nan_to_num(ranks).astype(np.int64)
    wrong = np.flatnonzero((whole < 1) | np.append(False, (queries[1:] == queries[:-1]) & (whole[1:] <= whole[:-1])))
    if len(wrong):
        found, expected = f"the rank {ranks[wrong[0]]:g}", "ranks that begin at 1 and rise as scores fall"
        raise input_error(path, found, expected, "read it with `import_run` first")
    return whole


def refuse_other_queries(first: str, run: Run, second: str, other: Run) -> None:
    """Refuse two runs without a common query, which are of different splits; an empty run may be of any."""
    if len(run) and len(other) and not set(run.query_ids) & set(other.query_ids):
        raise input_error(second, f"no query of {first}", "runs of the same split", "name two of one split")


def is_candidate(line: str) -> bool:
    """Whether a line is from one of MS MARCO's lists of candidates with texts, unless `is_scored`."""
    return line.count("\t") == len(CANDIDATES) - 1


def is_scored(line: str) -> bool:
    """Whether a line is from one of ColBERT's rankings."""
    fields = split_fields(line)
    return len(fields) == len(SCORED) and all(map(NUMERIC.fullmatch, fields[2:]))


def read_candidates(path: str | Path) -> pa.Table:
    """Read the ids of a list of candidates, in file order, without the texts, which are 20 times as large."""
    return read_columns(path, CANDIDATES, CANDIDATE_IDS, _parse_candidate, separators="\t")


def _parse_candidate(line: str) -> tuple[str, str]:
    if not is_candidate(line):
        expected = "the 4 fields `query_id TAB doc_id TAB query TAB passage`"
        raise BadLine(f"{line.count(chr(9)) + 1} fields", expected, "fix the line")
    query_id, doc_id, _, _ = line.split("\t")
    return checked_id("query_id", query_id), checked_id("doc_id", doc_id)


def _compare_ranks(path: str | Path, queries: Codes, scores: Numbers, ranks: Numbers, ties_by: str) -> None:
    """Warn of queries whose ranks contradict their scores, or whose scores are all equal; refuse distances.

    As in trec_eval, only scores count; rows are grouped by query and sorted by score. A query is upside down if its
    scores rise with the rank in more than three of four steps.
    """
    same, falls, rises = queries[1:] == queries[:-1], scores[1:] < scores[:-1], ranks[1:] > ranks[:-1]
    if (~same | (falls & rises)).all():
        return
    falls &= same
    query = queries[1:]
    counted = queries, query[falls], query[falls & rises], query[falls & (ranks[1:] < ranks[:-1])]
    sizes, falling, right, wrong = (np.bincount(codes, minlength=queries[-1] + 1) for codes in counted)
    ranked, upside_down = int((right + wrong > 0).sum()), int((wrong > 3 * right).sum())
    if 2 * upside_down > ranked:
        found = f"scores that rise with the rank, as distances do, in {upside_down} of {ranked} queries"
        fix = "negate the scores, or rank by descending score"
        raise input_error(path, found, "higher scores at better ranks", fix)
    if contradicted := int((wrong > 0).sum()):
        log.warning(
            "%s: scores contradict ranks in %d of %d queries; ranks are ignored", path, contradicted, len(sizes)
        )
    if level := int(((sizes > 1) & (falling == 0)).sum()):
        log.warning("%s: all scores are equal in %d of %d queries; ordered by %s", path, level, len(sizes), ties_by)


def refuse_repeated_documents(path: str | Path, query_ids: Sequence[str], queries: Codes, doc_ids: pa.Array) -> None:
    """Refuse a ranking that contains a document twice."""
    if (row := find_repeated(queries, doc_ids)) is not None:
        document, query = shorten(doc_ids[row].as_py()), shorten(query_ids[queries[row]])
        found = f"document {document} again in the ranking of query {query}"
        raise input_error(path, found, "each document once per query", "drop the line", row + 1)


def _parse(columns: Sequence[str], line: str) -> tuple[str, str, float, float]:
    fields = split_fields(line)
    if len(fields) != len(columns):
        raise BadLine(f"{len(fields)} fields", f"the {len(columns)} fields `{' '.join(columns)}`", "fix the line")
    query_id, doc_id, text, score = (fields[columns.index(name)] for name in FIELDS.names)
    rank = checked_number("rank", text) if columns == SCORED else _rank(text)
    return checked_id("query_id", query_id), checked_id("doc_id", doc_id), rank, checked_number("score", score)


def _rank(text: str) -> float:
    """Parse a rank as Arrow would; anything but a number counts as no rank."""
    try:
        return float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return math.nan
