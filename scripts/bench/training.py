"""Measure training: the stage `train` as it encodes mini-batches together, beside mini-batches one after the other.

The plain variant is the same stage with one mini-batch after the other (6 triples, `--gradient-accumulation` of them an
update), its queries padded to the longest of them and so its passages. All train on the same triples and take turns; of
each call of the stage the updates after the first count, by its own clock. With the extra `peers` the trainer of
sentence-transformers runs beside them: the same mini-batches through the same transformer, with its own loss over the
passages of a mini-batch, and tokenized while it trains. The model is a pretrained folder, or has MiniLM's size and
random weights; texts have `--length` tokens at most.

Usage: python -m scripts.bench.training --data ../shared/data/squad [--base-model FOLDER] [--tokens-at-once 1024 8192]
"""

import argparse
import csv
import itertools
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import torch

from cort.formats.tables import PASSAGES, QRELS, QUERIES, TRIPLES, read_table, write_table
from scripts.bench import common

PEER = find_spec("sentence_transformers") is not None
PLAIN = "import sys; from scripts.bench.training import train_plainly; sys.exit(train_plainly(sys.argv[1:]))"
MINI_BATCH, RATE = 6, 1e-7
#: Updates of each call of the stage, the first one included.
UPDATES = 3
MINILM = {"model_type": "bert", "hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536}


def write_texts(data: Path, base_model: Path | None, folder: Path) -> pa.Table:
    """Tokenize, and draw a triple for each judgement."""
    common.write_split(data, "train", folder)
    new = {"architecture": json.dumps(MINILM), "vocabulary_size": 30_522, "seed": 1}
    source = {"pretrained": base_model.resolve()} if base_model else new | {"passages": folder / "passages.parquet"}
    common.run_stage("base_model", **source, output=folder / "lm")
    for name in ("passages", "queries"):
        texts = folder / f"{name}.parquet"
        common.run_stage("tokenize", tokenizer=folder / "lm", texts=texts, output=folder / f"{name}.arrow")
    qrels = read_table(folder / "qrels.parquet", QRELS)
    doc_ids = read_table(folder / "passages.parquet", PASSAGES)["doc_id"]
    generator = np.random.default_rng(1)
    drawn = qrels.take(pa.array(generator.permutation(len(qrels))))
    negatives = doc_ids.take(pa.array(generator.integers(len(doc_ids), size=len(drawn))))
    zeros, ones = (pa.repeat(pa.scalar(value, pa.int32()), len(drawn)) for value in (0, 1))
    triples = pa.table([zeros, drawn["query_id"], drawn["doc_id"], negatives, ones], schema=TRIPLES)
    write_table(folder / "few.parquet", triples.slice(0, MINI_BATCH))
    return triples


def train_plainly(argv: Sequence[str]) -> int:
    """Run the stage with texts in the order of their mini-batch instead of that of their length."""
    from cort import train
    from cort.models.transformer import forward_by_length

    def forward(model: Any, texts: Any, device: torch.device, _: int) -> torch.Tensor:
        return forward_by_length(model, texts, device, sys.maxsize)

    with patch("cort.training.microbatches.forward_by_length", forward):
        return train.main(argv)


def train(folder: Path, some: Iterator[pa.Table], program: Sequence[str], options: Mapping[str, object]) -> float:
    """Train a few updates; triples per second."""
    write_table(folder / "some.parquet", next(some))
    files = {"triples": folder / "some.parquet", "validation_triples": folder / "few.parquet"}
    files |= {"passages": folder / "passages.arrow", "base_model": folder / "lm", "output": folder / "model"}
    files |= {"queries": folder / "queries.arrow", "validation_queries": folder / "queries.arrow"}
    how = {"pooling": "mean", "batch_size": MINI_BATCH, "learning_rate": RATE, "warmup_updates": 0, **options}
    curve = {
        "output_curve": folder / "curve.csv",
        "output_selection": folder / "selection.json",
        "threads": torch.get_num_threads(),
    }
    common.run(sys.executable, *program, *common.words({**files, **how, **curve}))
    with open(folder / "curve.csv", encoding="utf-8", newline="") as lines:
        speeds = {int(row["step"]): row["examples_per_second"] for row in csv.DictReader(lines)}
    return statistics.median(float(speed) for step, speed in speeds.items() if step > 1 and speed)


def peer(folder: Path, some: Iterator[pa.Table], args: argparse.Namespace, precision: str) -> Callable[[], float]:
    """Prepare sentence-transformers' trainer; the function makes an update and returns triples per second."""
    import sentence_transformers as peers  # type: ignore[import-not-found, unused-ignore]
    from datasets import Dataset  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from sentence_transformers import losses, models  # type: ignore[import-not-found, unused-ignore]

    transformer = models.Transformer(str(folder / "lm"), max_seq_length=args.length)
    pooling = models.Pooling(transformer.get_word_embedding_dimension(), "mean")
    model = peers.SentenceTransformer(modules=[transformer, pooling])
    sizes = {"per_device_train_batch_size": MINI_BATCH, "gradient_accumulation_steps": args.gradient_accumulation}
    how = {"num_train_epochs": 1, "learning_rate": RATE, "bf16": precision == "bf16", **sizes}
    quiet = {"save_strategy": "no", "logging_strategy": "no", "report_to": [], "disable_tqdm": True}
    arguments: Any = peers.SentenceTransformerTrainingArguments(output_dir=str(folder / "peer"), **how, **quiet)
    loss = losses.MultipleNegativesRankingLoss(model)
    trainer = partial(peers.SentenceTransformerTrainer, model, arguments, loss=loss)
    found = (read_table(folder / "queries.parquet", QUERIES), read_table(folder / "passages.parquet", PASSAGES))
    queries, passages = (dict(zip(*(column.to_pylist() for column in table.columns), strict=True)) for table in found)
    columns = {"anchor": ("query_id", queries), "positive": ("positive", passages), "negative": ("negative", passages)}

    def update() -> float:
        triples = next(some)
        texts = {role: [known[one] for one in triples[name].to_pylist()] for role, (name, known) in columns.items()}
        return len(triples) / common.timed(lambda: trainer(train_dataset=Dataset.from_dict(texts)).train()).seconds

    return update


def variants(args: argparse.Namespace, folder: Path, triples: pa.Table) -> Iterator[tuple[str, Callable[[], float]]]:
    """Name a function for each variant that returns triples per second, the plain one of a precision first."""

    def parts(size: int) -> Iterator[pa.Table]:
        return (triples.slice(first, size) for first in itertools.cycle(range(0, max(len(triples) - size, 1), size)))

    update = MINI_BATCH * args.gradient_accumulation
    lengths = {"query_length": args.length, "passage_length": args.length}
    shape = {"dimension": args.dimension, "gradient_accumulation": args.gradient_accumulation, **lengths}
    programs = {f"{n} tokens at once": (("-m", "cort.train"), n) for n in args.tokens_at_once}
    for precision in common.worthwhile_precisions("cuda" if torch.cuda.is_available() else "cpu"):
        for name, (program, tokens) in ({"plain": (("-c", PLAIN), 1)} | programs).items():
            options = {**shape, "precision": precision, "tokens_at_once": tokens}
            yield f"{precision}, {name}", partial(train, folder, parts(UPDATES * update), program, options)
        if PEER:
            yield f"{precision}, sentence-transformers", peer(folder, parts(update), args, precision)


def main() -> None:
    """Prepare, measure in turns, print."""
    sizes = {"gradient_accumulation": 16, "tokens_at_once": [1_024, 8_192], "length": 256, "dimension": 128}
    args = common.parse(__doc__, data=Path, base_model=None, rounds=5, **sizes)
    with tempfile.TemporaryDirectory() as name:
        triples = write_texts(args.data.resolve(), args.base_model, Path(name))
        # The peer's first round is slower; the stage leaves its first update out itself.
        speeds = common.in_turns(args.rounds, dict(variants(args, Path(name), triples)), warm_up=PEER)
    machine = f"{torch.get_num_threads()} threads, torch {torch.__version__}"
    sys.stdout.write(f"{machine}; {MINI_BATCH * args.gradient_accumulation} triples an update\n\n")
    rows = []
    for variant, found in speeds.items():
        same, single = (common.ratios(found, speeds[f"{name}, plain"]) for name in (variant.split(",")[0], "fp32"))
        rows.append((variant, f"{statistics.median(found):.1f}", same, single))
    common.print_table(rows, ["variant", "triples/s", "to plain, same precision", "to plain, fp32"])


if __name__ == "__main__":
    main()
