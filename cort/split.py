"""Make one split (train, dev, test) from queries and judgements, checked against the collection, or a part of them.

Reads:  queries as MS MARCO .tsv or .txt, BEIR .jsonl or TREC-CAR .qrels, qrels as TREC or BEIR (cort/formats/raw.py),
        each as one file or several, or judgements that quote passages (cort/formats/quotations.py), passages.parquet
Writes: queries and qrels as parquet, in the order of their files
Usage:  python -m cort.split --queries queries.tsv --qrels qrels.tsv --passages passages.parquet
            --output-queries queries.parquet --output-qrels qrels.parquet [--hold-out 1000 --part rest --seed 42]
            [--without dev.parquet --sample 1000 --seed 42]
"""

from __future__ import annotations

import logging
import random
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from cort.formats.cleaning import plain
from cort.formats.lines import Rows, iter_record_batches
from cort.formats.quotations import iter_quoted, quotes
from cort.formats.raw import iter_qrels, iter_queries, none_of, refuse_duplicates
from cort.formats.records import Qrel
from cort.formats.tables import PASSAGES, QRELS, QUERIES, iter_batches, open_writer, read_table
from cort.system import cli
from cort.system.errors import input_error, shorten
from cort.system.options import optional, required

log = logging.getLogger(__name__)

# What complaints call a row of judgements.
JUDGEMENT = "judgement (query_id doc_id)"

Part: TypeAlias = Literal["held-out", "rest"]


def read_queries(paths: Sequence[str]) -> pa.Table:
    """Read the queries of all files; refuse a file without any, and an id that stands twice."""
    found, parts = [], []
    for path in paths:
        rows, queries = _gather(iter_queries(path), QUERIES)
        if not queries.num_rows:
            fix = "name the file that holds the queries"
            raise input_error(path, none_of("queries", path), "one query to a line", fix)
        found.append(queries)
        parts.append((path, rows))
    whole = pa.concat_tables(found)
    refuse_duplicates(parts, whole["query_id"], "query_id")
    return whole


def read_qrels(paths: Sequence[str], query_ids: pa.ChunkedArray, passages: str) -> pa.Table:
    """Read the judgements of all files, each as `read_file_of_qrels` does; refuse a pair that two of them judge."""
    # The texts are read where they are quoted alone: they are fifty times the size of the ids.
    doc_ids = read_table(passages, pa.schema([PASSAGES.field("doc_id")]))["doc_id"]

    def judgements(path: str) -> Rows[Qrel]:
        return iter_quoted(path, iter_batches(passages, PASSAGES)) if quotes(path) else iter_qrels(path)

    found = [read_file_of_qrels(path, judgements(path), query_ids, doc_ids) for path in paths]
    whole = pa.concat_tables(qrels for _, qrels in found)
    refuse_duplicates([(path, rows) for path, (rows, _) in zip(paths, found, strict=True)], _pairs(whole), JUDGEMENT)
    return whole


def read_file_of_qrels(
    path: str | Path, judgements: Rows[Qrel], query_ids: pa.ChunkedArray, doc_ids: pa.ChunkedArray
) -> tuple[Sequence[int], pa.Table]:
    """Gather the judgements and their rows; refuse none, none relevant, an unknown query or document."""
    rows, qrels = _gather(judgements, QRELS)
    if not qrels.num_rows:
        raise input_error(path, none_of("judgements", path), "at least one", "name the file that holds the judgements")
    if pc.max(qrels["relevance"]).as_py() < 1:
        raise input_error(path, "no grade above 0", "at least one relevant passage", "name other judgements")
    known = {"query_id": (query_ids, "one of the queries"), "doc_id": (doc_ids, "a passage of the collection")}
    for name, (ids, expected) in known.items():
        unknown = pc.index(pc.is_in(qrels[name], value_set=ids), False).as_py()
        if unknown >= 0:
            found = f"the {name} {shorten(qrels[name][unknown].as_py())}"
            fix = "remove the row or name the files that belong together"
            raise input_error(path, found, expected, fix, rows[unknown])
    return rows, qrels


def _pairs(qrels: pa.Table) -> pa.ChunkedArray:
    # Ids hold no whitespace, so the joined pair is unambiguous.
    return pc.binary_join_element_wise(qrels["query_id"], qrels["doc_id"], " ")


def select(table: pa.Table, query_ids: pa.Array | pa.ChunkedArray, inside: bool = True) -> pa.Table:
    """Keep the rows of these queries, or of all others."""
    found = pc.is_in(table["query_id"], value_set=query_ids)
    return table.filter(found if inside else pc.invert(found))


def leave_out(queries: pa.Table, others: pa.Table) -> pa.Table:
    """Leave out the queries whose id or text is that of another one."""
    left = select(queries, others["query_id"], inside=False)
    same = pc.is_in(plain(left["text"]), value_set=plain(others["text"]))
    return left.filter(pc.invert(same))


def draw_held_out(qrels: pa.Table, count: int, seed: int | None) -> pa.Array:
    """Draw `count` judged queries; the draw depends on nothing but the set of judged ids, `count` and `seed`."""
    judged = sorted(pc.unique(qrels["query_id"]).to_pylist())
    if not 0 < count < len(judged):
        found = f"{count} queries to hold out of {len(judged)} judged ones"
        expected = f"between 1 and {len(judged) - 1}" if len(judged) > 1 else "at least 2 judged queries"
        raise input_error("--hold-out", found, expected, "change --hold-out or bring more judged queries")
    return pa.array(random.Random(seed).sample(judged, count), pa.string())  # noqa: S311 (a draw, not a secret)


def draw_sample(queries: pa.Table, count: int, seed: int | None) -> pa.Array:
    """Draw `count` queries; the draw depends on the set of their ids alone."""
    ids = sorted(queries["query_id"].to_pylist())
    if not 0 < count <= len(ids):
        expected = f"between 1 and {len(ids)}" if ids else "at least 1 query"
        found, fix = f"{count} queries to draw of {len(ids)}", "change --sample or bring more queries"
        raise input_error("--sample", found, expected, fix)
    return pa.array(random.Random(seed).sample(ids, count), pa.string())  # noqa: S311 (a draw, not a secret)


def _gather(records: Rows[Any], schema: pa.Schema) -> tuple[Sequence[int], pa.Table]:
    """Rows of all records, and the records as a table."""
    rows = array("q")

    def noted() -> Rows[Any]:
        for row, record in records:
            rows.append(row)
            yield row, record

    return rows, pa.Table.from_batches([batch for _, batch in iter_record_batches(noted(), schema)], schema)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of this stage."""

    queries: tuple[str, ...] = required("FILE", "MS MARCO .tsv or .txt, BEIR .jsonl or TREC-CAR .qrels, plain or .gz")
    qrels: tuple[str, ...] = optional((), "TREC or BEIR judgements, or quotations .jsonl; without, all is kept", "FILE")
    passages: str = required("FILE", "table that cort.collection wrote")
    output_queries: str = required("FILE", "parquet table to write")
    output_qrels: str = required("FILE", "parquet table to write")
    unjudged_queries: Literal["drop", "keep"] = optional("drop", "queries without judgements (default: drop)")
    hold_out: int | None = optional(None, "split off N judged queries, drawn at random", "N")
    part: Part | None = optional(None, "which side of --hold-out to write")
    without: tuple[str, ...] = optional((), "tables of queries to leave out", "FILE")
    sample: int | None = optional(None, "keep N queries, drawn at random from what is left", "N")
    seed: int | None = optional(None, "seed of the draws; required by --hold-out and --sample")


def stage(options: Options) -> None:
    """Read, check, select, write, log counts."""
    _check_draws(options)
    queries = read_queries(options.queries)
    qrels = QRELS.empty_table()
    if options.qrels:
        qrels = read_qrels(options.qrels, queries["query_id"], options.passages)
    judged = select(queries, qrels["query_id"])
    keep = not options.qrels or options.unjudged_queries == "keep"
    unjudged = f"{queries.num_rows - judged.num_rows} of them without judgements ({'kept' if keep else 'dropped'})"
    log.info("%d queries, %s, %d judgements", queries.num_rows, unjudged, qrels.num_rows)
    queries = queries if keep else judged
    for path in options.without:
        left = leave_out(queries, read_table(path, QUERIES))
        log.info("%d queries left out, as %s has them", queries.num_rows - left.num_rows, path)
        queries, qrels = left, select(qrels, left["query_id"])
    if options.hold_out is not None:
        # Two calls with the two parts complement each other; unjudged queries belong to the rest.
        held, inside = draw_held_out(qrels, options.hold_out, options.seed), options.part == "held-out"
        queries, qrels = select(queries, held, inside), select(qrels, held, inside)
    if options.sample is not None:
        queries = select(queries, draw_sample(queries, options.sample, options.seed))
        qrels = select(qrels, queries["query_id"])
    if not queries.num_rows:
        raise input_error(", ".join(options.queries), "no query left", "at least one", "change what is left out")
    # Neither appears before both are whole.
    with open_writer(options.output_queries, QUERIES) as writer, open_writer(options.output_qrels, QRELS) as other:
        writer.write_table(queries)
        other.write_table(qrels)
    log.info("wrote %d queries and %d judgements", queries.num_rows, qrels.num_rows)


def _check_draws(options: Options) -> None:
    """Refuse a draw without a seed, and a held-out part that nobody says the size of."""
    draws = {"hold-out": options.hold_out, "part": options.part, "sample": options.sample, "seed": options.seed}
    given = [f"--{name}" for name, value in draws.items() if value is not None]
    if ("--hold-out" in given) != ("--part" in given) or (given and "--seed" not in given) or given == ["--seed"]:
        expected = "--hold-out and --part together or none, --seed with them or with --sample"
        raise input_error("command line", f"{' and '.join(given)} alone", expected, "add the others")


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
