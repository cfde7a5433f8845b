"""Train a re-ranker on pairs, for example a cross-encoder with pointwise cross-entropy (CoRT, section 4.3.1).

Reads pairs in training order, validation pairs, token caches and a base model; writes the best model, chosen by
validation loss or a measure, the last model, the training curve, and what training gained.

Usage: python -m cort.train_reranker --base-model base_models/small --pairs pairs.parquet --validation-pairs ...
              --passages passages.arrow --queries queries.train.arrow --validation-queries queries.validation.arrow
              --output rerankers/small --output-curve rerankers/small/curve.csv
              --output-selection rerankers/small/selection.json
"""

from __future__ import annotations

from cort.runtime import cli
from cort.training import parallel
from cort.training.losses import RERANKER_OBJECTIVES, classes_of
from cort.training.settings import RerankerTraining, check_options


class Options(*classes_of(RERANKER_OBJECTIVES), RerankerTraining):  # type: ignore[misc]
    """Options of this stage."""


def stage(options: Options) -> None:
    """Train and write, here or in a process per GPU."""
    check_options(options, {"validation_qrels": options.by_measure})

    def work() -> None:
        from cort.training.loop import train
        from cort.training.pairs import make_task

        train(options, make_task)

    parallel.run(options, work)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    parallel.exit_with(main)
