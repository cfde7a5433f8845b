"""Train the cross-encoder re-ranker: pointwise binary cross-entropy on sampled pairs (CoRT, section 4.3.1).

Reads pairs in training order, validation pairs, token caches and a base model; writes the model with the best
validation loss and the last one, and the training curve.

Usage: python -m cort.train_reranker --base-model base_models/small --pairs pairs.parquet --validation-pairs ...
              --passages passages.arrow --queries queries.train.arrow --validation-queries queries.validation.arrow
              --output rerankers/small --output-curve rerankers/small/curve.csv
              --output-selection rerankers/small/selection.json
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from cort.system import cli
from cort.training import parallel
from cort.training.settings import RerankerTraining, check_files, check_settings


@dataclass(frozen=True, kw_only=True)
class Options(RerankerTraining):
    """Options of this stage."""


def stage(options: Options) -> None:
    """Train and write, here or in a process per GPU."""
    check_settings(options)
    check_files(options, {"validation_qrels": options.by_measure})
    parallel.run("cort.train_reranker", options, "cort.training.pairs")


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
