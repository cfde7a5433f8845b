"""Retrieve passages for every query: by terms (BM25, SPLADE), or by vectors of texts or tokens (ColBERT).

Results do not depend on shards or threads, nor exact results on the device. Passages are ordered by (-score, doc_id).
The width of an approximate search determines how many of the exact results it finds and how long it takes. With --audit
it is the smallest width that reaches the --recall of exact retrieval at the largest depth of the audit.

Usage: python -m cort.retrieve bm25 --index lucene --queries queries.dev.parquet --k1 0.9 --b 0.4 --depth 1000
           --threads 2 --memory-mb 2000 --tag bm25 --output bm25.trec
       python -m cort.retrieve impacts --index impacts --queries queries.dev.parquet --depth 1000 --threads 2
           --memory-mb 2000 --tag splade --output splade.trec
       python -m cort.retrieve exact --queries queries.arrow --passages 1-of-2.arrow 2-of-2.arrow --depth 1000
           --threads 4 --tag NAME --output run.trec
       python -m cort.retrieve graph --kind onng --index onng --width 0.1 --queries queries.arrow --depth 1000
           --threads 4 --tag NAME --output run.trec
       python -m cort.retrieve tokens --model rerankers/late/best --queries queries.test.arrow
           --passages 1-of-2.arrow 2-of-2.arrow --depth 1000 --threads 4 --tag NAME --output run.trec
       python -m cort.retrieve ivfpq --model rerankers/late/best --queries queries.test.arrow
           --passages 1-of-2.arrow 2-of-2.arrow --index ivfpq --width 32 --candidates 1024 --depth 1000 --threads 4
           --tag NAME --output run.trec
       python -m cort.retrieve ivfpq --queries queries.arrow --passages 1-of-2.arrow 2-of-2.arrow --index ivfpq
           --width 32 --candidates 1024 --depth 1000 --threads 4 --tag NAME --output run.trec
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from cort.formats import tables
from cort.formats.cleaning import FORMS
from cort.formats.records import Ranking
from cort.formats.runs import write_run
from cort.formats.shards import (
    Shard,
    Tokens,
    count_rows,
    open_both,
)
from cort.models.tokenizer import fingerprint
from cort.models.truncation import log_truncation
from cort.retrieval.anserini import IMPACTS
from cort.retrieval.audits import audited_width
from cort.retrieval.graph_search import GraphSearch, open_index, open_queries
from cort.retrieval.impacts import as_text
from cort.retrieval.indexes import INDEXES, RECALL
from cort.retrieval.lucene import (
    BY_IMPACTS,
    LuceneProcess,
    Parameters,
    Similarity,
    parameters_of_folds,
    rank_all,
    read_parameters,
)
from cort.retrieval.options import (
    GraphOptions,
    IvfPqOptions,
    LuceneSearchOptions,
    SearchOptions,
    TokenOptions,
)
from cort.retrieval.rankings import Index, batches_of, rank
from cort.runtime.commands import Commands, main_of_commands
from cort.runtime.devices import lease
from cort.runtime.errors import input_error
from cort.runtime.memory import free_memory
from cort.runtime.options import optional, options_class, required, thread_count
from cort.runtime.progress import track
from cort.settings.fields import as_key
from cort.settings.lexical import LexicalIndex
from cort.settings.models import Encoder
from cort.settings.systems import ExactSearch, Reduced, Storage, Width

if TYPE_CHECKING:
    from cort.retrieval.ivfpq import IvfPqSearch, Scoring
    from cort.retrieval.max_similarity import TokenIndex

log = logging.getLogger(__name__)

# For fewer queries, Java's optimising compiler costs more than it gains: 3.5 CPU seconds for 323 of NFCorpus instead of
# 2.3, and 5.1 for 300 of SQuAD instead of 3.3; they are equal at 4,000 there, and earlier in larger collections.
FEW_QUERIES = 500

WIDTHS = ", ".join(f"{kind.parameter} {kind.default:g}" for kind in INDEXES.values())


@options_class
class ExactOptions(SearchOptions):
    """Exact retrieval: the passages with the largest inner products.

    Reads:  embedding shards of the queries and of the passages, of one model
    Writes: run.trec
    """

    queries: tuple[str, ...] = required("ARROW", "embedding shards of the queries")
    passages: tuple[str, ...] = required("ARROW", "all embedding shards")
    threads: int = thread_count(len(os.sched_getaffinity(0)))
    device: Literal["auto", "cpu", "cuda"] = "auto"
    gpus: int = optional(1, "GPUs that share the passages", "N", ge=1, le=1024)
    memory_mb: int = optional(0, "memory, half of which may hold the vectors", "MB", ge=0)
    dimension: int | None = as_key(ExactSearch, "dimension")
    storage: Storage | None = as_key(ExactSearch, "storage")
    matryoshka: bool = as_key(Encoder, "matryoshka", default=False)


@options_class
class WidthOptions(SearchOptions):
    """Options of commands that search an approximate index."""

    width: float | None = optional(None, f"of the search, without --audit (default: {WIDTHS})", "W")
    audit: str | None = optional(None, "instead of --width: what `audit` wrote", "JSON")
    recall: float = as_key(Width, "recall", default=RECALL)


@options_class
class GraphRunOptions(GraphOptions, WidthOptions):
    """Approximate retrieval through a graph index, ONNG or HNSW.

    The width of an ONNG is epsilon (CoRT paper, section 4.5.3): a search follows edges to passages within (1 + epsilon)
    times the distance of the last result so far. The width of an HNSW index is ef: a search keeps the best `ef`
    passages found so far, so ef must be at least the depth. Scores are the inner products of exact retrieval, up to
    rounding.

    Reads:  embedding shards of the queries, the index; with --audit, what `audit` wrote
    Writes: run.trec
    """

    queries: tuple[str, ...] = required("ARROW", "embedding shards of the queries")
    threads: int = thread_count()


@options_class
class TokenRunOptions(TokenOptions, SearchOptions):
    """Exact retrieval by late interaction: the passages whose tokens match those of the query best (ColBERT).

    A score is that of the re-ranker for the same pair, up to the half precision of passage vectors.

    Reads:  a re-ranker folder, a token cache of the queries, token vectors of all passages
    Writes: run.trec
    """

    threads: int = thread_count(len(os.sched_getaffinity(0)))


@options_class
class IvfPqRunOptions(IvfPqOptions, WidthOptions):
    """Retrieval of candidates from an IVF-PQ index, which are scored exactly from the vectors of all passages.

    The index returns the `candidates` nearest vectors in the nearest lists; the width is the number of these lists
    (probes). With --model, it does so for each token of a query (ColBERT, end to end). Passages get the same scores as
    from `retrieve tokens` or, without --model, `retrieve exact`.

    Reads:  a re-ranker folder, a token cache of the queries, token vectors of all passages, or embedding shards of
            both; the index; with --audit, what `audit` wrote
    Writes: run.trec
    """

    threads: int = thread_count(len(os.sched_getaffinity(0)))


class Counted:
    """Rankings on their way into a file; `short` counts those with fewer results than `least`."""

    def __init__(self, rankings: Iterable[Ranking], least: int) -> None:
        self._rankings, self._least, self.short = rankings, least, 0

    def __iter__(self) -> Iterator[Ranking]:
        for ranking in self._rankings:
            self.short += len(ranking.doc_ids) < self._least
            yield ranking


def _write(options: SearchOptions, rankings: Iterable[Ranking], queries: int, how: str, least: int) -> None:
    """Write the rankings as a run; log the time per query, and how many have fewer than `least` results."""
    started = time.perf_counter()
    counted = Counted(track(rankings, queries, "queries"), least)
    lines = write_run(options.output, counted, options.tag, options.without_excluded)
    if counted.short:
        log.warning("%d of %d queries have fewer than %d results", counted.short, queries, least)
    milliseconds = (time.perf_counter() - started) * 1000 / max(queries, 1)
    log.info("%d queries %s, %d results, %.2f ms per query", queries, how, lines, milliseconds)


def retrieve_exactly(options: ExactOptions) -> None:
    """Rank all passages and write the run."""
    from cort.models import transformer
    from cort.retrieval.reduction import open_exact

    passages, queries = open_both(options.passages, options.queries)
    with lease(0 if options.device == "cpu" else options.gpus) as leased:
        device = transformer.choose_device(options.threads, leased).type
        if options.device == "cuda" != device:
            raise input_error("--device", "cuda", "a CUDA device", "use `auto` or `cpu`")
        on_cpu = "cpu" in (options.device, device)
        devices = ["cpu"] if on_cpu else [f"cuda:{number}" for number in range(max(len(leased), 1))]
        # Half, because other arrays need memory, too, and so may other processes.
        memory_mb = min(options.memory_mb, free_memory() >> 20) // 2
        reduced = Reduced(options.dimension, options.storage, options.matryoshka)
        index = open_exact(passages, reduced, devices, options.threads, memory_mb)
        _search(options, index, queries, f"on {', '.join(devices)}", count_rows(passages))


def _search(options: SearchOptions, index: Index, queries: Sequence[Shard], how: str, passages: int) -> None:
    """Search for the vectors of all queries, and write a run."""
    rankings = rank(index, batches_of(queries), options.reach)
    _write(options, rankings, count_rows(queries), how, min(options.reach, passages))


def _choose_width(options: WidthOptions, index: str, model: str) -> float:
    """Return the width given as option, the one that suffices according to an audit, or the default.

    :param model: fingerprint of the model that made the vectors.
    :raises InputError: for both, or for a width that no search can have.
    """
    if options.audit is not None:
        if options.width is not None:
            raise input_error("--width", f"{options.width:g} beside --audit", "one of them", "leave one out")
        return audited_width(options.audit, index, model, options.recall)
    kind = INDEXES[index]
    width = kind.default if options.width is None else options.width
    if not kind.allows(width, options.reach) or width != kind.typed(width):
        number = "an integer" if isinstance(kind.default, int) else "a number"
        bound = f"{options.reach} (the depth) or more" if kind.counts else f"above {kind.above:g}"
        raise input_error("--width", f"{kind.parameter} {width:g}", f"{number}, {bound}", "change it")
    return width


def retrieve_by_graph(options: GraphRunOptions) -> None:
    """Search the index and write a run."""
    graph = open_index(options.kind, options.index)
    width = _choose_width(options, options.kind, graph.meta.model)
    queries = open_queries(options.queries, graph.meta)
    how = f"at {INDEXES[options.kind].parameter} {width:g}"
    _search(options, GraphSearch(graph, width, options.threads), queries, how, graph.meta.count)


def retrieve_by_tokens(options: TokenRunOptions) -> None:
    """Score all passages and write a run."""
    _late_interaction(options, options.model, lambda passages: passages)


def retrieve_by_ivfpq(options: IvfPqRunOptions) -> None:
    """Score the candidates that the index finds, and write a run."""
    from cort.retrieval.exact import StoredVectors
    from cort.retrieval.ivfpq import IvfPqSearch, open_ivfpq

    options.check_candidates(options.reach)

    def open_search(passages: Scoring) -> IvfPqSearch:
        index = open_ivfpq(options.index, passages, options.candidates)
        probes = _choose_width(options, options.kind, index.meta.model)
        log.info("probes %d, candidates %d", probes, options.candidates)
        return IvfPqSearch(index, probes, options.threads)

    if options.model is not None:
        _late_interaction(options, options.model, open_search)
        return
    passages, queries = open_both(options.passages, [options.queries])
    _search(options, open_search(StoredVectors(passages)), queries, "through the index", count_rows(passages))


def _late_interaction(
    options: TokenRunOptions | IvfPqRunOptions, folder: str, open_search: Callable[[TokenIndex], Index]
) -> None:
    """Encode the queries, search the passages, or their index, and write a run."""
    from cort.models.transformer import choose_device
    from cort.retrieval.token_queries import TokenQueries

    encoder = TokenQueries(folder, options.passages, options.precision)
    search, queries = open_search(encoder.index), Tokens(options.queries, fingerprint(folder))
    log_truncation(log, options.queries, queries.lengths, encoder.truncated_to(queries))
    with lease() as leased:
        device = choose_device(options.threads, leased)
        encoder.place(device)
        rankings = rank(search, encoder.encode(queries, np.arange(len(queries))), options.reach)
        _write(options, rankings, len(queries), f"on {device}", min(options.reach, len(encoder.index)))


@options_class
class Bm25RunOptions(LuceneSearchOptions, SearchOptions):
    """BM25 retrieval over an index of Lucene, with the scores of Anserini's own runs.

    Lucene orders by (-score, doc_id); scores are rounded to four decimals, and the resulting ties broken by lowering
    scores by 0.000001 each. The run is ordered by these scores, then by doc_id, which differs from Lucene's order
    only where two scores above 32 agree to four decimals. A query without terms after analysis has no results.

    Reads:  the index, the queries (parquet)
    Writes: run.trec, in the order of the queries
    """

    k1: float = as_key(LexicalIndex, "k1")
    b: float = as_key(LexicalIndex, "b")
    parameters: str | None = optional(None, "k1 and b from `tune bm25`, instead of --k1 and --b", "JSON")
    folded: bool = optional(False, "with what was tuned for the fold of each query")


def retrieve_by_bm25(options: Bm25RunOptions) -> None:
    """Search for all queries and write a run."""
    parameters = read_parameters(options.parameters) if options.parameters else Parameters(options.k1, options.b)
    own = parameters_of_folds(options.parameters) if options.parameters and options.folded else {}
    columns = tables.read_table(options.queries, tables.QUERIES).columns
    query_ids, texts = (column.to_pylist() for column in columns)
    log.info("%d queries, k1 %g, b %g", len(texts), parameters.k1, parameters.b)
    by_query = {query_id: one.similarity for query_id, one in own.items()}
    _search_lucene(options, FORMS, zip(query_ids, texts, strict=True), len(texts), parameters.similarity, by_query)


def _search_lucene(
    options: Bm25RunOptions | ImpactRunOptions,
    forms: Sequence[str],
    queries: Iterable[tuple[str, str]],
    count: int,
    similarity: Similarity,
    own: Mapping[str, Similarity] | None = None,
) -> None:
    brief = count < FEW_QUERIES
    with LuceneProcess(options.index, options.threads, options.memory_mb, forms, brief=brief) as lucene:
        _write(options, rank_all(lucene, queries, similarity, options.reach, own), count, "by Lucene", least=1)


@options_class
class ImpactRunOptions(LuceneSearchOptions, SearchOptions):
    """Retrieval by the impacts of tokens (SPLADE) over an index of Lucene.

    The score of a passage is the inner product of its impacts and the query's, an integer. The ranking is exact.

    Reads:  the index, the impacts of the queries (parquet)
    Writes: run.trec, in the order of the queries
    """


def retrieve_by_impacts(options: ImpactRunOptions) -> None:
    """Search for all queries and write a run."""
    query_ids, *vectors = (column.to_pylist() for column in tables.read_table(options.queries, tables.IMPACTS).columns)
    log.info("%.1f terms per query", sum(map(len, vectors[0])) / max(len(query_ids), 1))
    # One after the other, as a text repeats each token hundreds of times.
    queries = ((query_id, as_text(*vector)) for query_id, *vector in zip(query_ids, *vectors, strict=True))
    _search_lucene(options, [IMPACTS], queries, len(query_ids), BY_IMPACTS)


COMMANDS: Commands = {
    "bm25": (Bm25RunOptions, retrieve_by_bm25),
    "impacts": (ImpactRunOptions, retrieve_by_impacts),
    "exact": (ExactOptions, retrieve_exactly),
    "graph": (GraphRunOptions, retrieve_by_graph),
    "tokens": (TokenRunOptions, retrieve_by_tokens),
    "ivfpq": (IvfPqRunOptions, retrieve_by_ivfpq),
}
main = main_of_commands(COMMANDS)

if __name__ == "__main__":
    sys.exit(main())
