"""Make a split (train, dev, test), or a part of one, from queries and judgements, checked against the collection.

Reads:  queries (cort/formats/topics.py) and judgements (cort/formats/judgements.py), each in one or more files;
        passages.parquet
Writes: queries and qrels as parquet, in the order of their files; JSON of how many judged passages were matched by
        id, by text, or not at all; CSV of what is odd (kind, query_id, doc_id)
Usage:  python -m cort.split --queries queries.tsv --qrels qrels.tsv --passages passages.parquet
            --output-queries queries.parquet --output-qrels qrels.parquet [--hold-out 1000 --part rest --seed 42]
            [--without dev.parquet --sample 1000 --seed 42]
"""

import logging
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cort.config.collection import Aggregation, AnySplit, HeldOut, Topics, Whole
from cort.config.fields import Seed
from cort.formats.artifacts import csv_text, write_artifact
from cort.formats.cleaning import plain
from cort.formats.duplicates import kept_rows
from cort.formats.judgements import is_quoted, iter_qrels, read_judged
from cort.formats.lines import Parts, Rows, iter_record_batches, none_of
from cort.formats.records import Qrel
from cort.formats.spellings import respell
from cort.formats.tables import DOC_IDS, PASSAGES, QRELS, QUERIES, iter_batches, open_writer, read_table
from cort.formats.topics import iter_queries
from cort.formats.visible import visible
from cort.retrieval.documents import documents_of
from cort.runtime import cli
from cort.runtime.errors import input_error, shorten
from cort.runtime.files import write_text
from cort.runtime.sampling import sample
from cort.runtime.sections import AnyFile, Maybe, Several, same_as

log = logging.getLogger(__name__)

# Ids of the collection: as many at once as are looked up fast.
IDS_AT_ONCE = 1 << 20
# What is odd: kind, query_id, doc_id; either id may be empty.
WITHOUT_TEXT, ABSENT = "judged queries without text", "judged documents absent"
RESPELLED = "judged documents found in another spelling of their ids"
Oddities = list[tuple[str, str, str]]
# Counts that are written even if they are 0.
FOUND = ("judgements_matched_by_id", "matched_by_text", "unmatched", "withdrawn")


def read_files(
    paths: Sequence[str], read: Callable[[str], Rows[Any]], schema: pa.Schema, kind: str, expected: str
) -> tuple[Parts, pa.Table]:
    """Read the records of all files into one table; refuse a file without any, which are called `kind`."""
    parts, tables = [], []
    for path in paths:
        rows = array("q")
        records = _noting(rows, read(path))
        tables.append(pa.Table.from_batches(iter_record_batches(records, schema), schema))
        if not rows:
            raise input_error(path, none_of(kind, path), expected, f"name the file that holds the {kind}")
        parts.append((path, rows))
    return parts, pa.concat_tables(tables)


def _noting(rows: "array[int]", records: Rows[Any]) -> Rows[Any]:
    """Yield the records, and append their rows to a list without an object per row."""
    for row, record in records:
        rows.append(row)
        yield row, record


def read_qrels(options: "Options", query_ids: pa.ChunkedArray) -> tuple[pa.Table, dict[str, int], Oddities]:
    """Read the judgements of all files. As in trec_eval, a document that the collection lacks counts as not retrieved.

    Judgements of queries without a text are dropped, as no system can answer them, and rows that are repeated. With
    `for_training`, so are those of absent documents, as no model can learn from them.

    :return: also counts, and what is odd.
    :raises InputError: for a pair with two grades, for no known query, and if most judged documents are absent.
    """
    counts: Counter[str] = Counter()
    read, names = partial(_judgements, options=options, counts=counts), ", ".join(options.qrels)
    parts, qrels = read_files(options.qrels, read, QRELS, "judgements", "at least one")
    if pc.max(qrels["relevance"]).as_py() < 1:
        raise input_error(names, "no grade above 0", "at least one relevant passage", "name other judgements")
    known = partial(in_collection, passages=options.passages, aggregate=options.aggregate)
    qrels, counts[RESPELLED], unknown = respell(qrels, known)
    # Ids have no whitespace, so joined pairs are unambiguous.
    pairs = pc.binary_join_element_wise(qrels["query_id"], qrels["doc_id"], " ")
    kept = kept_rows(parts, pairs, "judgement (query_id doc_id)", qrels["relevance"].to_numpy, "grade")
    if kept is not None:
        counts["repeated rows"] = qrels.num_rows - len(kept)
        qrels = qrels.take(kept)
    has_text = pc.is_in(qrels["query_id"], value_set=query_ids)
    if not pc.any(has_text).as_py():
        found, fix = f"no query_id of {', '.join(options.queries)}", "name the files that belong together"
        raise input_error(names, found, "judgements of these queries", fix)
    textless = pc.unique(qrels["query_id"].filter(pc.invert(has_text)))
    qrels = qrels.filter(has_text)
    doc_ids = pc.unique(qrels["doc_id"])
    absent = doc_ids.filter(pc.is_in(doc_ids, value_set=unknown))
    if 2 * len(absent) > len(doc_ids) and options.unknown == "refuse":
        first = shorten(absent[0].as_py())
        found = f"{len(absent)} of {len(doc_ids)} judged documents that the collection lacks, as {first}"
        fix = "name the judgements of this collection, or set `unknown: keep` to count them as not retrieved"
        raise input_error(names, found, "at least half of them in the collection", fix)
    is_absent = pc.is_in(qrels["doc_id"], value_set=absent)
    oddities = [(WITHOUT_TEXT, query_id, "") for query_id in textless.to_pylist()]
    oddities += [(ABSENT, row["query_id"], row["doc_id"]) for row in qrels.filter(is_absent).to_pylist()]
    counts.update({WITHOUT_TEXT: len(textless), ABSENT: len(absent)})
    qrels = qrels.filter(pc.invert(is_absent)) if options.for_training else qrels
    return qrels, {name: count for name, count in counts.items() if count or name in FOUND}, oddities


def _judgements(path: str, options: "Options", counts: Counter[str]) -> Rows[Qrel]:
    """Read a file of judgements; those of texts are counted."""
    if not is_quoted(path):
        return iter_qrels(path)
    grouping = None if options.aggregate == "none" else partial(documents_of, how=options.aggregate)
    qrels, found = read_judged(path, iter_batches(options.passages, PASSAGES), grouping)
    counts.update(found)
    log.info("%s: %s", path, found)
    return iter(qrels)


def in_collection(doc_ids: pa.Array, passages: str, aggregate: str) -> pa.Array:
    """Tell for each id whether the collection has it, in a stream of the collection's ids."""
    found = np.zeros(len(doc_ids), bool)
    for batch in iter_batches(passages, DOC_IDS, rows=IDS_AT_ONCE):
        found |= pc.is_in(doc_ids, value_set=documents_of(batch["doc_id"], aggregate)).to_numpy(zero_copy_only=False)
        if found.all():
            break
    return pa.array(found)


def select(table: pa.Table, query_ids: pa.Array | pa.ChunkedArray, inside: bool = True) -> pa.Table:
    """Keep the rows of these queries, or those of all others."""
    selected = pc.is_in(table["query_id"], value_set=query_ids)
    return table.filter(selected if inside else pc.invert(selected))


def shared(queries: pa.Table, others: pa.Table) -> pa.Array:
    """Return the ids of queries that have the text of one of the others; equal ids alone mean nothing."""
    texts = plain(queries["text"])
    same = pc.and_(pc.is_in(texts, value_set=plain(others["text"])), pc.not_equal(texts, ""))
    return queries["query_id"].filter(same)


def draw_ids(query_ids: pa.ChunkedArray, count: int, seed: int) -> pa.Array:
    """Draw `count` ids."""
    return pa.array(sample(pc.unique(query_ids).to_pylist(), count, seed), "string")


class Options(Aggregation, Topics):
    """Options of this stage."""

    queries: Several[AnyFile]
    """Queries, in any format of cort/formats/topics.py."""
    qrels: Several[AnyFile] = ()
    """Judgements; none: keep all queries."""
    passages: AnyFile
    """Table that cort.collection wrote."""
    output_queries: AnyFile
    """Parquet table to write."""
    output_qrels: AnyFile
    """Parquet table to write."""
    output_counts: Maybe[AnyFile] = None
    """JSON to write: how judged passages were found again."""
    output_oddities: Maybe[AnyFile] = None
    """CSV to write: ids of what is odd."""
    unjudged_queries: Literal["drop", "keep"] = same_as(AnySplit, "unjudged_queries")
    unknown: Literal["refuse", "keep"] = same_as(AnySplit, "unknown")
    for_training: bool = False
    """Drop judgements of documents that the collection lacks."""
    hold_out: Maybe[int] = same_as(HeldOut, "hold_out", default=None)
    part: Literal["held-out", "rest"] = "held-out"
    """Which side of --hold-out to write."""
    without: Several[AnyFile] = ()
    """Tables of queries to leave out."""
    numbered: bool = same_as(AnySplit, "numbered")
    visible: bool = False
    """Remove invisible characters of queries and compose accents, as in the documents of a folder."""
    sample: Maybe[int] = same_as(Whole, "sample")
    seed: int = same_as(Seed, "seed")
    """Of the draws."""


def stage(options: Options) -> None:
    """Select queries and judgements, and write them."""
    numbered = options.numbered or all(map(is_quoted, options.qrels))
    doubts = Counter[str]()
    read = partial(iter_queries, field=options.field, numbered=numbered, doubts=doubts)
    parts, queries = read_files(options.queries, read, QUERIES, "queries", "one query per line")
    if options.visible:
        texts = pa.chunked_array([[visible(text) for text in queries["text"].to_pylist()]], "string")
        queries = queries.set_column(1, QUERIES.field("text"), texts)
    # Refuses a query_id that is there twice; no row is dropped.
    kept_rows(parts, queries["query_id"], "query_id")
    qrels, counts, oddities = QRELS.empty_table(), dict[str, int](), Oddities()
    if options.qrels:
        qrels, counts, oddities = read_qrels(options, queries["query_id"])
    counts |= doubts
    judged = select(queries, qrels["query_id"])
    keep = not options.qrels or options.unjudged_queries == "keep"
    unjudged = f"{queries.num_rows - judged.num_rows} of them without judgements ({'kept' if keep else 'dropped'})"
    log.info("%d queries, %s, %d judgements", queries.num_rows, unjudged, qrels.num_rows)
    queries = queries if keep else judged
    for path in options.without:
        kind = f"queries dropped, as {Path(path).stem.removeprefix('queries.')} has them"
        dropped = shared(queries, read_table(path, QUERIES))
        counts |= {kind: len(dropped)} if len(dropped) else {}
        oddities += [(kind, query_id, "") for query_id in dropped.to_pylist()]
        queries = select(queries, dropped, inside=False)
    for kind, count in counts.items():
        if kind not in FOUND:
            log.warning("%s: %d", kind, count)
    queries = _drawn(options, queries, select(qrels, queries["query_id"]))
    qrels = select(qrels, queries["query_id"])
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


def _drawn(options: Options, queries: pa.Table, qrels: pa.Table) -> pa.Table:
    """Keep a part of the queries, a sample, or both."""
    if options.hold_out is not None:
        judged = pc.count_distinct(qrels["query_id"]).as_py()
        if options.hold_out >= judged:
            found, fix = (
                f"{options.hold_out} of {judged} judged queries",
                "hold out fewer, or bring more judged queries",
            )
            raise input_error("--hold-out", found, "fewer, as one must be left", fix)
        # The two parts of two calls are complementary; unjudged queries belong to the rest.
        held = draw_ids(qrels["query_id"], options.hold_out, options.seed)
        queries = select(queries, held, options.part == "held-out")
    if options.sample is not None and options.sample < queries.num_rows:
        return select(queries, draw_ids(queries["query_id"], options.sample, options.seed))
    if options.sample is not None:
        log.info("%d queries, no more than the sample of %d: all are kept", queries.num_rows, options.sample)
    return queries


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
