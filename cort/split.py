"""Make a split (train, dev, test), or a part of one, from queries and judgements, checked against the collection.

Reads:  queries (cort/formats/topics.py) and judgements (cort/formats/judgements.py), each in one or more files;
        passages.parquet
Writes: queries and qrels as parquet, in the order of their files; JSON of how many judged passages were found by their
        ids, by their texts, or not at all
Usage:  python -m cort.split --queries queries.tsv --qrels qrels.tsv --passages passages.parquet
            --output-queries queries.parquet --output-qrels qrels.parquet [--hold-out 1000 --part rest --seed 42]
            [--without dev.parquet --sample 1000 --seed 42]
"""

import logging
import random
import sys
from array import array
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from cort.formats.artifacts import write_artifact
from cort.formats.cleaning import plain
from cort.formats.duplicates import kept_rows, refuse_duplicates
from cort.formats.ids import is_in
from cort.formats.judgements import is_judged, is_quoted, iter_qrels, iter_quoted, read_judged
from cort.formats.lines import Rows, iter_record_batches, none_of
from cort.formats.records import Qrel
from cort.formats.tables import PASSAGES, QRELS, QUERIES, iter_batches, open_writer, read_column, read_table
from cort.formats.topics import iter_queries
from cort.retrieval.documents import documents_of
from cort.settings.collection import Aggregation, Split, Topics
from cort.system import cli
from cort.system.errors import input_error, shorten
from cort.system.options import flag, optional, options_class, required

log = logging.getLogger(__name__)

# Name of a row of judgements in error messages.
JUDGEMENT = "judgement (query_id doc_id)"

Part = Literal["held-out", "rest"]


def read_queries(paths: Sequence[str], field: str = Topics.field, numbered: bool = True) -> pa.Table:
    """Read the queries of all files; refuse a file without queries, and an id that occurs twice.

    :param field: of topics; `numbered` as for `iter_queries`.
    """
    parts, queries = [], []
    for path in paths:
        rows, table = _gather(iter_queries(path, field, numbered), QUERIES)
        if not table.num_rows:
            fix = "name the file that holds the queries"
            raise input_error(path, none_of("queries", path), "one query per line", fix)
        parts.append((path, rows))
        queries.append(table)
    joined = pa.concat_tables(queries)
    refuse_duplicates(parts, joined["query_id"], "query_id")
    return joined


def read_qrels(
    paths: Sequence[str], query_ids: pa.ChunkedArray, passages: str, aggregate: str
) -> tuple[pa.Table, dict[str, int]]:
    """Read the judgements of all files with `read_file_of_qrels`; refuse a pair that is judged twice.

    :return: also counts of `cort.formats.judgements`, empty if no file has those of a person.
    """
    # Texts are read only for quotations: they are fifty times as large as the ids.
    doc_ids = documents_of(read_column(passages, PASSAGES, "doc_id"), aggregate)
    unit = "a passage" if aggregate == "none" else "a document (the id of a passage up to its last #)"
    counts: Counter[str] = Counter()

    def judgements(path: str) -> Rows[Qrel]:
        if is_judged(path):
            grouping = None if aggregate == "none" else partial(documents_of, how=aggregate)
            qrels, found = read_judged(path, iter_batches(passages, PASSAGES), grouping)
            counts.update(found)
            log.info("%s: %s", path, found)
            return iter(qrels)
        if is_quoted(path) and aggregate != "none":
            fix = "name documents by their ids, or set `collection.aggregate` to none"
            raise input_error(path, "texts of passages", "documents, which are measured", fix)
        return iter_quoted(path, iter_batches(passages, PASSAGES)) if is_quoted(path) else iter_qrels(path)

    files = [read_file_of_qrels(path, judgements(path), query_ids, doc_ids, unit) for path in paths]
    joined = pa.concat_tables(qrels for _, qrels in files)
    # Ids have no whitespace, so joined pairs are unambiguous.
    pairs = pc.binary_join_element_wise(joined["query_id"], joined["doc_id"], " ")
    parts = [(path, rows) for path, (rows, _) in zip(paths, files, strict=True)]
    kept = kept_rows(parts, pairs, lambda: joined["relevance"].to_numpy(), JUDGEMENT, "grade")
    if kept is not None:
        log.warning("%d repeated judgements dropped from %s", joined.num_rows - len(kept), ", ".join(paths))
        joined = joined.take(kept)
    return joined, counts


def read_file_of_qrels(
    path: str | Path, judgements: Rows[Qrel], query_ids: pa.ChunkedArray, doc_ids: pa.ChunkedArray, unit: str
) -> tuple[Sequence[int], pa.Table]:
    """Collect judgements and their rows; at least one must be relevant, and all queries and documents known.

    :param unit: what `doc_ids` are.
    """
    rows, qrels = _gather(judgements, QRELS)
    if not qrels.num_rows:
        raise input_error(path, none_of("judgements", path), "at least one", "name the file that holds the judgements")
    if pc.max(qrels["relevance"]).as_py() < 1:
        raise input_error(path, "no grade above 0", "at least one relevant passage", "name other judgements")
    known = {"query_id": (query_ids, "one of the queries"), "doc_id": (doc_ids, f"{unit} of the collection")}
    for name, (ids, expected) in known.items():
        unknown = pc.index(is_in(qrels[name], ids), False).as_py()
        if unknown >= 0:
            found = f"the {name} {shorten(qrels[name][unknown].as_py())}"
            fix = "remove the row or name the files that belong together"
            raise input_error(path, found, expected, fix, rows[unknown])
    return rows, qrels


def select(table: pa.Table, query_ids: pa.Array | pa.ChunkedArray, inside: bool = True) -> pa.Table:
    """Keep the rows of these queries, or those of all others."""
    selected = pc.is_in(table["query_id"], value_set=query_ids)
    return table.filter(selected if inside else pc.invert(selected))


def leave_out(queries: pa.Table, others: pa.Table) -> pa.Table:
    """Drop the queries that have the id or text of one of the others."""
    left = select(queries, others["query_id"], inside=False)
    same = pc.is_in(plain(left["text"]), value_set=plain(others["text"]))
    return left.filter(pc.invert(same))


def draw(query_ids: pa.ChunkedArray, count: int, seed: int | None, option: str, kind: str, left: int = 0) -> pa.Array:
    """Draw `count` ids, leaving at least `left`; the result depends only on the set of ids, `count` and `seed`."""
    ids = sorted(pc.unique(query_ids).to_pylist())
    if not 0 < count <= len(ids) - left:
        expected = f"between 1 and {len(ids) - left}" if len(ids) > left else f"at least {left + 1}"
        raise input_error(option, f"{count} of {len(ids)} {kind}", expected, f"change {option} or bring more {kind}")
    return pa.array(random.Random(seed).sample(ids, count), "string")  # noqa: S311 (a draw, not a secret)


def _gather(records: Rows[Any], schema: pa.Schema) -> tuple[Sequence[int], pa.Table]:
    """Return the row of each record, and the records as a table."""
    rows = array("q")

    def recorded() -> Rows[Any]:
        for row, record in records:
            rows.append(row)
            yield row, record

    return rows, pa.Table.from_batches(iter_record_batches(recorded(), schema), schema)


@options_class
class Options(Aggregation, Topics):
    """Options of this stage."""

    queries: tuple[str, ...] = required("FILE", "queries, in any format of cort/formats/topics.py")
    qrels: tuple[str, ...] = optional((), "judgements; none: keep all queries", "FILE")
    passages: str = required("FILE", "table that cort.collection wrote")
    output_queries: str = required("FILE", "parquet table to write")
    output_qrels: str = required("FILE", "parquet table to write")
    output_counts: str | None = optional(None, "JSON to write: how judged passages were found again", "FILE")
    unjudged_queries: Literal["drop", "keep"] = optional(
        Split.unjudged_queries, f"queries without judgements (default: {Split.unjudged_queries})"
    )
    hold_out: int | None = optional(None, "hold out N judged queries, drawn at random", "N")
    part: Part | None = optional(None, "which side of --hold-out to write")
    without: tuple[str, ...] = optional((), "tables of queries to leave out", "FILE")
    numbered: bool = flag("queries without ids have the number of their row, also if there are judgements")
    sample: int | None = optional(None, "keep N of the remaining queries, drawn at random", "N")
    at_most: bool = flag("if fewer than --sample remain, keep all")
    seed: int | None = optional(None, "seed of the draws; required by --hold-out and --sample")


def stage(options: Options) -> None:
    """Select queries and judgements, and write them."""
    _check_draws(options)
    numbered = options.numbered or all(map(is_quoted, options.qrels))
    queries = read_queries(options.queries, options.field, numbered)
    qrels, counts = QRELS.empty_table(), dict[str, int]()
    if options.qrels:
        qrels, counts = read_qrels(options.qrels, queries["query_id"], options.passages, options.aggregate)
    judged = select(queries, qrels["query_id"])
    keep = not options.qrels or options.unjudged_queries == "keep"
    unjudged = f"{queries.num_rows - judged.num_rows} of them without judgements ({'kept' if keep else 'dropped'})"
    log.info("%d queries, %s, %d judgements", queries.num_rows, unjudged, qrels.num_rows)
    queries = queries if keep else judged
    for path in options.without:
        remaining = leave_out(queries, read_table(path, QUERIES))
        log.info("%d queries left out because %s has them", queries.num_rows - remaining.num_rows, path)
        queries, qrels = remaining, select(qrels, remaining["query_id"])
    if options.hold_out is not None:
        # The two parts of two calls are complementary; unjudged queries belong to the rest.
        held = draw(qrels["query_id"], options.hold_out, options.seed, "--hold-out", "judged queries", left=1)
        inside = options.part == "held-out"
        queries, qrels = select(queries, held, inside), select(qrels, held, inside)
    if options.sample is not None:
        sample = min(options.sample, queries.num_rows) if options.at_most else options.sample
        queries = select(queries, draw(queries["query_id"], sample, options.seed, "--sample", "queries"))
        qrels = select(qrels, queries["query_id"])
    if not queries.num_rows:
        raise input_error(", ".join(options.queries), "no query left", "at least one", "change what is left out")
    # No file appears before both are complete.
    with open_writer(options.output_queries, QUERIES) as writer, open_writer(options.output_qrels, QRELS) as other:
        writer.write_table(queries)
        other.write_table(qrels)
    if options.output_counts:
        write_artifact(options.output_counts, counts)
    log.info("wrote %d queries and %d judgements", queries.num_rows, qrels.num_rows)


def _check_draws(options: Options) -> None:
    """Refuse a draw without a seed, a seed without a draw, and --hold-out or --part alone."""
    draws = {"hold-out": options.hold_out, "part": options.part, "sample": options.sample, "seed": options.seed}
    given = [f"--{name}" for name, value in draws.items() if value is not None]
    if ("--hold-out" in given) != ("--part" in given) or (given and "--seed" not in given) or given == ["--seed"]:
        expected = "--hold-out and --part together or not at all, --seed with them or with --sample"
        raise input_error("command line", f"only {' and '.join(given)}", expected, "add the others")


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
