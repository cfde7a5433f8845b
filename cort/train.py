"""Train an encoder of queries and passages like CoRT (section 3.3), RepBERT (section 3.2 there), or with other losses.

CoRT: batch-wise triplet margin loss on angular similarity. RepBERT: multi-label margin loss on inner products, where
all passages of a batch that are judged relevant count as such. InfoNCE: all passages of a batch except relevant ones
are negatives. Margin MSE, KL: the model learns from the scores of a re-ranker.

Reads triples in training order, validation triples, token caches and a base model; writes the best encoder, chosen by
validation loss or a measure, the last encoder, the training curve, and what training gained. The encoder before the
first update is a candidate for the best, too.

Usage: python -m cort.train --base-model base_models/small --triples triples.parquet --validation-triples ...
              --passages passages.arrow --queries queries.train.arrow --validation-queries queries.validation.arrow
              --output encoders/cort --output-curve encoders/cort/curve.csv
              --output-selection encoders/cort/selection.json
"""

from __future__ import annotations

from cort.runtime import cli
from cort.training import parallel
from cort.training.losses import ENCODER_OBJECTIVES, classes_of
from cort.training.settings import EncoderTraining, check_options


class Options(*classes_of(ENCODER_OBJECTIVES), EncoderTraining):  # type: ignore[misc]
    """Options of this stage."""


def stage(options: Options) -> None:
    """Train and write, here or in a process per GPU."""
    objective = ENCODER_OBJECTIVES[options.loss]
    needed = {
        "qrels": objective.judgements,
        "validation_qrels": objective.judgements or options.by_measure,
        "teacher_scores": objective.teacher,
        "validation_teacher_scores": objective.teacher,
    }
    check_options(options, needed)

    def work() -> None:
        from cort.training.loop import train
        from cort.training.triples import make_task

        train(options, make_task)

    parallel.run(options, work)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    parallel.exit_with(main)
