"""Analyse runs by depth, and what systems have in common.

Usage: python -m cort.analyze depths --candidates run.trec --scores scores.parquet --qrels qrels.parquet --depths 1 2 4
           8 16 --measures RR@10 nDCG@20 --system NAME --split dev --output depths.json
       python -m cort.analyze overlap --split eval --systems bm25 cort --runs bm25.trec cort.trec --queries
           queries.parquet --output overlap.json
       python -m cort.analyze agreement --split human --other model --queries human.parquet --other-queries
           model.parquet --qrels human.qrels.parquet --other-qrels model.qrels.parquet --per-query
           human.bm25.parquet human.cort.parquet --other-per-query model.bm25.parquet model.cort.parquet
           --output agreement.json
       python -m cort.analyze consistency --run repbert.trec --reference top1000.trec --reference-name top1000
           --depths 1 10 100 1000 --system repbert --split dev --output consistency.json
"""

import logging
import sys
from dataclasses import MISSING
from functools import partial

import numpy as np

from cort.evaluation.agreement import Agreement, correlate, kappa
from cort.evaluation.curves import (
    Consistency,
    Depths,
    consistency,
    measure_depths,
    saturation,
)
from cort.evaluation.measures import read_qrels
from cort.evaluation.names import parse_measures
from cort.evaluation.options import JudgedOptions, MeasureOptions, SplitOptions
from cort.evaluation.overlap import Overlap, overlaps
from cort.evaluation.values import check_named, read_values
from cort.formats import tables
from cort.formats.artifacts import write_artifact
from cort.formats.runs import read_run, refuse_other_queries, tag_of, top
from cort.retrieval.documents import as_documents
from cort.retrieval.fusion import WEIGHT
from cort.retrieval.options import TunedOptions
from cort.retrieval.rerank import candidate_scores, mix
from cort.retrieval.tuning import own_weights, weight_of
from cort.runtime.commands import Commands, main_of_commands
from cort.runtime.options import optional, options_class, required
from cort.settings import evaluation
from cort.settings.collection import Aggregation, Split
from cort.settings.evaluation import Evaluation
from cort.settings.fields import General, as_key
from cort.settings.systems import Reranking

log = logging.getLogger(__name__)


@options_class
class DepthOptions(Aggregation, TunedOptions, MeasureOptions):
    """Measure re-ranking by the number of candidates (CoRT paper, section 4.3.2 and Figure 2).

    At depth d, a ranking consists of the top d candidates, re-ranked, and nothing else. The weight is the same at every
    depth, and scores are normalised over the d candidates. The paper calls a measure saturated where doubling the
    candidates adds less than 0.5 % (footnote 4). We take this as relative to the measure, because the paper writes
    "p.p." for percentage points. Saturation is the smallest depth for which this holds, as for all larger ones.

    Reads:  run.trec (candidates), scores.parquet (re-ranker's), qrels.parquet
    Writes: depths.json (`cort.evaluation.curves.Depths`)
    """

    candidates: str = required("TREC", "the run that is re-ranked")
    scores: str = required("PARQUET", "query_id, doc_id, score")
    depths: tuple[int, ...] = as_key(Evaluation, "depths", default=MISSING)
    weight: float = as_key(Reranking, "weight", default=WEIGHT)


def analyze_depths(options: DepthOptions) -> None:
    """Re-rank and measure at every depth, and write the measures."""
    parse_measures(options.measures)
    depths, level = list(options.depths), options.relevance_level
    weight = weight_of(options.weight, options.tuned, tag_of(options.candidates))
    run = read_run(options.candidates)
    table = tables.read_table(options.scores, tables.SCORES)
    scores = candidate_scores(run, table, max(depths), options.scores)
    qrels = read_qrels(options.qrels, level)
    mixed = partial(mix, run, scores, weight=weight, own=own_weights(options.tuned, options.folded))
    documents = partial(as_documents, how=options.aggregate)
    columns = measure_depths(run, mixed, qrels, depths, options.measures, documents, level)
    measures: dict[str, list[float | None]] = {name: [*values] for name, values in columns.items()}
    saturated = {measure: saturation(depths, values) for measure, values in columns.items()}
    names = options.system, options.split
    write_artifact(options.output, Depths(*names, level, len(qrels), depths, measures, saturated))
    log.info("%d depths of %d judged queries; saturation %s", len(depths), len(qrels), saturated)


@options_class
class OverlapOptions(SplitOptions):
    """Measure what the rankings of systems have in common, on a split without judgements.

    Reads:  a run per system, the queries of the split
    Writes: overlap.json (`cort.evaluation.overlap.Overlap`): for each pair of systems the mean share of top passages
            that are in both lists, and the share of queries with the same top passage; for each system the mean number
            of top passages that no other has
    """

    systems: tuple[str, ...] = required("NAME", "names of all systems, in the order of the files")
    runs: tuple[str, ...] = required("TREC", "a run per system")
    queries: str = required("PARQUET", "all queries of the split")
    depth: int = as_key(General, "depth", "number of top passages to compare", default=10)


def measure_overlap(options: OverlapOptions) -> None:
    """Compare the top passages of all pairs of systems."""
    check_named(options.systems, {"--runs": options.runs})
    query_ids = list(tables.read_queries(options.queries))
    runs = (top(read_run(path), options.depth).by_query() for path in options.runs)
    tops = {name: [*map(run.__getitem__, query_ids)] for name, run in zip(options.systems, runs, strict=True)}
    overlap = Overlap(options.split, len(query_ids), options.depth, [*tops], *overlaps(tops))
    write_artifact(options.output, overlap)
    log.info("%d queries without judgements, %d pairs of systems", len(query_ids), len(overlap.pairs))


@options_class
class AgreementOptions(JudgedOptions):
    """Compare two sets of labels of the same queries, such as those of a person and those of a language model.

    Queries are the same if they have the same id and text. On the documents that both sets judge: Cohen's kappa on
    relevant or not, and the quadratic-weighted kappa on grades; those below 0 count as 0. On the systems: Kendall's
    tau-b between their rankings by the first measure, if both splits have the same, with a 95 % bootstrap interval over
    the common queries.

    Reads:  queries, judgements, and values per query of every system, of two splits
    Writes: agreement.json (`cort.evaluation.agreement.Agreement`)
    """

    queries: str = required("PARQUET")
    per_query: tuple[str, ...] = optional((), "values of every query, a file per system", "PARQUET")
    other: str = required("NAME", "the other split")
    other_queries: str = required("PARQUET")
    other_qrels: str = required("PARQUET")
    other_relevance_level: int = as_key(Split, "relevance_level")
    other_per_query: tuple[str, ...] = optional((), "values of every query, of the same systems", "PARQUET")
    seed: int = as_key(General, "seed", "of the bootstrap")


def measure_agreement(options: AgreementOptions) -> None:
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


@options_class
class ConsistencyOptions(SplitOptions):
    """Measure how far a run stays within a reference run: RepBERT's consistency factor (section 4.4.3 and Figure 2).

    C(f, n), equation 5, is the share of f's top n documents that are also in the reference's top 1,000, averaged over
    the queries that f answers. If f has fewer than n documents for a query, the share is taken over those. A query that
    the reference does not answer counts as 0. RepBERT's reference is MS MARCO's official `top1000.dev.tsv`; its
    re-ranker was trained on the training counterpart of that file.

    Reads:  the run f and the reference, both run.trec
    Writes: consistency.json (`cort.evaluation.curves.Consistency`)
    """

    run: str = required("TREC", "the run f")
    reference: str = required("TREC", "the run it is compared with")
    reference_name: str = required("NAME", "written into the output")
    depths: tuple[int, ...] = as_key(evaluation.Consistency, "depths", default=MISSING)
    system: str = required("NAME", "written into the output")


def measure_consistency(options: ConsistencyOptions) -> None:
    """Compare both runs at every depth."""
    depths = list(options.depths)
    run, reference = read_run(options.run), read_run(options.reference)
    refuse_other_queries(options.run, run, options.reference, reference)
    values = consistency(run, reference, depths)
    names = options.system, options.split, options.reference_name
    write_artifact(options.output, Consistency(*names, len(run), depths, [*values]))
    missing = len(set(run.query_ids) - set(reference.query_ids))
    log.info("%d queries, %d not in the reference; C from %.3f to %.3f", len(run), missing, values[0], values[-1])


COMMANDS: Commands = {
    "agreement": (AgreementOptions, measure_agreement),
    "depths": (DepthOptions, analyze_depths),
    "overlap": (OverlapOptions, measure_overlap),
    "consistency": (ConsistencyOptions, measure_consistency),
}
main = main_of_commands(COMMANDS)

if __name__ == "__main__":
    sys.exit(main())
