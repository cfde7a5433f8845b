"""Runs of searches by Lucene."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cort.retrieval.lucene import LuceneProcess, Similarity, rank_all
from cort.retrieval.search_options import LuceneSearchOptions, SearchOptions
from cort.retrieval.search_runs import write_rankings

# For fewer queries, Java's optimising compiler costs more than it gains: 3.5 CPU seconds for 323 of NFCorpus instead of
# 2.3, and 5.1 for 300 of SQuAD instead of 3.3; they are equal at 4,000 there, and earlier in larger collections.
FEW_QUERIES = 500


class LuceneRunOptions(LuceneSearchOptions, SearchOptions):
    """Options of stages that search for many queries with Lucene and write a run."""


def search_lucene(
    options: LuceneRunOptions,
    forms: Sequence[str],
    queries: Iterable[tuple[str, str]],
    count: int,
    similarity: Similarity,
    own: Mapping[str, Similarity] | None = None,
) -> None:
    """Search for (id, text) of `count` queries and write a run; `own` has the similarity of queries with another."""
    brief = count < FEW_QUERIES
    with LuceneProcess(options.index, options.threads, options.memory_mb, forms, brief=brief) as lucene:
        write_rankings(options, rank_all(lucene, queries, similarity, options.reach, own), count, "by Lucene", least=1)
