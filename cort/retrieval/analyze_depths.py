"""Measure re-ranking by the number of candidates (CoRT paper, section 4.3.2 and Figure 2).

At depth d, a ranking consists of the top d candidates, re-ranked, and nothing else. The weight is the same at every
depth, and scores are normalised over the d candidates. The paper calls a measure saturated where doubling the
candidates adds less than 0.5 % (footnote 4). We take this as relative to the measure, because the paper writes
"p.p." for percentage points. Saturation is the smallest depth for which this holds, as for all larger ones.

Reads:  run.trec (candidates), scores.parquet (re-ranker's), qrels.parquet
Writes: depths.json (`cort.evaluation.curves.Depths`)
"""

import logging
from functools import partial

from cort.config.collection import Aggregation
from cort.config.evaluation import Evaluation
from cort.config.fields import Cutoff
from cort.config.systems import Reranking
from cort.evaluation.curves import Depths, measure_depths, saturation
from cort.evaluation.measures import read_qrels
from cort.evaluation.names import parse_measures
from cort.evaluation.options import MeasureOptions
from cort.formats import tables
from cort.formats.artifacts import write_artifact
from cort.formats.runs import read_run, tag_of
from cort.retrieval.documents import as_documents
from cort.retrieval.fusion import WEIGHT
from cort.retrieval.options import TunedOptions
from cort.retrieval.rerank import candidate_scores, mix
from cort.retrieval.weights import own_weights, weight_of
from cort.runtime.sections import ParquetFile, Several, TrecFile, same_as

log = logging.getLogger(__name__)


class Options(Aggregation, TunedOptions, MeasureOptions):
    """Options of this stage."""

    candidates: TrecFile
    """The run that is re-ranked."""
    scores: ParquetFile
    """Query_id, doc_id, score."""
    depths: Several[Cutoff] = same_as(Evaluation, "depths", required=True)
    weight: float = same_as(Reranking, "weight", default=WEIGHT)


def stage(options: Options) -> None:
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
