"""Train the cross-encoder re-ranker: pointwise binary cross-entropy on sampled pairs (CoRT, section 4.3.1).

Reads pairs in training order, validation pairs, token caches and a language model; writes the model with the best
validation loss and the last one, and the training curve.

Usage: python -m cort.train_reranker --language-model language_models/small --pairs pairs.parquet --validation-pairs ...
              --passages passages.arrow --queries queries.train.arrow --validation-queries queries.validation.arrow
              --output rerankers/small --output-curve rerankers/small/curve.csv
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from cort import cli
from cort.errors import input_error
from cort.formats import tables
from cort.formats.tokens import Tokens
from cort.tokenization import fingerprint, load_template
from cort.training import distributed

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from cort.cross_encoder import CrossEncoder, Pairs

log = logging.getLogger(__name__)

Rows = npt.NDArray[np.int64]
TOKEN_BUDGET = 8_192
# Arguments whose files decide what is trained.
READ = ("pairs", "validation_pairs", "passages", "queries", "validation_queries")


class PairRows(NamedTuple):
    """Pairs as rows of the token caches, with their labels."""

    queries: Rows
    passages: Rows
    relevance: npt.NDArray[np.int32]

    def part(self, start: int, size: int) -> PairRows:
        """Cut out one mini-batch."""
        cut = slice(start, start + size)
        return PairRows(self.queries[cut], self.passages[cut], self.relevance[cut])


def read_pairs(path: str, queries: Tokens, passages: Tokens) -> PairRows:
    """Look up the rows of all pairs; refuse unknown ids and empty tables."""
    table = tables.read_table(path, tables.PAIRS)
    if not table.num_rows:
        raise input_error(path, "no pairs", "at least one", "sample them again")
    return PairRows(
        queries.rows_of(table["query_id"], path),
        passages.rows_of(table["doc_id"], path),
        table["relevance"].to_numpy(),
    )


def pairs_loss(model: nn.Module, rows: PairRows, pairs: Pairs, device: torch.device) -> Tensor:
    """Compute the mean loss of one mini-batch."""
    import torch

    from cort.losses import pointwise_loss

    logits = pairs.score(model, rows.queries, rows.passages, device, TOKEN_BUDGET)  # (pairs,)
    return pointwise_loss(logits, torch.from_numpy(rows.relevance.copy()).to(device))


def train(args: argparse.Namespace, model: CrossEncoder) -> None:
    """Run the training and write models and curve."""
    from cort.cross_encoder import Pairs, save_cross_encoder
    from cort.training.loop import Task, train_task

    tokenizer = fingerprint(args.language_model)
    template = load_template(args.language_model)
    passages, queries, validation_queries = (
        Tokens(path, tokenizer) for path in (args.passages, args.queries, args.validation_queries)
    )
    training = Pairs(queries, passages, template, model.settings)
    validation = Pairs(validation_queries, passages, template, model.settings)
    rows = read_pairs(args.pairs, queries, passages)
    validation_rows = read_pairs(args.validation_pairs, validation_queries, passages)
    epochs = tables.count_epochs(args.pairs)

    def loss(model: nn.Module, start: int, end: int, device: torch.device) -> Tensor:
        return pairs_loss(model, rows.part(start, end - start), training, device)

    def validate(model: nn.Module, device: torch.device) -> float:
        total = 0.0
        for start in range(0, len(validation_rows.queries), args.batch_size):
            part = validation_rows.part(start, args.batch_size)
            total += pairs_loss(model, part, validation, device).item() * len(part.queries)
        return total / len(validation_rows.queries)

    def save(name: str) -> None:
        save_cross_encoder(model, args.language_model, Path(args.output) / name)

    task = Task(model, len(rows.queries), len(rows.queries) // epochs, loss, validate, save)
    train_task(task, args, "cort.train_reranker", READ)


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    from cort.training.options import add_training_arguments

    parser = cli.make_parser("cort.train_reranker", __doc__)
    parser.add_argument("--language-model", required=True, metavar="FOLDER")
    parser.add_argument("--pairs", required=True, metavar="PARQUET")
    parser.add_argument("--validation-pairs", required=True, metavar="PARQUET")
    parser.add_argument("--passages", required=True, metavar="ARROW", help="token cache")
    parser.add_argument("--queries", required=True, metavar="ARROW", help="token cache of the training queries")
    parser.add_argument("--validation-queries", required=True, metavar="ARROW")
    parser.add_argument("--query-length", type=int, default=64, help="tokens of the query, special ones included")
    parser.add_argument("--max-length", type=int, default=512, help="tokens of the pair, special ones included")
    add_training_arguments(parser)
    return parser


def stage(args: argparse.Namespace) -> None:
    """Train and write, here or in a process per GPU."""
    distributed.run("cort.train_reranker", args, train_from_arguments)


def train_from_arguments(args: argparse.Namespace) -> None:
    """Make the model and train it."""
    from cort.cross_encoder import PairSettings, new_cross_encoder
    from cort.training.loop import make_deterministic

    make_deterministic(args.seed, args.threads)
    settings = PairSettings(args.query_length, args.max_length)
    train(args, new_cross_encoder(args.language_model, settings, args.seed))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())
