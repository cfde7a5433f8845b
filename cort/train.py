"""Train one encoder for queries and passages, as CoRT (section 3.3) or as RepBERT (section 3.3 there).

CoRT: batch-wise triplet margin loss on angular similarity. RepBERT: multi-label margin loss on inner products, where
all passages of a batch that are judged relevant count as such.

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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

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
Objective: TypeAlias = "Callable[[Tensor, Tensor, TripleRows], Tensor]"
# Tokens that go through the transformer at once; short rows then never wait for long ones.
TOKEN_BUDGET = 8_192
# Arguments whose files decide what is trained.
READ = ("triples", "validation_triples", "passages", "queries", "validation_queries", "qrels", "validation_qrels")


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


class Judgements:
    """Which passages are relevant for which queries, as rows of the token caches."""

    def __init__(self, path: str, relevance_level: int, queries: Tokens, passages: Tokens) -> None:
        """:param relevance_level: lowest grade that counts."""
        table = tables.read_table(path, tables.QRELS)
        table = table.filter(pc.greater_equal(table["relevance"], relevance_level))
        self._passages = len(passages)
        query_rows, passage_rows = (
            cache.rows_of(table[name], path) for cache, name in ((queries, "query_id"), (passages, "doc_id"))
        )
        self._pairs = np.unique(query_rows * self._passages + passage_rows)

    def relevant(self, queries: Rows, passages: Rows) -> npt.NDArray[np.bool_]:
        """Look up all pairs; shape (queries, passages)."""
        pairs = queries[:, None] * self._passages + passages  # (queries, passages)
        if len(self._pairs) == 0:
            return np.zeros(pairs.shape, dtype=np.bool_)
        # Mini-batches are small and judgements many: a binary search for each pair, not a pass over all judgements.
        places = np.minimum(np.searchsorted(self._pairs, pairs), len(self._pairs) - 1)
        found: npt.NDArray[np.bool_] = self._pairs[places] == pairs
        return found


def triples_loss(
    model: nn.Module,
    triples: TripleRows,
    queries: Texts,
    passages: Texts,
    objective: Objective,
    device: torch.device,
) -> Tensor:
    """Compute the loss of one mini-batch; queries and passages go through the model in length order."""
    query_vectors = queries.encode(model, triples.queries, device, TOKEN_BUDGET)  # (n, e)
    both = np.concatenate([triples.positives, triples.negatives])
    return objective(query_vectors, passages.encode(model, both, device, TOKEN_BUDGET), triples)  # (n, e), (2n, e)


def make_objective(args: argparse.Namespace, judgements: Judgements | None) -> Objective:
    """Choose the loss of a mini-batch: a function of its queries' and its passages' vectors.

    :param judgements: for the loss "multilabel_margin".
    """
    import torch

    from cort.losses import SIMILARITIES, batch_triplet_loss, multilabel_margin_loss

    similarity_of = SIMILARITIES[args.similarity]

    def objective(queries: Tensor, passages: Tensor, triples: TripleRows) -> Tensor:
        if judgements is None:
            positives, negatives = torch.chunk(passages, 2)  # (n, e) each
            return batch_triplet_loss(queries, positives, negatives, args.margin, similarity_of)
        both = np.concatenate([triples.positives, triples.negatives])
        relevant = torch.from_numpy(judgements.relevant(triples.queries, both))  # (n, 2n)
        return multilabel_margin_loss(queries, passages, relevant.to(passages.device), similarity_of)

    return objective


def train(args: argparse.Namespace, encoder: Encoder) -> None:
    """Run the training and write models and curve."""
    from cort.encoder import save_encoder, texts_of
    from cort.training.loop import Task, train_task

    tokenizer = fingerprint(args.language_model)
    template = load_template(args.language_model)
    caches = [Tokens(path, tokenizer) for path in (args.passages, args.queries, args.validation_queries)]
    passages = texts_of(caches[0], template, encoder.settings, "passage")
    queries, validation_queries = (texts_of(cache, template, encoder.settings, "query") for cache in caches[1:])
    triples = read_triples(args.triples, caches[1], caches[0])
    validation = read_triples(args.validation_triples, caches[2], caches[0])
    epochs = tables.count_epochs(args.triples)
    objective, validation_objective = (
        make_objective(args, Judgements(path, args.relevance_level, cache, caches[0]) if path else None)
        for path, cache in ((args.qrels, caches[1]), (args.validation_qrels, caches[2]))
    )

    def loss(model: nn.Module, start: int, end: int, device: torch.device) -> Tensor:
        return triples_loss(model, triples.part(start, end - start), queries, passages, objective, device)

    def validate(model: nn.Module, device: torch.device) -> float:
        # Whole mini-batches as in training, so that both losses count the same number of negatives per query.
        batches = max(len(validation.queries) // args.batch_size, 1)
        total = 0.0
        for start in range(0, batches * args.batch_size, args.batch_size):
            part = validation.part(start, args.batch_size)
            total += triples_loss(model, part, validation_queries, passages, validation_objective, device).item()
        return float(total / batches)

    def save(name: str) -> None:
        save_encoder(encoder, args.language_model, Path(args.output) / name)

    task = Task(encoder, len(triples.queries), len(triples.queries) // epochs, loss, validate, save)
    train_task(task, args, "cort.train", [name for name in READ if getattr(args, name)])


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
    parser.add_argument("--similarity", choices=("angular", "inner_product"), default="angular")
    parser.add_argument("--projection", choices=("True", "False"), default="True", help="False: as the model's states")
    parser.add_argument("--query-segment", type=int, choices=(0, 1), default=1, help="passages are the other one")
    parser.add_argument("--loss", choices=("triplet", "multilabel_margin"), default="triplet")
    parser.add_argument("--margin", type=float, default=0.1, help="of the triplet loss")
    parser.add_argument("--qrels", nargs="?", metavar="PARQUET", help="for the multi-label loss, as the next two are")
    parser.add_argument("--validation-qrels", nargs="?", metavar="PARQUET")
    parser.add_argument("--relevance-level", type=int, default=1, help="lowest grade that counts as positive")
    add_training_arguments(parser)
    return parser


def stage(args: argparse.Namespace) -> None:
    """Train and write, here or in a process per GPU."""
    if (args.loss == "multilabel_margin") != bool(args.qrels) or bool(args.qrels) != bool(args.validation_qrels):
        found = " and ".join(name for name in ("qrels", "validation-qrels") if getattr(args, name.replace("-", "_")))
        expected = "both of them with --loss multilabel_margin, none with another loss"
        raise input_error("--qrels, --validation-qrels", found or "none", expected, "name both or leave them out")
    distributed.run("cort.train", args, train_from_arguments)


def train_from_arguments(args: argparse.Namespace) -> None:
    """Make the model and train it."""
    from cort.encoder import EncoderSettings, new_encoder
    from cort.training.loop import make_deterministic

    make_deterministic(args.seed, args.threads)
    settings = EncoderSettings(
        args.pooling,
        args.dimension,
        args.query_length,
        args.passage_length,
        args.similarity,
        args.projection == "True",
        args.query_segment,
    )
    train(args, new_encoder(args.language_model, settings, args.seed))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())
