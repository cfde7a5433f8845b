"""Make the queries and judgements of a split from titles, headings or sentences of documents, or queries of passages.

Documents are divided among the splits by a hash of the seed and their ids: another document moves no other. A query
above texts of several documents is dropped, whatever their splits are; one above several texts of a document has all of
these as relevant passages.

Reads:  queries with the ids of passages, of `cort.import_collection --generate` or `cort.passage_queries`; or the
        predicted queries of each passage
Writes: queries as BEIR .jsonl, judgements as TREC qrels, JSON of how many queries are kept and dropped
Usage:  python -m cort.generate --candidates candidates.parquet --splits validation test --split test --seed 42
            --output-queries queries.jsonl --output-qrels qrels.tsv --output-counts counts.json
"""

import logging
import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats.artifacts import write_artifact
from cort.formats.cleaning import plain
from cort.formats.judgements import write_judged
from cort.formats.records import Qrel, Text
from cort.formats.tables import EXPANSIONS, PASSAGES, has_column, read_table
from cort.retrieval.documents import documents_of, split_of
from cort.settings.collection import Aggregation, Lengths
from cort.settings.fields import SEED
from cort.sources.passages import count_words
from cort.system import cli
from cort.system.errors import input_error
from cort.system.options import optional, options_class, required

log = logging.getLogger(__name__)


@options_class
class Options(Aggregation, Lengths):
    """Options of this stage."""

    candidates: tuple[str, ...] = required("PARQUET", "queries with the ids of passages, or predicted queries")
    splits: tuple[str, ...] = required("NAME", "among which documents are divided")
    split: str = required("NAME", "the one to write")
    seed: int = optional(SEED, "of the division of documents")
    output_queries: str = required("FILE", "BEIR .jsonl to write")
    output_qrels: str = required("FILE", "TREC qrels to write")
    output_counts: str = required("FILE", "JSON of numbers of queries")


def read_candidates(path: str) -> pa.Table:
    """Read queries with the ids of passages; of predicted queries the first of each passage."""
    if not has_column(path, "queries"):
        return read_table(path, PASSAGES)
    table = read_table(path, EXPANSIONS)
    predicted = table.filter(pc.greater(pc.list_value_length(table["queries"]), 0))
    return pa.table([predicted["doc_id"], pc.list_element(predicted["queries"], 0)], schema=PASSAGES)


def queries_of_split(candidates: pa.Table, options: Options) -> pa.Table:
    """Collect the queries of a split: text, document, list of passages, and whether other documents have it, too."""
    documents, keys = documents_of(candidates["doc_id"], "max"), plain(candidates["text"])
    shared = pa.table({"key": keys, "document": documents}).group_by("key").aggregate([("document", "count_distinct")])
    shared = shared.filter(pc.field("document_count_distinct") > 1)
    columns = {"document": documents, "text": candidates["text"], "shared": pc.is_in(keys, value_set=shared["key"])}
    names = pc.unique(documents)
    own = [split_of(name.as_py(), options.splits, options.seed) == options.split for name in names]
    chosen = pc.is_in(documents, value_set=names.filter(pa.array(own, "bool")))
    table = pa.table({**columns, "doc_id": candidates["doc_id"]}).filter(chosen)
    return table.group_by([*columns], use_threads=False).aggregate([("doc_id", "list")]).combine_chunks()


def choose(queries: pa.Table, options: Options) -> tuple[pa.Table, dict[str, int]]:
    """Drop queries of other lengths and those that several documents have; return the numbers of dropped and kept."""
    words = np.array([count_words(text.as_py()) for text in queries["text"]], "int64")
    dropped = {
        f"dropped: fewer than {options.min_words} words": words < options.min_words,
        f"dropped: more than {options.max_words} words": words > options.max_words,
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
    queries, counts = choose(queries_of_split(candidates, options), options)
    log.info("%s", ", ".join(f"{name} {count}" for name, count in counts.items()))
    if not queries.num_rows:
        fix = f"change `generate` of {options.split}, or add documents"
        raise input_error(options.candidates[0], "no query left", "one or more", fix)
    query_ids = query_ids_of(queries["document"].combine_chunks())
    lists = queries["doc_id_list"].combine_chunks()
    columns = [query_ids.take(pc.list_parent_indices(lists)), documents_of(lists.flatten(), options.aggregate)]
    judged = pa.table(columns, ["query_id", "doc_id"])
    # Several passages of a document are one judgement.
    judged = judged.group_by(judged.column_names, use_threads=False).aggregate([])
    write_judged(
        options.output_queries,
        options.output_qrels,
        (Text(query_id.as_py(), text.as_py()) for query_id, text in zip(query_ids, queries["text"], strict=True)),
        (Qrel(query_id.as_py(), doc_id.as_py(), 1) for query_id, doc_id in zip(*judged.columns, strict=True)),
    )
    write_artifact(options.output_counts, counts)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
