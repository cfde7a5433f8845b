"""Train one encoder for queries and passages, as CoRT (section 3.3), as RepBERT (section 3.2 there), or otherwise.

CoRT: batch-wise triplet margin loss on angular similarity. RepBERT: multi-label margin loss on inner products, where
all passages of a batch that are judged relevant count as such. InfoNCE takes all passages of a batch but the relevant
ones as negatives; margin MSE learns from the scores of a cross-encoder.

Reads triples in training order, validation triples, token caches and a base model; writes the best encoder, by
validation loss or by a measure, and the last one, the training curve, and
what was gained. The start takes part in the choice.

Usage: python -m cort.train --base-model base_models/small --triples triples.parquet --validation-triples ...
              --passages passages.arrow --queries queries.train.arrow --validation-queries queries.validation.arrow
              --output encoders/cort --output-curve encoders/cort/curve.csv
              --output-selection encoders/cort/selection.json
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from cort.system import cli
from cort.training import parallel
from cort.training.settings import EncoderTraining, check_files, check_settings, needs_judgements, needs_teacher


@dataclass(frozen=True, kw_only=True)
class Options(EncoderTraining):
    """Options of this stage."""


def stage(options: Options) -> None:
    """Train and write, here or in a process per GPU."""
    judged, taught = needs_judgements(options.loss), needs_teacher(options.loss)
    needed = {"qrels": judged, "validation_qrels": judged or options.by_measure}
    check_settings(options)
    check_files(options, {**needed, "teacher_scores": taught, "validation_teacher_scores": taught})
    parallel.run("cort.train", options, "cort.training.triples")


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
