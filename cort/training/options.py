"""Hyper-parameters of a training, and the options both training stages share."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields

from cort.training.distributed import add_process_arguments

PRECISIONS = ("fp32", "bf16", "fp16")


@dataclass(frozen=True)
class TrainingSettings:
    """Hyper-parameters of one training.

    `batch_size` counts the examples of one mini-batch, `accumulate` the mini-batches of one update; `warmup_updates`
    and `validate_every` count updates; `decay` "weights" spares biases and layer normalisation; `max_gradient_norm` 0
    leaves gradients as they are.
    """

    batch_size: int
    accumulate: int
    learning_rate: float
    weight_decay: float
    decay: str
    warmup_updates: int
    validate_every: int
    max_gradient_norm: float
    precision: str
    seed: int


def add_training_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the hyper-parameters both training stages share."""
    parser.add_argument("--batch-size", type=int, default=6, help="examples per mini-batch")
    parser.add_argument("--accumulate", type=int, default=100, help="mini-batches per update")
    parser.add_argument("--learning-rate", type=float, default=2e-5)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--decay", choices=("all", "weights"), default="all", help="what weight decay applies to")
    parser.add_argument("--warmup-updates", type=int, default=20)
    parser.add_argument("--validate-every", type=int, default=100, help="updates between validations")
    parser.add_argument("--max-gradient-norm", type=float, default=0.0, help="0: no clipping")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--threads", type=int, default=1)
    add_process_arguments(parser)
    parser.add_argument(
        "--checkpoints",
        metavar="FOLDER",
        help="write checkpoints here, resume from the newest, and remove them at the end; SIGTERM and SIGUSR1 then "
        "end the training with a checkpoint and status 75, Ctrl-C with status 130",
    )
    parser.add_argument(
        "--checkpoint-every", type=float, default=600.0, metavar="SECONDS", help="time between two checkpoints"
    )
    parser.add_argument("--output", required=True, metavar="FOLDER", help="gets best/ and last/")
    parser.add_argument("--output-curve", required=True, metavar="CSV")


def settings_from(args: argparse.Namespace) -> TrainingSettings:
    """Collect the hyper-parameters from parsed arguments."""
    return TrainingSettings(**{field.name: getattr(args, field.name) for field in fields(TrainingSettings)})
