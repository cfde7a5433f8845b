"""Train a model that weighs the terms of passages, by regression on their recall in queries (Dai & Callan, 2019).

The squared error of the number at the first subword of each word, averaged over the words of a passage; words that no
query has count with 0.

Reads the recall of terms for training and validation, the token cache of the passages and a base model; writes the best
model by validation loss and the last one, the training curve, and what was gained.

Usage: python -m cort.train_weigher --base-model base_models/small --targets term_recall/train.parquet
              --validation-targets term_recall/validation.parquet --passages passages.arrow --output weighers/small
              --output-curve weighers/small/curve.csv --output-selection weighers/small/selection.json
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from cort.system import cli
from cort.training import parallel
from cort.training.settings import WeigherTraining, check_settings


@dataclass(frozen=True, kw_only=True)
class Options(WeigherTraining):
    """Options of this stage."""


def stage(options: Options) -> None:
    """Train and write, here or in a process per GPU."""
    check_settings(options)
    parallel.run("cort.train_weigher", options, "cort.training.terms")


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
