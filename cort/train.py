"""Train one encoder for queries and passages, as CoRT (section 3.3), as RepBERT (section 3.3 there), or otherwise.

CoRT: batch-wise triplet margin loss on angular similarity. RepBERT: multi-label margin loss on inner products, where
all passages of a batch that are judged relevant count as such. InfoNCE takes all passages of a batch but the relevant
ones as negatives; margin MSE learns from the scores of a cross-encoder.

Reads triples in training order, validation triples, token caches and a base model; writes the best encoder, by
validation loss or by a measure, and the last one, and the training curve.

Usage: python -m cort.train --base-model base_models/small --triples triples.parquet --validation-triples ...
              --passages passages.arrow --queries queries.train.arrow --validation-queries queries.validation.arrow
              --output encoders/cort --output-curve encoders/cort/curve.csv
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

from cort.models.settings import add_encoder_arguments, encoder_settings
from cort.system import cli
from cort.training.parallel import distributed
from cort.training.settings import add_training_arguments, check_files

log = logging.getLogger(__name__)

LOSSES = ("triplet", "multilabel_margin", "info_nce", "margin_mse")
# Arguments whose files decide what is trained.
READ = (
    "triples",
    "validation_triples",
    "passages",
    "queries",
    "validation_queries",
    "qrels",
    "validation_qrels",
    "validation_run",
    "teacher_scores",
    "validation_teacher_scores",
)


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = cli.make_parser("cort.train", __doc__)
    parser.add_argument("--base-model", required=True, metavar="FOLDER")
    parser.add_argument("--triples", required=True, metavar="PARQUET")
    parser.add_argument("--validation-triples", required=True, metavar="PARQUET")
    parser.add_argument("--passages", required=True, metavar="ARROW", help="token cache")
    parser.add_argument("--queries", required=True, metavar="ARROW", help="token cache of the training queries")
    parser.add_argument("--validation-queries", required=True, metavar="ARROW")
    add_encoder_arguments(parser)
    parser.add_argument("--loss", choices=LOSSES, default="triplet")
    parser.add_argument("--margin", type=float, default=0.1, help="of the triplet loss")
    parser.add_argument("--temperature", type=float, default=0.05, help="of InfoNCE")
    parser.add_argument("--qrels", nargs="?", metavar="PARQUET", help="for the multi-label loss and InfoNCE")
    parser.add_argument("--validation-qrels", nargs="?", metavar="PARQUET", help="for these, and --best-model-metric")
    parser.add_argument("--teacher-scores", nargs="?", metavar="PARQUET", help="of the triples' pairs, for margin_mse")
    parser.add_argument("--validation-teacher-scores", nargs="?", metavar="PARQUET")
    parser.add_argument("--relevance-level", type=int, default=1, help="lowest grade that counts as positive")
    parser.add_argument("--start", nargs="?", metavar="FOLDER", help="an encoder whose weights to start from")
    add_training_arguments(parser)
    return parser


def stage(args: argparse.Namespace) -> None:
    """Train and write, here or in a process per GPU."""
    judged = args.loss in ("multilabel_margin", "info_nce")
    taught = args.loss == "margin_mse"
    needed = {"qrels": judged, "validation_qrels": judged or args.best_model_metric != "loss"}
    check_files(args, {**needed, "teacher_scores": taught, "validation_teacher_scores": taught})
    distributed.run("cort.train", args, train_from_arguments)


def train_from_arguments(args: argparse.Namespace) -> None:
    """Make the model and train it."""
    from cort.models.encoder import new_encoder
    from cort.training.stage import make_deterministic, train_task
    from cort.training.triples import make_task

    make_deterministic(args.seed, args.threads)
    encoder = new_encoder(args.base_model, encoder_settings(args), args.seed, args.start)
    train_task(make_task(args, encoder), args, "cort.train", [name for name in READ if getattr(args, name)])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())
