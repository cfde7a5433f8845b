"""Train CoRT: one encoder for queries and passages, batch-wise triplet margin loss on angular similarity (section 3.3).

Reads triples in training order, validation triples, token caches and a language model; writes the encoder with the best
validation loss and the last one, and the training curve.

Usage: python -m cort.train --language-model language_models/small --triples triples.parquet --validation-triples ...
              --passages passages.arrow --queries queries.train.arrow --validation-queries queries.validation.arrow
              --output encoders/cort --output-curve encoders/cort/curve.csv
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

    from cort.encoder import Encoder, Texts

log = logging.getLogger(__name__)

Rows = npt.NDArray[np.int64]
# Tokens that go through the transformer at once; short rows then never wait for long ones.
TOKEN_BUDGET = 8_192
# Arguments whose files decide what is trained.
READ = ("triples", "validation_triples", "passages", "queries", "validation_queries")


class TripleRows(NamedTuple):
    """Triples as rows of the token caches."""

    queries: Rows
    positives: Rows
    negatives: Rows

    def part(self, start: int, size: int) -> TripleRows:
        """Cut out one mini-batch."""
        return TripleRows(*(rows[start : start + size] for rows in self))


def read_triples(path: str, queries: Tokens, passages: Tokens) -> TripleRows:
    """Look up the rows of all triples; refuse unknown ids and empty tables."""
    table = tables.read_table(path, tables.TRIPLES)
    if not table.num_rows:
        raise input_error(path, "no triples", "at least one", "sample them again")
    return TripleRows(
        queries.rows_of(table["query_id"], path),
        passages.rows_of(table["positive"], path),
        passages.rows_of(table["negative"], path),
    )


def triples_loss(
    model: nn.Module, triples: TripleRows, queries: Texts, passages: Texts, margin: float, device: torch.device
) -> Tensor:
    """Compute the batch-wise loss of one mini-batch; queries and passages go through the model in length order."""
    import torch

    from cort.losses import batch_triplet_loss

    query_vectors = queries.encode(model, triples.queries, device, TOKEN_BUDGET)  # (n, e)
    both = np.concatenate([triples.positives, triples.negatives])
    positives, negatives = torch.chunk(passages.encode(model, both, device, TOKEN_BUDGET), 2)  # (n, e) each
    return batch_triplet_loss(query_vectors, positives, negatives, margin)


def train(args: argparse.Namespace, encoder: Encoder) -> None:
    """Run the training and write models and curve."""
    from cort.encoder import Texts, save_encoder
    from cort.training.loop import Task, train_task

    tokenizer = fingerprint(args.language_model)
    template = load_template(args.language_model)
    caches = [Tokens(path, tokenizer) for path in (args.passages, args.queries, args.validation_queries)]
    passages = Texts(caches[0], template, "passage", args.passage_length)
    queries = Texts(caches[1], template, "query", args.query_length)
    validation_queries = Texts(caches[2], template, "query", args.query_length)
    triples = read_triples(args.triples, caches[1], caches[0])
    validation = read_triples(args.validation_triples, caches[2], caches[0])
    epochs = tables.count_epochs(args.triples)

    def loss(model: nn.Module, start: int, end: int, device: torch.device) -> Tensor:
        return triples_loss(model, triples.part(start, end - start), queries, passages, args.margin, device)

    def validate(model: nn.Module, device: torch.device) -> float:
        # Whole mini-batches as in training, so that both losses count the same number of negatives per query.
        batches = max(len(validation.queries) // args.batch_size, 1)
        total = 0.0
        for start in range(0, batches * args.batch_size, args.batch_size):
            part = validation.part(start, args.batch_size)
            total += triples_loss(model, part, validation_queries, passages, args.margin, device).item()
        return float(total / batches)

    def save(name: str) -> None:
        save_encoder(encoder, args.language_model, Path(args.output) / name)

    task = Task(encoder, len(triples.queries), len(triples.queries) // epochs, loss, validate, save)
    train_task(task, args, "cort.train", READ)


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    from cort.training.options import add_training_arguments

    parser = cli.make_parser("cort.train", __doc__)
    parser.add_argument("--language-model", required=True, metavar="FOLDER")
    parser.add_argument("--triples", required=True, metavar="PARQUET")
    parser.add_argument("--validation-triples", required=True, metavar="PARQUET")
    parser.add_argument("--passages", required=True, metavar="ARROW", help="token cache")
    parser.add_argument("--queries", required=True, metavar="ARROW", help="token cache of the training queries")
    parser.add_argument("--validation-queries", required=True, metavar="ARROW")
    parser.add_argument("--pooling", choices=("cls", "mean"), default="cls")
    parser.add_argument("--dimension", type=int, default=768, help="e, the size of the vectors")
    parser.add_argument("--query-length", type=int, default=512, help="tokens, special ones included")
    parser.add_argument("--passage-length", type=int, default=512)
    parser.add_argument("--margin", type=float, default=0.1)
    add_training_arguments(parser)
    return parser


def stage(args: argparse.Namespace) -> None:
    """Train and write, here or in a process per GPU."""
    distributed.run("cort.train", args, train_from_arguments)


def train_from_arguments(args: argparse.Namespace) -> None:
    """Make the model and train it."""
    from cort.encoder import EncoderSettings, new_encoder
    from cort.training.loop import make_deterministic

    make_deterministic(args.seed, args.threads)
    settings = EncoderSettings(args.pooling, args.dimension, args.query_length, args.passage_length)
    train(args, new_encoder(args.language_model, settings, args.seed))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())
