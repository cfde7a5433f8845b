"""Merge runs: interleaved (CoRT paper, section 3.4), by reciprocal ranks, or by weighted scores; each document once.

Interleaving takes the first document of each run, in their order, then the second of each, and so on; what is already
there is omitted, and none takes its turn. A query is merged from the runs that answer it. Scores are normalised query
by query, over all results of each run.

Reads:  two or more run.trec; if given, weights that `tune weights` chose for the systems that the runs' tags name
Writes: run.trec, queries in the order in which they first occur in the runs
Usage:  python -m cort.fuse --method linear --runs cort.trec bm25.trec --weights 0.6 0.4 --depth 1000 --tag cort+bm25
            --output run.trec
"""

from __future__ import annotations

import logging
import sys
from typing import Literal

from cort.formats.runs import tag_of, write_runs
from cort.retrieval.components import read_components
from cort.retrieval.fusion import FUSIONS, Constant, Normalized, Weight, fuse_runs
from cort.retrieval.options import RunOptions, TermBased, TunedOptions
from cort.retrieval.pool import FusionSettings
from cort.retrieval.weights import read_weights, weights_of_folds
from cort.runtime import cli
from cort.runtime.errors import input_error
from cort.runtime.sections import Several, TrecFile

log = logging.getLogger(__name__)


class Options(TunedOptions, RunOptions, Constant, Normalized, TermBased):
    """Options of this stage."""

    method: Literal[*FUSIONS] = "interleave"  # type: ignore[valid-type]
    """How the rankings are merged."""
    runs: Several[TrecFile]
    """Two or more runs, in order."""
    weights: Several[Weight] = ()
    """Of linear: one per run; equal by default."""


def stage(options: Options) -> None:
    """Merge the runs and write the result."""
    settings = FUSIONS[options.method].settings
    tags = [*map(tag_of, options.runs)]
    weights = read_weights(options.tuned, tags) if options.tuned else options.weights
    if weights and len(weights) != len(tags):
        found = f"{len(weights)} weights for {len(tags)} runs"
        raise input_error("--weights", found, "one per run", "add or remove some")
    runs = read_components(options.runs, by_scores="weights" in settings)
    log.info("%s%s", options.method, f", weights {' '.join(f'{weight:g}' for weight in weights)}" if weights else "")
    own = weights_of_folds(options.tuned, options.folded)
    from_zero = tuple(tag in options.term_based for tag in tags)
    chosen = FusionSettings(options.k, options.normalization, weights, own, from_zero, options.depth)
    lines = write_runs(options.output, fuse_runs(options.method, runs, options.depth, chosen), options.tag)
    log.info("%d results written", lines)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
