"""Compare two sets of labels of the same queries, such as those of a person and those of a language model.

Queries are the same if they have the same id and text. On the documents that both sets judge: Cohen's kappa on
relevant or not, and the quadratic-weighted kappa on grades; those below 0 count as 0. On the systems: Kendall's
tau-b between their rankings by the first measure, if both splits have the same, with a 95 % bootstrap interval over
the common queries.

Reads:  queries, judgements, and values per query of every system, of two splits
Writes: agreement.json (`cort.evaluation.agreement.Agreement`)
"""

import logging

import numpy as np

from cort.config.collection import AnySplit
from cort.config.fields import Seed
from cort.evaluation.agreement import Agreement, correlate, kappa
from cort.evaluation.measures import read_qrels
from cort.evaluation.options import JudgedOptions
from cort.evaluation.values import check_named, read_values
from cort.formats import tables
from cort.formats.artifacts import write_artifact
from cort.runtime.sections import ParquetFile, Several, Text, same_as

log = logging.getLogger(__name__)


class Options(JudgedOptions):
    """Options of this stage."""

    queries: ParquetFile
    per_query: Several[ParquetFile] = ()
    """Values of every query, a file per system."""
    other: Text
    """The other split."""
    other_queries: ParquetFile
    other_qrels: ParquetFile
    other_relevance_level: int = same_as(AnySplit, "relevance_level")
    other_per_query: Several[ParquetFile] = ()
    """Values of every query, of the same systems."""
    seed: int = same_as(Seed, "seed")
    """Of the bootstrap."""


def stage(options: Options) -> None:
    """Compare labels and rankings."""
    check_named(options.per_query, {"--other-per-query": options.other_per_query})
    levels = options.relevance_level, options.other_relevance_level
    texts, others = tables.read_queries(options.queries), tables.read_queries(options.other_queries)
    first, second = read_qrels(options.qrels, levels[0]), read_qrels(options.other_qrels, levels[1])
    query_ids = [query for query in texts if query in first and query in second and others[query] == texts[query]]
    judged = [(first[query], second[query]) for query in query_ids]
    pairs = [(one[doc_id], other[doc_id]) for one, other in judged for doc_id in one if doc_id in other]
    grades = np.array(pairs, np.int64).reshape(-1, 2)
    kappas = kappa((grades >= levels).astype(np.int64)), kappa(np.maximum(grades, 0))
    values = [read_values(path) for path in (*options.per_query, *options.other_per_query)]
    measures = {system.measures[0] for system in values}
    measure, tau = measures.pop() if len(measures) == 1 else None, None
    if measure and query_ids and len(values) > 2:
        by_query = [dict(zip(system.query_ids, system.values[:, 0].tolist(), strict=True)) for system in values]
        tau = correlate(np.array([[column[query] for column in by_query] for query in query_ids]), options.seed)
    names, systems = (options.split, options.other), len(options.per_query)
    agreement = Agreement(*names, len(query_ids), len(pairs), *kappas, systems, measure, tau)
    write_artifact(options.output, agreement)
    log.info("%s", agreement)
