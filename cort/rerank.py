"""Re-rank the top candidates of every query by the scores of a re-ranker; others stay below them, in their order.

The top `depth` candidates of a run are ordered by (-re-ranker's score, doc_id). With a weight below 1, their score is
the weighted sum of the re-ranker's and the run's scores, both scaled from 0 to 1 over these candidates; with weight 0,
the order does not change.

Reads:  run.trec (candidates), scores.parquet (every candidate scored once); if given, weights of `tune weights`
Writes: run.trec
Usage:  python -m cort.rerank --candidates run.trec --scores scores.parquet --depth 1000 --tag NAME
            --output reranked.trec
"""

from __future__ import annotations

import logging
import sys
from dataclasses import MISSING

import numpy as np

from cort.formats import tables
from cort.formats.runs import read_run, tag_of, write_run
from cort.retrieval.components import check_scores
from cort.retrieval.fusion import WEIGHT
from cort.retrieval.options import RunOptions, TunedOptions
from cort.retrieval.rerank import candidate_scores, rerank_run
from cort.retrieval.tuning import own_weights, weight_of
from cort.runtime import cli
from cort.runtime.options import options_class, required
from cort.settings.fields import General, as_key
from cort.settings.systems import Reranking

log = logging.getLogger(__name__)


@options_class
class Options(TunedOptions, RunOptions):
    """Options of this stage."""

    candidates: str = required("TREC", "the run to re-rank")
    scores: str = required("PARQUET", "query_id, doc_id, score")
    depth: int = as_key(General, "depth", "candidates re-ranked per query", default=MISSING)
    weight: float = as_key(Reranking, "weight", default=WEIGHT)


def stage(options: Options) -> None:
    """Re-rank the run and write the result."""
    weight = weight_of(options.weight, options.tuned, tag_of(options.candidates))
    own = own_weights(options.tuned, options.folded)
    run = read_run(options.candidates)
    table = tables.read_table(options.scores, tables.SCORES)
    scores = candidate_scores(run, table, options.depth, options.scores)
    if min([weight, *own.values()]) < 1:
        log.info("weight %g", weight)
        check_scores(options.candidates, run)
    lines = write_run(options.output, rerank_run(run, scores, options.depth, weight, own), options.tag)
    reranked = int(np.minimum(np.diff(run.offsets), options.depth).sum())
    log.info("%d queries, %d of %d candidates re-ranked", len(run), reranked, lines)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
