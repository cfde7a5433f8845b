"""Make queries of passages by asking a language model (`cort.models.endpoint`), for splits that are generated.

It is asked about as many passages of each split as its sample says, those with the smallest hashes of the seed and
their ids. Documents are divided among the splits as in `cort.generate`.

Reads:  passages.parquet
Writes: parquet table of queries, each with the id of its passage, for `cort.generate`
Usage:  python -m cort.passage_queries --passages passages.parquet --splits validation test --samples 500 500 --seed 42
            --model NAME --cache endpoint_cache/answers.sqlite --output candidates.parquet
"""

import sys
from heapq import nsmallest
from typing import Annotated

import pyarrow as pa
from pydantic import Field

from cort.config.collection import LanguageModel, Lengths
from cort.config.fields import Seed
from cort.formats.tables import DOC_IDS, PASSAGES, iter_batches, select_texts, write_table
from cort.models.endpoint import ask, refuse_nonsense
from cort.models.prompts import QUERY_PROMPT
from cort.retrieval.documents import document_of, hash_of, split_of
from cort.runtime import cli
from cort.runtime.sections import AnyFile, ParquetFile, Several, Text, default_of, same_as
from cort.sources.passages import count_words


class Options(LanguageModel):
    """Options of this stage."""

    passages: ParquetFile
    """The collection."""
    splits: Several[Text]
    """Among which documents are divided."""
    samples: Several[Annotated[int, Field(ge=1)]]
    """Passages of each split to ask about."""
    seed: int = same_as(Seed, "seed")
    """Of the division of documents."""
    cache: AnyFile
    """File of answers."""
    output: ParquetFile
    """Queries with the ids of passages."""


def draw_passages(options: Options) -> list[str]:
    """Draw passages of each split, in one pass over the collection."""
    sizes = dict(zip(options.splits, options.samples, strict=True))
    drawn: dict[str, list[tuple[int, str]]] = {split: [] for split in sizes}
    for batch in iter_batches(options.passages, DOC_IDS):
        for doc_id in batch["doc_id"].to_pylist():
            split = split_of(document_of(doc_id), options.splits, options.seed)
            drawn[split].append((hash_of(options.seed, doc_id), doc_id))
        drawn = {split: nsmallest(sizes[split], rows) for split, rows in drawn.items()}
    return [doc_id for rows in drawn.values() for _, doc_id in rows]


def stage(options: Options) -> None:
    """Ask, and write all queries: `cort.generate` drops and counts empty and long ones."""
    drawn = draw_passages(options)
    texts = select_texts(options.passages, PASSAGES, drawn)
    answers = ask(QUERY_PROMPT, [texts[doc_id] for doc_id in drawn], options, options.cache)
    queries = [answer.strip("\"'“”„«» ") for answer in answers]
    nonsense = sum(not 0 < count_words(query) <= default_of(Lengths, "max_words") for query in queries)
    refuse_nonsense(nonsense, len(queries), "a query")
    write_table(options.output, pa.table([drawn, queries], schema=PASSAGES))


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
