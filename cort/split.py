"""Make a split (train, dev, test), or a part of one, from queries and judgements, checked against the collection.

Reads:  queries (cort/formats/topics.py) and judgements (cort/formats/judgements.py), each in one or more files;
        passages.parquet
Writes: queries and qrels as parquet, in the order of their files; JSON of how many judged passages were found by their
        ids, by their texts, or not at all; CSV of what is odd (kind, query_id, doc_id)
Usage:  python -m cort.split --queries queries.tsv --qrels qrels.tsv --passages passages.parquet
            --output-queries queries.parquet --output-qrels qrels.parquet [--hold-out 1000 --part rest --seed 42]
            [--without dev.parquet --sample 1000 --seed 42]
"""

import logging
import random
import sys
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats.artifacts import csv_text, write_artifact
from cort.formats.cleaning import plain
from cort.formats.duplicates import kept_rows, refuse_duplicates
from cort.formats.judgements import is_judged, is_quoted, iter_qrels, iter_quoted, read_judged
from cort.formats.lines import Parts, Rows, iter_record_batches, none_of
from cort.formats.records import Qrel
from cort.formats.tables import PASSAGES, QRELS, QUERIES, iter_batches, open_writer, read_table
from cort.formats.topics import iter_queries
from cort.retrieval.documents import documents_of
from cort.settings.collection import Aggregation, Split, Topics
from cort.system import cli
from cort.system.errors import input_error, shorten
from cort.system.files import write_text
from cort.system.options import flag, optional, options_class, required

log = logging.getLogger(__name__)

# Name of a row of judgements in error messages.
JUDGEMENT = "judgement (query_id doc_id)"

# The ids of the collection, as many at once as are looked up fast.
IDS, IDS_AT_ONCE = pa.schema([PASSAGES.field("doc_id")]), 1 << 20
# What is odd: kind, query_id, doc_id; either id may be empty.
WITHOUT_TEXT, ABSENT = "judged queries without text", "judged documents absent"
Oddities = list[tuple[str, str, str]]
# Counts that are written even if they are 0.
FOUND = ("judgements_found_by_id", "found_by_text", "gone", "withdrawn")

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


def read_qrels(options: "Options", query_ids: pa.ChunkedArray) -> tuple[pa.Table, dict[str, int], Oddities]:
    """Read the judgements of all files. As in trec_eval, a document that the collection lacks counts as not retrieved.

    Judgements of queries without a text are dropped, as no system can answer them, and rows that are repeated. With
    `for_training`, so are those of absent documents, as no model can learn from them.

    :return: also counts, and what is odd.
    :raises InputError: for a pair with two grades, for no known query, and if most judged documents are absent.
    """
    counts: Counter[str] = Counter()
    parts, files = [], []
    for path in options.qrels:
        rows, table = _gather(_judgements(path, options, counts), QRELS)
        if not table.num_rows:
            fix = "name the file that holds the judgements"
            raise input_error(path, none_of("judgements", path), "at least one", fix)
        if pc.max(table["relevance"]).as_py() < 1:
            raise input_error(path, "no grade above 0", "at least one relevant passage", "name other judgements")
        parts.append((path, rows))
        files.append(table)
    qrels = _without_repeated(parts, pa.concat_tables(files), counts)
    names = ", ".join(options.qrels)
    has_text = pc.is_in(qrels["query_id"], value_set=query_ids)
    if not pc.any(has_text).as_py():
        found, fix = f"no query_id of {', '.join(options.queries)}", "name the files that belong together"
        raise input_error(names, found, "judgements of these queries", fix)
    textless = pc.unique(qrels["query_id"].filter(pc.invert(has_text)))
    qrels = qrels.filter(has_text)
    doc_ids = pc.unique(qrels["doc_id"])
    absent = doc_ids.filter(pc.invert(in_collection(doc_ids, options.passages, options.aggregate)))
    if 2 * len(absent) > len(doc_ids) and options.unknown == "refuse":
        found = f"{len(absent)} of {len(doc_ids)} judged documents that the collection lacks, as {_first(absent)}"
        fix = "name the judgements of this collection, or set `unknown: keep` to count them as not retrieved"
        raise input_error(names, found, "at least half of them in the collection", fix)
    is_absent = pc.is_in(qrels["doc_id"], value_set=absent)
    oddities = [(WITHOUT_TEXT, query_id, "") for query_id in textless.to_pylist()]
    pairs = (qrels.filter(is_absent)[name].to_pylist() for name in ("query_id", "doc_id"))
    oddities += [(ABSENT, *pair) for pair in zip(*pairs, strict=True)]
    counts.update({WITHOUT_TEXT: len(textless), ABSENT: len(absent)})
    qrels = qrels.filter(pc.invert(is_absent)) if options.for_training else qrels
    return (
        qrels,
        {name: count for name, count in counts.items() if count or name in FOUND},
        oddities,
    )


def _judgements(path: str, options: "Options", counts: Counter[str]) -> Rows[Qrel]:
    """Read a file of judgements; those of a person are counted."""
    if is_judged(path):
        grouping = None if options.aggregate == "none" else partial(documents_of, how=options.aggregate)
        qrels, found = read_judged(path, iter_batches(options.passages, PASSAGES), grouping)
        counts.update(found)
        log.info("%s: %s", path, found)
        return iter(qrels)
    if not is_quoted(path):
        return iter_qrels(path)
    if options.aggregate != "none":
        fix = "name documents by their ids, or set `collection.aggregate` to none"
        raise input_error(path, "texts of passages", "documents, which are measured", fix)
    return iter_quoted(path, iter_batches(options.passages, PASSAGES))


def _without_repeated(parts: Parts, qrels: pa.Table, counts: Counter[str]) -> pa.Table:
    """Keep one of several equal rows; refuse a pair with two grades."""
    # Ids have no whitespace, so joined pairs are unambiguous.
    pairs = pc.binary_join_element_wise(qrels["query_id"], qrels["doc_id"], " ")
    kept = kept_rows(parts, pairs, lambda: qrels["relevance"].to_numpy(), JUDGEMENT, "grade")
    if kept is None:
        return qrels
    counts["repeated rows"] = qrels.num_rows - len(kept)
    return qrels.take(kept)


def in_collection(doc_ids: pa.Array, passages: str, aggregate: str) -> pa.Array:
    """Tell for each id whether the collection has it, in a stream of the collection's ids."""
    found = np.zeros(len(doc_ids), bool)
    for batch in iter_batches(passages, IDS, rows=IDS_AT_ONCE):
        found |= pc.is_in(doc_ids, value_set=documents_of(batch["doc_id"], aggregate)).to_numpy(zero_copy_only=False)
        if found.all():
            break
    return pa.array(found)


def _first(ids: pa.Array) -> str:
    return shorten(ids[0].as_py())


def select(table: pa.Table, query_ids: pa.Array | pa.ChunkedArray, inside: bool = True) -> pa.Table:
    """Keep the rows of these queries, or those of all others."""
    selected = pc.is_in(table["query_id"], value_set=query_ids)
    return table.filter(selected if inside else pc.invert(selected))


def leave_out(queries: pa.Table, others: pa.Table) -> pa.Table:
    """Drop the queries that have the text of one of the others; equal ids alone mean nothing."""
    texts = plain(queries["text"])
    same = pc.and_(pc.is_in(texts, value_set=plain(others["text"])), pc.not_equal(texts, ""))
    return queries.filter(pc.invert(same))


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
    output_oddities: str | None = optional(None, "CSV to write: ids of what is odd", "FILE")
    unjudged_queries: Literal["drop", "keep"] = optional(
        Split.unjudged_queries, f"queries without judgements (default: {Split.unjudged_queries})"
    )
    unknown: Literal["refuse", "keep"] = optional(Split.unknown, "judgements of which most documents are absent")
    for_training: bool = flag("drop judgements of documents that the collection lacks")
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
    qrels, counts, oddities = QRELS.empty_table(), dict[str, int](), Oddities()
    if options.qrels:
        qrels, counts, oddities = read_qrels(options, queries["query_id"])
    judged = select(queries, qrels["query_id"])
    keep = not options.qrels or options.unjudged_queries == "keep"
    unjudged = f"{queries.num_rows - judged.num_rows} of them without judgements ({'kept' if keep else 'dropped'})"
    log.info("%d queries, %s, %d judgements", queries.num_rows, unjudged, qrels.num_rows)
    queries = queries if keep else judged
    for kind, others in _left_out(options):
        remaining = leave_out(queries, others)
        dropped = select(queries, remaining["query_id"], inside=False)["query_id"].to_pylist()
        counts |= {kind: len(dropped)} if dropped else {}
        oddities += [(kind, query_id, "") for query_id in dropped]
        queries, qrels = remaining, select(qrels, remaining["query_id"])
    for kind, count in counts.items():
        if kind not in FOUND:
            log.warning("%s: %d", kind, count)
    queries, qrels = _drawn(options, queries, qrels)
    if not queries.num_rows:
        raise input_error(", ".join(options.queries), "no query left", "at least one", "change what is left out")
    # No file appears before both are complete.
    with open_writer(options.output_queries, QUERIES) as writer, open_writer(options.output_qrels, QRELS) as other:
        writer.write_table(queries)
        other.write_table(qrels)
    if options.output_counts:
        write_artifact(options.output_counts, counts)
    if options.output_oddities:
        write_text(options.output_oddities, csv_text(("kind", "query_id", "doc_id"), oddities))
    log.info("wrote %d queries and %d judgements", queries.num_rows, qrels.num_rows)


def _drawn(options: Options, queries: pa.Table, qrels: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Keep a part of the split, a sample, or both, with its judgements."""
    if options.hold_out is not None:
        # The two parts of two calls are complementary; unjudged queries belong to the rest.
        held = draw(qrels["query_id"], options.hold_out, options.seed, "--hold-out", "judged queries", left=1)
        inside = options.part == "held-out"
        queries, qrels = select(queries, held, inside), select(qrels, held, inside)
    if options.sample is not None:
        sample = min(options.sample, queries.num_rows) if options.at_most else options.sample
        if sample < options.sample:
            log.info("%d queries, fewer than the sample of %d: all are kept", sample, options.sample)
        queries = select(queries, draw(queries["query_id"], sample, options.seed, "--sample", "queries"))
        qrels = select(qrels, queries["query_id"])
    return queries, qrels


def _left_out(options: Options) -> Iterator[tuple[str, pa.Table]]:
    """Yield the queries of other splits, and what those that are dropped because of them are counted as."""
    for path in options.without:
        yield f"queries dropped, as {Path(path).stem.removeprefix('queries.')} has them", read_table(path, QUERIES)


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
