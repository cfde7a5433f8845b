"""Make the queries and judgements of a split from titles, headings or sentences of documents, or queries of passages.

Documents are divided among the splits by a hash of the seed and their ids: another document moves no other. A query
above texts of several documents is dropped, whatever their splits are; one above several texts of a document has all of
these as relevant passages.

Reads:  queries with the ids of passages, of `cort.collection --generate` or `cort.passage_queries`; or the
        predicted queries of each passage
Writes: queries as BEIR .jsonl, judgements as TREC qrels, JSON of how many queries are kept and dropped
Usage:  python -m cort.generate --candidates candidates.parquet --splits validation test --split test --seed 42
            --output-queries queries.jsonl --output-qrels qrels.tsv --output-counts counts.json
"""

import logging
import sys
from collections.abc import Sequence
from itertools import repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cort.config.collection import Aggregation, Lengths
from cort.config.fields import Seed
from cort.formats import records
from cort.formats.artifacts import write_artifact
from cort.formats.cleaning import plain
from cort.formats.judgements import write_judged
from cort.formats.records import Qrel
from cort.formats.tables import EXPANSIONS, PASSAGES, has_column, read_table
from cort.retrieval.documents import documents_of, split_of
from cort.runtime import cli
from cort.runtime.errors import input_error
from cort.runtime.sections import AnyFile, ParquetFile, Several, Text, same_as
from cort.sources.passages import count_words

log = logging.getLogger(__name__)


class Options(Aggregation, Lengths):
    """Options of this stage."""

    candidates: Several[ParquetFile]
    """Queries with the ids of passages, or predicted queries."""
    splits: Several[Text]
    """Among which documents are divided."""
    split: Text
    """The one to write."""
    seed: int = same_as(Seed, "seed")
    """Of the division of documents."""
    output_queries: AnyFile
    """BEIR .jsonl to write."""
    output_qrels: AnyFile
    """TREC qrels to write."""
    output_counts: AnyFile
    """JSON of numbers of queries."""


def read_candidates(path: str) -> pa.Table:
    """Read queries with the ids of passages; of predicted queries the first of each passage."""
    if not has_column(path, "queries"):
        return read_table(path, PASSAGES)
    table = read_table(path, EXPANSIONS)
    predicted = table.filter(pc.greater(pc.list_value_length(table["queries"]), 0))
    return pa.table([predicted["doc_id"], pc.list_element(predicted["queries"], 0)], schema=PASSAGES)


def queries_of_split(candidates: pa.Table, split: str, splits: Sequence[str], seed: int) -> pa.Table:
    """Collect the queries of a split: text, document, list of passages, and whether other documents have it, too."""
    documents, keys = documents_of(candidates["doc_id"], "max"), plain(candidates["text"])
    owners = pa.table({"key": keys, "document": documents}).group_by("key").aggregate([("document", "count_distinct")])
    shared = pc.is_in(keys, value_set=owners.filter(pc.field("document_count_distinct") > 1)["key"])
    names = pc.unique(documents).to_pylist()
    own = [name for name in names if split_of(name, splits, seed) == split]
    table = pa.table(
        {"document": documents, "text": candidates["text"], "shared": shared, "doc_id": candidates["doc_id"]}
    )
    table = table.filter(pc.is_in(documents, value_set=pa.array(own, "string")))
    queries = table.group_by(["document", "text", "shared"], use_threads=False).aggregate([("doc_id", "list")])
    return queries.combine_chunks()


def choose(queries: pa.Table, lengths: Lengths) -> tuple[pa.Table, dict[str, int]]:
    """Drop queries of other lengths and those that several documents have; return the numbers of dropped and kept."""
    words = np.array([*map(count_words, queries["text"].to_pylist())], "int64")
    dropped = {
        f"dropped: fewer than {lengths.min_words} words": words < lengths.min_words,
        f"dropped: more than {lengths.max_words} words": words > lengths.max_words,
        "dropped: the same in several documents": queries["shared"].to_numpy(),
    }
    kept = len(dropped)
    outcome = np.select([*dropped.values()], range(kept), kept)
    counts = zip([*dropped, "kept (before `sample`)"], np.bincount(outcome, minlength=kept + 1).tolist(), strict=True)
    return queries.filter(pa.array(outcome == kept)), dict(counts)


def query_ids_of(documents: pa.Array) -> pa.Array:
    """Make ids from numbers in each document: ``guide.md?0``, ``guide.md?1`` and so on."""
    codes = documents.dictionary_encode().indices.to_numpy()
    _, first = np.unique(codes, return_index=True)
    numbers = pa.array(np.arange(len(codes)) - first[codes]).cast("string")
    return pc.binary_join_element_wise(documents, numbers, "?")


def stage(options: Options) -> None:
    """Write the queries and judgements of the split."""
    candidates = pa.concat_tables(map(read_candidates, options.candidates))
    queries, counts = choose(queries_of_split(candidates, options.split, options.splits, options.seed), options)
    log.info("%s", ", ".join(f"{name} {count}" for name, count in counts.items()))
    if not queries.num_rows:
        found = f"no query left for {options.split} of {candidates.num_rows} candidates"
        fix = "generate them from titles, headings or sentences, whichever these documents have, or add documents"
        raise input_error(options.candidates[0], found, "one or more", fix)
    query_ids = query_ids_of(queries["document"].combine_chunks())
    lists = queries["doc_id_list"].combine_chunks()
    columns = [query_ids.take(pc.list_parent_indices(lists)), documents_of(lists.flatten(), options.aggregate)]
    judged = pa.table(columns, ["query_id", "doc_id"])
    # Several passages of a document are one judgement.
    judged = judged.group_by(judged.column_names, use_threads=False).aggregate([])
    texts = map(records.Text, query_ids.to_pylist(), queries["text"].to_pylist())
    qrels = map(Qrel, *(column.to_pylist() for column in judged.columns), repeat(1))
    write_judged(options.output_queries, options.output_qrels, texts, qrels)
    write_artifact(options.output_counts, counts)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
