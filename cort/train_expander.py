"""Train a model that says which queries a passage answers, as doc2query does (Nogueira et al., 2019).

The cross-entropy of each query's tokens and its end, given its relevant passage and the tokens before. With T5's
weights it is docTTTTTquery's training (Nogueira & Lin, 2019), with AdamW in the place of Adafactor.

Reads judgements and token caches for training and validation and a base model, an encoder-decoder; writes the best
model by validation loss and the last one, the training curve, and what was gained.

Usage: python -m cort.train_expander --base-model base_models/t5 --qrels qrels.train.parquet
              --queries queries.train.arrow --validation-qrels qrels.validation.parquet
              --validation-queries queries.validation.arrow --passages passages.arrow --output expanders/t5
              --output-curve expanders/t5/curve.csv --output-selection expanders/t5/selection.json
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from cort.system import cli
from cort.training import parallel
from cort.training.settings import ExpanderTraining, check_settings


@dataclass(frozen=True, kw_only=True)
class Options(ExpanderTraining):
    """Options of this stage."""


def stage(options: Options) -> None:
    """Train and write, here or in a process per GPU."""
    check_settings(options)
    parallel.run("cort.train_expander", options, "cort.training.expansion")


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
