"""Take in a run that somebody else published: check its ids, cut it to a depth, write it as a run of this project.

Three forms are read, plain or .gz: TREC's six fields ``query_id Q0 doc_id rank score tag``, MS MARCO's three,
``query_id doc_id rank``, and MS MARCO's lists of candidates, ``query_id TAB doc_id TAB query TAB passage``. Six fields
are ordered as trec_eval orders them, whatever their rank column says: by score in single precision, descending, ties by
doc id, descending. Published numbers were computed on that order, so they survive the import; this project's own order
of ties (doc id ascending) would change them. Three fields are ordered by rank, with scores 1/rank. Lists of candidates
(`top1000.dev.tsv`) have no order of their own: the documents of a query come as they first appear, with scores 1/rank,
so that recall and re-ranking mean something and the measures of their order do not. Their texts are not kept.

Reads:  the run, queries.parquet, passages.parquet
Writes: run.trec
Usage:  python -m cort.import_run --run published.trec --queries queries.parquet --passages passages.parquet
            --depth 1000 --tag NAME --output run.trec
"""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats import tables
from cort.formats.ids import alphabetic_codes, unknown_ids
from cort.formats.lines import iter_lines
from cort.formats.records import Ranking
from cort.formats.runs import Run, is_candidate, read_candidates, read_run, write_run
from cort.system import cli
from cort.system.errors import InputError, input_error, shorten
from cort.system.options import optional, required

log = logging.getLogger(__name__)

TREC_FIELDS = 6
RANKED_FIELDS = 3
LINES_PER_BLOCK = 100_000
QUERY_IDS = pa.schema([tables.QUERIES.field("query_id")])
DOC_IDS = pa.schema([tables.PASSAGES.field("doc_id")])


def read_published(path: str | Path) -> Run:
    """Read a run of any form, each ranking in the order its publisher evaluated (see the module's text).

    :raises InputError: wrong fields, scores or ranks; a document or a rank twice in one ranking.
    """
    first = next((line for _, line in iter_lines(path)), "")
    if is_candidate(first):
        return _read_unordered(path)
    fields = len(first.split())
    if fields == RANKED_FIELDS:
        return _read_ranked(path)
    if fields not in (0, TREC_FIELDS):
        expected = (
            "the 6 fields `query_id Q0 doc_id rank score tag`, the 3 fields `query_id doc_id rank` or the 4 fields "
            "`query_id TAB doc_id TAB query TAB passage`"
        )
        raise input_error(path, f"{fields} fields", expected, "convert the file to one of them", 1)
    return trec_eval_order(read_run(path), path)


def trec_eval_order(run: Run, source: str | Path) -> Run:
    """Order each ranking as trec_eval does: by single-precision score, then doc id, both descending."""
    with np.errstate(over="ignore"):
        scores = run.scores.astype(np.float32)
    if not np.isfinite(scores).all():
        found = f"the score {run.scores[~np.isfinite(scores)][0]}"
        raise input_error(source, found, "scores within single precision (3.4e38)", "scale the scores")
    by = np.lexsort((-alphabetic_codes(run.doc_ids), -scores, run.query_numbers()))
    return Run(run.query_ids, run.offsets, run.doc_ids.take(pa.array(by)), scores[by].astype(np.float64))


def cut(run: Run, depth: int) -> Iterator[Ranking]:
    """Yield the first `depth` results of each query."""
    for query_id, doc_ids, scores in run:
        yield Ranking(query_id, doc_ids[:depth], scores[:depth])


def refuse_unknown_queries(run: Run, queries: pa.Table, source: str | Path) -> None:
    """Check that the run answers only queries of the split.

    :raises InputError: names the first that is not.
    """
    unknown = unknown_ids(pa.array(run.query_ids, pa.string()), queries["query_id"])
    if len(unknown):
        first = unknown[0].as_py()
        row = next(row for row, line in iter_lines(source) if line.split()[:1] == [first])
        raise input_error(
            source,
            f"query {shorten(first)} ({len(unknown)} such queries)",
            "queries of this split only",
            "name the split's own run, or set `unjudged_queries: keep` if the query exists but nobody judged it",
            row,
        )


def refuse_unknown_documents(run: Run, passages: pa.Table, source: str | Path) -> None:
    """Check that the run ranks only documents of the collection.

    :raises InputError: names the first line that does not.
    """
    unknown = unknown_ids(run.doc_ids, passages["doc_id"])
    if len(unknown):
        absent = set(unknown.to_pylist())
        rows = ((row, _doc_id(line)) for row, line in iter_lines(source))
        row, doc_id = next((row, doc_id) for row, doc_id in rows if doc_id in absent)
        raise input_error(
            source,
            f"document {shorten(doc_id)} ({len(unknown)} results are no passages)",
            "documents of this collection only",
            "name a run over the same collection",
            row,
        )


def _read_ranked(path: str | Path) -> Run:
    table = pa.concat_tables([_ranked_block(path, block) for block in _blocks(path)])
    ranks = table["rank"].to_numpy()
    run, by = _by_query(path, table, ranks)
    row = _first_repeat(_codes(table["query_id"]), ranks)
    if row is not None:
        raise _repeated(path, "rank", str(table["rank"][row].as_py()), table, row)
    return Run(run.query_ids, run.offsets, run.doc_ids, 1.0 / ranks[by])


def _read_unordered(path: str | Path) -> Run:
    table = read_candidates(path)
    run, _ = _by_query(path, table, np.arange(len(table)))
    return Run(run.query_ids, run.offsets, run.doc_ids, 1.0 / run.ranks())


def _by_query(path: str | Path, table: pa.Table, ranks: npt.NDArray[np.int64]) -> tuple[Run, npt.NDArray[np.intp]]:
    """Sort the documents of each query by rank: a run without scores, and the order as positions in the table."""
    encoded = pc.dictionary_encode(table["query_id"].combine_chunks())
    queries = _codes(table["query_id"])
    doc_ids = table["doc_id"].combine_chunks()
    row = _first_repeat(queries, alphabetic_codes(doc_ids))
    if row is not None:
        raise _repeated(path, "document", doc_ids[row].as_py(), table, row)
    by = np.lexsort((ranks, queries))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(queries, minlength=len(encoded.dictionary)))])
    query_ids: list[str] = encoded.dictionary.to_pylist()
    return Run(query_ids, offsets.astype(np.int64), doc_ids.take(pa.array(by)), np.zeros(len(by))), by


def _codes(ids: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Give each id the number of its first appearance among different ones."""
    codes: npt.NDArray[np.int64] = pc.dictionary_encode(ids.combine_chunks()).indices.to_numpy().astype(np.int64)
    return codes


def _repeated(path: str | Path, name: str, value: str, table: pa.Table, row: int) -> InputError:
    found = f"{name} {shorten(value)} again in the ranking of query {shorten(table['query_id'][row].as_py())}"
    return input_error(path, found, f"each {name} once per query", "drop or fix the line", row + 1)


def _blocks(path: str | Path) -> Iterator[list[tuple[int, str]]]:
    lines = iter_lines(path)
    while block := list(itertools.islice(lines, LINES_PER_BLOCK)):
        yield block


def _ranked_block(path: str | Path, block: Sequence[tuple[int, str]]) -> pa.Table:
    query_ids, doc_ids, ranks = [], [], []
    for row, line in block:
        fields = line.split()
        if len(fields) != RANKED_FIELDS:
            raise input_error(path, f"{len(fields)} fields", "the 3 fields `query_id doc_id rank`", "fix the line", row)
        query_id, doc_id, rank = fields
        if not (rank.isascii() and rank.isdigit() and 1 <= int(rank) < 2**31):
            raise input_error(path, f"the rank {shorten(rank)}", "a whole number from 1", "fix the line", row)
        query_ids.append(query_id)
        doc_ids.append(doc_id)
        ranks.append(int(rank))
    columns = [pa.array(query_ids, pa.string()), pa.array(doc_ids, pa.string()), pa.array(ranks, pa.int64())]
    return pa.table(columns, names=["query_id", "doc_id", "rank"])


def _doc_id(line: str) -> str:
    if is_candidate(line):
        return line.split("\t")[1]
    fields = line.split()
    # Blank lines are none of this function's business; no document has the empty id.
    return fields[1 if len(fields) == RANKED_FIELDS else 2] if fields else ""


def _first_repeat(queries: npt.NDArray[np.int64], values: npt.NDArray[np.int64]) -> int | None:
    """Lowest position whose (query, value) pair occurred before; None when there is none."""
    pairs = queries * (int(values.max(initial=0)) + 1) + values
    by = np.argsort(pairs, kind="stable")
    repeated = by[1:][pairs[by][1:] == pairs[by][:-1]]
    return int(repeated.min()) if len(repeated) else None


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of this stage."""

    run: str = required("FILE", "the published run, plain or .gz")
    queries: str = required("PARQUET", "all queries of the split")
    passages: str = required("PARQUET", "the collection")
    depth: int = optional(1000, "results kept per query", "N")
    tag: str = required("NAME", "last field of each line")
    output: str = required("TREC")


def stage(options: Options) -> None:
    """Read, check, cut, write."""
    if options.depth < 1:
        raise input_error("--depth", str(options.depth), "1 or more", "give the number of results to keep")
    run = read_published(options.run)
    refuse_unknown_queries(run, tables.read_table(options.queries, QUERY_IDS), options.run)
    refuse_unknown_documents(run, tables.read_table(options.passages, DOC_IDS), options.run)
    lines = write_run(options.output, cut(run, options.depth), options.tag)
    log.info("%d queries, %d of %d results kept", len(run), lines, len(run.doc_ids))


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
