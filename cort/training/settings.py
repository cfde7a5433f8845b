"""Hyper-parameters of a training, and the options both training stages share."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, fields

from cort.system import cli
from cort.system.errors import input_error
from cort.training.parallel.distributed import add_process_arguments

PRECISIONS = ("fp32", "bf16", "fp16")


@dataclass(frozen=True)
class TrainingSettings:
    """Hyper-parameters of one training.

    `batch_size` counts the examples of one mini-batch, `gradient_accumulation` the mini-batches of one update;
    `warmup_updates` and `validate_every` count updates; `decay` "weights" spares biases and layer normalisation;
    `max_gradient_norm` 0 leaves gradients as they are. In each process the activations of `tokens_at_once` padded
    tokens wait for their gradients; with `gradient_checkpointing` mini-batches may be of any size, for a third more of
    time. `best_model_metric` is "loss" or the measure that the best model is chosen by; after `patience` validations
    without a better one training ends, if not 0.
    """

    batch_size: int
    gradient_accumulation: int
    learning_rate: float
    weight_decay: float
    decay: str
    warmup_updates: int
    validate_every: int
    max_gradient_norm: float
    precision: str
    seed: int
    tokens_at_once: int = 8_192
    gradient_checkpointing: bool = False
    adam_epsilon: float = 1e-6
    best_model_metric: str = "loss"
    patience: int = 0
    compile: bool = False


def add_training_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the hyper-parameters both training stages share."""
    parser.add_argument("--batch-size", type=int, default=6, help="examples per mini-batch")
    parser.add_argument("--gradient-accumulation", type=int, default=100, help="mini-batches per update")
    parser.add_argument("--learning-rate", type=float, default=2e-5)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--decay", choices=("all", "weights"), default="all", help="what weight decay applies to")
    parser.add_argument("--warmup-updates", type=int, default=20)
    parser.add_argument("--validate-every", type=int, default=100, help="updates between validations")
    parser.add_argument("--max-gradient-norm", type=float, default=0.0, help="0: no clipping")
    parser.add_argument(
        "--tokens-at-once", type=int, default=8_192, metavar="N", help="whose activations are kept: memory and speed"
    )
    parser.add_argument(
        "--gradient-checkpointing",
        type=cli.boolean,
        default=False,
        metavar="True|False",
        help="activations, for less memory",
    )
    parser.add_argument("--compile", type=cli.boolean, default=False, metavar="True|False", help="with torch.compile")
    parser.add_argument("--adam-epsilon", type=float, default=1e-6)
    parser.add_argument(
        "--best-model-metric", default="loss", metavar="MEASURE", help="best model by: loss, RR@10, ..."
    )
    parser.add_argument("--patience", type=int, default=0, metavar="N", help="validations without progress; 0: any")
    parser.add_argument("--validation-run", nargs="?", metavar="TREC", help="with a measure: candidates for the pool")
    parser.add_argument("--pool-depth", type=int, default=20, metavar="N", help="candidates per validation query")
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
    parser.add_argument("--events", metavar="FOLDER", help="gets the curve for TensorBoard, while it grows")


def settings_from(args: argparse.Namespace) -> TrainingSettings:
    """Collect the hyper-parameters from parsed arguments."""
    return TrainingSettings(**{field.name: getattr(args, field.name) for field in fields(TrainingSettings)})


def check_files(args: argparse.Namespace, needed: Mapping[str, bool]) -> None:
    """Refuse files that nothing needs, and settings without the files they need.

    :param needed: whether each argument must name a file; these of a validation by a measure are known here.
    """
    needed = {**needed, "validation_run": args.best_model_metric != "loss"}
    for name, wanted in needed.items():
        given = bool(getattr(args, name))
        if given != wanted:
            place = " and ".join(
                f"--{key.replace('_', '-')} {getattr(args, key)}"
                for key in ("loss", "best_model_metric")
                if hasattr(args, key)
            )
            found, expected = ("a file", "none") if given else ("none", "a file")
            fix = "name it" if wanted else "leave it out"
            raise input_error(f"--{name.replace('_', '-')}", found, f"{expected} with {place}", fix)
