"""Make the queries and judgements of a split from titles, headings or sentences of documents, or queries of passages.

Documents are divided among the splits by a hash of the seed and their ids: another document moves no other. A query
above several texts of a document has all of these as relevant passages. Dropped is what nobody would ask, or cannot
judge: code such as `impl Shl<&u64> for isize`; a query above texts of several documents, whatever their splits are; and
one whose passage has a twin, a passage of the same text in another document, which would count as irrelevant.

A query's id depends on its document and text alone, and a sample on the seed and the ids: documents that are divided
into passages differently share most queries.

Reads:  queries with the ids of passages, of `cort.collection --generate` or `cort.passage_queries`, or the predicted
        queries of each passage; passages.parquet
Writes: queries as BEIR .jsonl, judgements as TREC qrels, JSON of how many queries are kept and dropped
Usage:  python -m cort.generate --candidates candidates.parquet --passages passages.parquet --splits validation test
            --split test --seed 42 --output-queries queries.jsonl --output-qrels qrels.tsv --output-counts counts.json
"""

import hashlib
import logging
import re
import sys
from collections.abc import Sequence
from itertools import repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cort.config.collection import Aggregation, Lengths, Whole
from cort.config.fields import Seed
from cort.formats import records
from cort.formats.artifacts import write_artifact
from cort.formats.cleaning import plain
from cort.formats.duplicates import numbers_of, twins_of
from cort.formats.judgements import write_judged
from cort.formats.records import Qrel
from cort.formats.tables import EXPANSIONS, PASSAGES, has_column, iter_batches, read_table
from cort.retrieval.documents import documents_of, hash_of, split_of
from cort.runtime import cli
from cort.runtime.errors import input_error
from cort.runtime.sections import AnyFile, Maybe, ParquetFile, Several, Text, same_as
from cort.sources.passages import count_words

log = logging.getLogger(__name__)

#: begins the names of counts of dropped queries
DROPPED = "dropped: "
# A word of code: brackets and operators, a path of modules, a call, a reference. "word(s)", "$5" and "~5" are none.
CODE_WORD = re.compile(r"[<>{}\[\]=_|\\^*@]|::|->|[$~](?!\d)|\w\((?!e?s\))|^&\w")
# Something without letters and digits that is more than a dash or another sign.
OPERATOR = re.compile(r"=|[<>&|:*+{}\[\]()-]{2,}")
# A call whose arguments are further words.
CALL = re.compile(r"\w\([^)\s]*(\s|$)")
# A keyword of programming languages, not as the first word of a sentence, before a name with a capital or a digit.
DECLARATION = re.compile(
    r"(?:(?:pub|public|private|protected|static|final|abstract|virtual|unsafe|async|const|export|default) )*"
    r"(?:class|const|def|enum|fn|func|function|impl|interface|mod|namespace|struct|trait|type|typedef|union) "
    r"\S*[A-Z0-9]"
)
# One word of code in as many, or more, is a signature.
WORDS_PER_CODE = 5
# Hexadecimal digits of a query's id.
ID_DIGITS = 12


class Options(Aggregation, Lengths):
    """Options of this stage."""

    candidates: Several[ParquetFile]
    """Queries with the ids of passages, or predicted queries."""
    passages: ParquetFile
    """The collection."""
    splits: Several[Text]
    """Among which documents are divided."""
    split: Text
    """The one to write."""
    seed: int = same_as(Seed, "seed")
    """Of the division of documents, and the sample."""
    sample: Maybe[int] = same_as(Whole, "sample")
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
    columns = {"document": documents, "text": candidates["text"], "shared": shared}
    table = pa.table({**columns, "doc_id": candidates["doc_id"]})
    table = table.filter(pc.is_in(documents, value_set=pa.array(own, "string")))
    return table.group_by([*columns], use_threads=False).aggregate([("doc_id", "list")]).combine_chunks()


def is_code(text: str) -> bool:
    """Tell whether a text declares something, has a call, or has code in one of `WORDS_PER_CODE` words, or more."""
    words = text.split()
    signs = [bool((CODE_WORD if any(map(str.isalnum, word)) else OPERATOR).search(word)) for word in words]
    return bool(DECLARATION.match(text) or CALL.search(text)) or (
        any(signs) and WORDS_PER_CODE * sum(signs) >= len(words)
    )


def passages_with_twins(path: str, aggregate: str) -> pa.Array:
    """List the passages whose text another document has, too; without aggregation, or another passage."""
    numbers = [np.empty(0, np.uint64), *(numbers_of(batch["text"]) for batch in iter_batches(path, PASSAGES))]
    twins = twins_of(path, np.concatenate(numbers))
    doc_ids = pa.array([*twins], "string")
    table = pa.table({"doc_id": doc_ids, "first": [*twins.values()], "owner": documents_of(doc_ids, aggregate)})
    owners = table.group_by("first").aggregate([("owner", "count_distinct")])
    apart = owners.filter(pc.field("owner_count_distinct") > 1)["first"]
    return table.filter(pc.is_in(table["first"], value_set=apart))["doc_id"].combine_chunks()


def choose(queries: pa.Table, lengths: Lengths, twins: pa.Array) -> tuple[pa.Table, dict[str, int]]:
    """Drop queries that nobody would ask, or that judge unfairly; return the numbers of dropped and kept.

    :param twins: passages that have the text of others.
    """
    texts, lists = queries["text"].to_pylist(), queries["doc_id_list"].combine_chunks()
    words = np.array([*map(count_words, texts)], "int64")
    with_twins = np.zeros(len(texts), bool)
    with_twins[pc.list_parent_indices(lists).filter(pc.is_in(lists.flatten(), value_set=twins)).to_numpy()] = True
    dropped = {
        f"{DROPPED}fewer than {lengths.min_words} words": words < lengths.min_words,
        f"{DROPPED}more than {lengths.max_words} words": words > lengths.max_words,
        f"{DROPPED}code": np.array([*map(is_code, texts)], bool),
        f"{DROPPED}the same in several documents": queries["shared"].to_numpy(),
        f"{DROPPED}the passage has the text of another one": with_twins,
    }
    kept = len(dropped)
    outcome = np.select([*dropped.values()], range(kept), kept)
    counts = zip([*dropped, "kept (before `sample`)"], np.bincount(outcome, minlength=kept + 1).tolist(), strict=True)
    return queries.filter(pa.array(outcome == kept)), dict(counts)


def query_ids_of(documents: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Make ids of documents and digests of texts: ``guide.md?03c1f2a9d7e4``."""
    digests = (hashlib.sha256(text.encode()).hexdigest()[:ID_DIGITS] for text in texts)
    return [f"{document}?{digest}" for document, digest in zip(documents, digests, strict=True)]


def draw_queries(queries: pa.Table, count: int, seed: int) -> pa.Table:
    """Draw queries by a hash of the seed and their ids; their order stays."""
    numbers = [hash_of(seed, query_id) for query_id in queries["query_id"].to_pylist()]
    drawn = sorted(range(len(numbers)), key=numbers.__getitem__)[:count]
    return queries.take(pa.array(sorted(drawn), "int64")).combine_chunks()


def stage(options: Options) -> None:
    """Write the queries and judgements of the split."""
    candidates = pa.concat_tables(map(read_candidates, options.candidates))
    queries = queries_of_split(candidates, options.split, options.splits, options.seed)
    queries, counts = choose(queries, options, passages_with_twins(options.passages, options.aggregate))
    log.info("%s", ", ".join(f"{name} {count}" for name, count in counts.items()))
    if not queries.num_rows:
        reasons = "; ".join(f"{number} {name.removeprefix(DROPPED)}" for name, number in counts.items() if number)
        found = f"no query left for {options.split} of {candidates.num_rows} candidates ({reasons or 'none'} here)"
        fix = (
            "generate them from titles, headings or sentences, whichever these documents have, add documents, or "
            "remove those that repeat others, such as a whole book on one page"
        )
        raise input_error(options.candidates[0], found, "one or more", fix)
    query_ids = query_ids_of(queries["document"].to_pylist(), queries["text"].to_pylist())
    queries = queries.append_column("query_id", pa.array(query_ids, "string"))
    if options.sample is not None:
        queries = draw_queries(queries, options.sample, options.seed)
    query_ids, lists = queries["query_id"].combine_chunks(), queries["doc_id_list"].combine_chunks()
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
