"""Train the cross-encoder re-ranker: pointwise binary cross-entropy on sampled pairs (CoRT, section 4.3.1).

Reads pairs in training order, validation pairs, token caches and a base model; writes the model with the best
validation loss and the last one, and the training curve.

Usage: python -m cort.train_reranker --base-model base_models/small --pairs pairs.parquet --validation-pairs ...
              --passages passages.arrow --queries queries.train.arrow --validation-queries queries.validation.arrow
              --output rerankers/small --output-curve rerankers/small/curve.csv
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

from cort.system import cli
from cort.training.parallel import distributed
from cort.training.settings import add_training_arguments, check_files

log = logging.getLogger(__name__)

# Arguments whose files decide what is trained.
READ = ("pairs", "validation_pairs", "passages", "queries", "validation_queries", "validation_run", "validation_qrels")


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = cli.make_parser("cort.train_reranker", __doc__)
    parser.add_argument("--base-model", required=True, metavar="FOLDER")
    parser.add_argument("--pairs", required=True, metavar="PARQUET")
    parser.add_argument("--validation-pairs", required=True, metavar="PARQUET")
    parser.add_argument("--passages", required=True, metavar="ARROW", help="token cache")
    parser.add_argument("--queries", required=True, metavar="ARROW", help="token cache of the training queries")
    parser.add_argument("--validation-queries", required=True, metavar="ARROW")
    parser.add_argument("--query-length", type=int, default=64, help="tokens of the query, special ones included")
    parser.add_argument("--max-length", type=int, default=512, help="tokens of the pair, special ones included")
    parser.add_argument("--validation-qrels", nargs="?", metavar="PARQUET", help="with --best-model-metric")
    parser.add_argument(
        "--relevance-level", type=int, default=1, help="lowest grade that counts, with --best-model-metric"
    )
    add_training_arguments(parser)
    return parser


def stage(args: argparse.Namespace) -> None:
    """Train and write, here or in a process per GPU."""
    check_files(args, {"validation_qrels": args.best_model_metric != "loss"})
    distributed.run("cort.train_reranker", args, train_from_arguments)


def train_from_arguments(args: argparse.Namespace) -> None:
    """Make the model and train it."""
    from cort.models.cross_encoder import PairSettings, new_cross_encoder
    from cort.training.pairs import make_task
    from cort.training.stage import make_deterministic, train_task

    make_deterministic(args.seed, args.threads)
    settings = PairSettings(args.query_length, args.max_length)
    model = new_cross_encoder(args.base_model, settings, args.seed)
    task = make_task(args, model)
    train_task(task, args, "cort.train_reranker", [name for name in READ if getattr(args, name)])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())
