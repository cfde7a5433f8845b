"""Measure re-ranking against the number of candidates (CoRT paper, section 4.3.2 and Figure 2).

At depth d a ranking consists of the first d candidates, re-ranked, and nothing else. The weight is the same at every
depth, and scores are normalised over the d candidates. The paper calls a measure saturated where doubling the
candidates adds less than 0.5 % (footnote 4). We take this as relative to the measure, because the paper writes "p.p."
for percentage points. Saturation is the smallest depth for which this holds, regardless of larger depths.

Reads:  run.trec (candidates), scores.parquet (re-ranker's), qrels.parquet
Writes: depths.json (`cort.evaluation.depths.Depths`)
Usage:  python -m cort.depths --candidates run.trec --scores scores.parquet --qrels qrels.parquet --depths 1 2 4 8 16
            --measures RR@10 nDCG@20 --system NAME --split dev --output depths.json
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from functools import partial

from cort.evaluation.depths import Depths, measure_depths, saturation
from cort.evaluation.measures import read_qrels
from cort.evaluation.names import parse_measures
from cort.formats import tables
from cort.formats.artifacts import write_artifact
from cort.formats.runs import read_run, tag_of
from cort.retrieval.options import refuse_without_effect
from cort.retrieval.rerank import candidate_scores, mix_run
from cort.retrieval.weights import weight_of
from cort.settings.collection import Split
from cort.system import cli
from cort.system.options import optional, required

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of this stage."""

    candidates: str = required("TREC", "the run that is re-ranked")
    scores: str = required("PARQUET", "query_id, doc_id, score")
    qrels: str = required("PARQUET", "judgements of the split")
    depths: tuple[int, ...] = required("N", "numbers of candidates")
    weight: float = optional(1.0, "weight of the re-ranker's scores against those of the run, 0 to 1", "X")
    tuned: str | None = optional(None, "instead of --weight, what `tune weights` chose", "JSON")
    measures: tuple[str, ...] = required("NAME", "RR@10, nDCG@20, R@1000, AP, ...")
    relevance_level: int = optional(Split.relevance_level, "lowest relevant grade", "GRADE")
    system: str = required("NAME", "written into the output")
    split: str = required("NAME", "written into the output")
    output: str = required("JSON")


def stage(options: Options) -> None:
    """Read, re-rank and measure at every depth, write."""
    parse_measures(options.measures)
    depths, level = list(options.depths), options.relevance_level
    cli.check_depths(depths)
    if options.tuned:
        refuse_without_effect(options, "beside --tuned", "weight")
    weight = weight_of(options.weight, options.tuned, tag_of(options.candidates))
    run = read_run(options.candidates)
    table = tables.read_table(options.scores, tables.SCORES)
    scores = candidate_scores(run, table, max(depths), options.scores)
    qrels = read_qrels(options.qrels, level)
    mixed = partial(mix_run, run, scores, weight=weight)
    columns = measure_depths(run, mixed, qrels, depths, options.measures, level)
    measures: dict[str, list[float | None]] = {name: [*values] for name, values in columns.items()}
    saturated = {measure: saturation(depths, values) for measure, values in columns.items()}
    write_artifact(
        options.output, Depths(options.system, options.split, level, len(qrels), depths, measures, saturated)
    )
    log.info("%d depths of %d judged queries; saturation %s", len(depths), len(qrels), saturated)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
