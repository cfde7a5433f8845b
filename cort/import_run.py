"""Import a run published by others: check its ids, truncate it to a depth, write it as a run of this project.

Queries that the split lacks, often because they are not judged, are dropped and counted, as trec_eval does.

There are four formats, plain or .gz: TREC's six fields ``query_id Q0 doc_id rank score tag``, ColBERT's four,
``query_id doc_id rank score``, MS MARCO's three, ``query_id doc_id rank``, and MS MARCO's lists of candidates,
``query_id TAB doc_id TAB query TAB passage``. Runs of six fields are ordered like in trec_eval, whatever their rank
column says: by descending single-precision score, ties by descending doc_id. Published numbers were computed on that
order, so they survive the import; this project's own order of ties (ascending doc_id) would change them. Runs of four
fields are ordered by score, ties by rank; runs of three by rank, with scores 1/rank. Lists of candidates
(`top1000.dev.tsv`) are not ranked: a query's documents stay in the order of the file, with scores 1/rank, so that
recall and re-ranking are meaningful, but measures of the order are not. Their texts are dropped.

Reads:  the run, queries.parquet, passages.parquet
Writes: run.trec
Usage:  python -m cort.import_run --run published.trec --queries queries.parquet --passages passages.parquet
            --depth 1000 --tag NAME --output run.trec
"""

import logging
import re
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats import tables
from cort.formats.fields import BadLine, checked_id, split_fields
from cort.formats.ids import is_in, joined, unknown_ids
from cort.formats.lines import iter_lines, iter_record_batches, iter_records
from cort.formats.ordering import ranked
from cort.formats.records import offsets_of
from cort.formats.runs import (
    COLUMNS,
    SCORED,
    Run,
    is_candidate,
    is_scored,
    read_candidates,
    read_run,
    refuse_repeated_documents,
    top,
    write_runs,
)
from cort.formats.spellings import respell
from cort.retrieval.search_options import SearchOptions
from cort.runtime import cli
from cort.runtime.errors import input_error, shorten
from cort.runtime.sections import AnyFile, ParquetFile

log = logging.getLogger(__name__)

TREC_FIELDS = 6
RANKED_FIELDS = 3
RANK = re.compile("[1-9][0-9]{0,8}")
# TREC's qrels have as many fields as candidates and ColBERT's rankings; they would be read as passage 0 of each query.
JUDGEMENT = re.compile(r"[^\t ]+[\t ]+(0|Q0)[\t ]+[^\t ]+[\t ]+[+-]?[0-9]{1,4}")
# Rows whose fields tell the format.
HEAD = 1000
FIX = "the third column must be a rank: number the documents of each query from 1, best first"
RANKED = pa.schema({"query_id": "string", "doc_id": "string", "rank": "int64"})


def read_published(path: str | Path) -> Run:
    """Read a run of any format, each ranking in the order that its publisher evaluated (see the module's docstring).

    :raises InputError: for no result; wrong fields, scores or ranks; a document or a rank twice in one ranking.
    """
    head = [line for _, line in islice(iter_lines(path), HEAD)]
    first = head[0] if head else ""
    fields, scored = len(split_fields(first)), is_scored(first)
    if head and all(map(JUDGEMENT.fullmatch, head)):
        found, expected = f"a judgement ({shorten(first)})", "a run or a list of candidates"
        raise input_error(path, found, expected, "name a run", 1)
    if is_candidate(first) and not scored:
        return _by_query(path, read_candidates(path))
    if fields == RANKED_FIELDS:
        batches = iter_record_batches(iter_records(path, iter_lines(path), _parse_ranked), RANKED)
        return _by_query(path, pa.Table.from_batches(batches, RANKED))
    if fields not in (0, TREC_FIELDS) and not scored:
        expected = (
            "the 6 fields `query_id Q0 doc_id rank score tag`, the 4 fields `query_id doc_id rank score` or "
            "`query_id TAB doc_id TAB query TAB passage`, or the 3 fields `query_id doc_id rank`"
        )
        raise input_error(path, f"{fields} fields", expected, "convert the file to one of these formats", 1)
    run = read_run(path, columns=SCORED if scored else COLUMNS)
    if not len(run):
        raise input_error(path, "an empty run", "at least one result", "build the run again or name another")
    if (largest := np.abs(run.scores).max()) > np.finfo(np.float32).max:
        raise input_error(path, f"the score {largest:g}", "scores within single precision (3.4e38)", "scale the scores")
    scores = run.scores.astype(np.float32)
    if scored:
        return replace(run, scores=scores.astype(np.float64))
    by = ranked(scores, run.doc_ids, run.query_numbers(), descending=True)
    return Run(run.query_ids, run.offsets, run.doc_ids.take(by), scores[by].astype(np.float64))


def of_split(run: Run, query_ids: pa.ChunkedArray, source: str) -> Run:
    """Drop the queries that a split lacks, as trec_eval does, and log how many; refuse a run without any other."""
    names = pa.array(run.query_ids, "string")
    if not len(unknown := unknown_ids(names, query_ids)):
        return run
    others = f"{shorten(unknown[0].as_py())} ({len(unknown)} such queries)"
    if len(unknown) == len(names):
        raise input_error(source, f"query {others}", "queries of this split", "name a run of this split")
    log.warning("%s: dropped queries that the split lacks, as %s", source, others)
    known = np.flatnonzero(is_in(names, query_ids))
    return run.select([run.query_ids[place] for place in known], known)


def of_collection(run: Run, doc_ids: pa.ChunkedArray, source: str) -> Run:
    """Name results as the collection does, if it has another spelling of their ids, or if they are documents.

    A document that the collection has in passages is its first one, so that it is measured where it was ranked.

    :raises InputError: for a run over another collection.
    """

    def known(ids: pa.Array) -> pa.Array:
        return pc.or_(is_in(ids, doc_ids), is_in(_first_passages(ids), doc_ids))

    table, respelled, unknown = respell(pa.table({"doc_id": run.doc_ids}), known)
    if len(unknown):
        results = int(pc.sum(is_in(table["doc_id"], unknown)).as_py())
        found = f"document {shorten(unknown[0].as_py())} ({results} such results)"
        raise input_error(source, found, "only documents of this collection", "name a run over the same collection")
    ids = joined(table["doc_id"])
    whole = pc.invert(is_in(ids, doc_ids))
    if documents := int(pc.sum(whole).as_py() or 0):
        log.warning("%s: %d results are documents; their first passages stand for them", source, documents)
        ids = pc.if_else(whole, _first_passages(ids), ids)
    if respelled:
        log.warning("%s: ids in another spelling than the collection's: %d", source, respelled)
    if respelled or documents:
        refuse_repeated_documents(source, run.query_ids, run.query_numbers().astype(np.int32), ids)
        run = replace(run, doc_ids=ids)
    return run


def _first_passages(doc_ids: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(doc_ids, pa.scalar("0", doc_ids.type), pa.scalar("#", doc_ids.type))


def _by_query(path: str | Path, table: pa.Table) -> Run:
    """Group results by query, ordered by rank or, without ranks, as in the file; scores are 1/rank."""
    encoded = pc.dictionary_encode(joined(table["query_id"]))
    query_ids, queries = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
    doc_ids = joined(table["doc_id"])
    refuse_repeated_documents(path, query_ids, queries, doc_ids)
    is_ranked = "rank" in table.column_names
    ranks = table["rank"].to_numpy() if is_ranked else np.arange(len(table))
    by = np.lexsort((ranks, queries))
    offsets = offsets_of(np.bincount(queries))
    run = Run(query_ids, offsets, doc_ids.take(by), np.empty(0))
    if is_ranked and (wrong := np.flatnonzero(ranks[by] != run.ranks())).size:
        place = int(wrong[0])
        query = int(queries[by[place]])
        found = f"rank {ranks[by[place]]} of query {shorten(query_ids[query])}"
        expected = f"each rank from 1 to {np.diff(offsets)[query]} once"
        raise input_error(path, found, expected, FIX, int(by[place]) + 1)
    return replace(run, scores=1.0 / run.ranks())


def _parse_ranked(line: str) -> tuple[str, str, int]:
    fields = split_fields(line)
    if len(fields) != RANKED_FIELDS:
        raise BadLine(f"{len(fields)} fields", "the 3 fields `query_id doc_id rank`", "fix the line")
    query_id, doc_id, rank = fields
    if not RANK.fullmatch(rank):
        raise BadLine(f"the rank {shorten(rank)}", "a positive integer", FIX)
    return checked_id("query_id", query_id), checked_id("doc_id", doc_id), int(rank)


class Options(SearchOptions):
    """Options of this stage."""

    run: AnyFile
    """The published run, plain or .gz."""
    queries: ParquetFile
    """All queries of the split."""
    passages: ParquetFile
    """The collection."""


def stage(options: Options) -> None:
    """Check the run, truncate it, and write it."""
    query_ids = tables.read_column(options.queries, tables.QUERIES, "query_id")
    run = of_split(read_published(options.run), query_ids, options.run)
    doc_ids = tables.read_column(options.passages, tables.PASSAGES, "doc_id")
    run = of_collection(run, doc_ids, options.run)
    lines = write_runs(options.output, [top(options.without_excluded(run), options.depth)], options.tag)
    log.info("%d queries, %d of %d results kept", len(run), lines, len(run.doc_ids))


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
