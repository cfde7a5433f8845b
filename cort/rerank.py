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

import numpy as np

from cort.config.fields import Depth
from cort.config.systems import Reranking
from cort.formats import tables
from cort.formats.runs import read_run, tag_of, write_run
from cort.retrieval.components import check_scores
from cort.retrieval.fusion import WEIGHT
from cort.retrieval.options import RunOptions, TunedOptions
from cort.retrieval.rerank import candidate_scores, rerank_run
from cort.retrieval.weights import own_weights, weight_of
from cort.runtime import cli
from cort.runtime.sections import ParquetFile, TrecFile, same_as

log = logging.getLogger(__name__)


class Options(TunedOptions, RunOptions):
    """Options of this stage."""

    candidates: TrecFile
    """The run to re-rank."""
    scores: ParquetFile
    """Query_id, doc_id, score."""
    depth: int = same_as(Depth, "depth", required=True)
    """Candidates re-ranked per query."""
    weight: float = same_as(Reranking, "weight", default=WEIGHT)


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
