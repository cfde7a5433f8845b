"""Measure training: the stage `train` as it encodes mini-batches together, beside mini-batches one after the other.

The plain variant is the same stage with one mini-batch after the other (6 triples, `--gradient-accumulation` of them an
update), its queries padded to the longest of them and so its passages. All train on the same triples and take turns; of
each call of the stage the updates after the first count, by its own clock. Where sentence-transformers is installed
(the extra `peers`) its trainer runs beside them: the same texts in the same mini-batches through the same transformer,
with its own loss over the passages of a mini-batch, and tokenized while it trains.

Passages and queries are TSV files with qrels, as in ../shared/data/squad; the model is a pretrained folder, or one of
MiniLM's size with random weights. Texts have `--length` tokens at most.

Usage: python -m scripts.bench.training --data ../shared/data/squad [--base-model FOLDER] [--rounds 5]
           [--tokens-at-once 1024 8192]
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
    zeros, ones = (pa.array(np.full(len(drawn), value, dtype=np.int32)) for value in (0, 1))
    columns = [zeros, drawn["query_id"], drawn["doc_id"], negatives, ones]
    triples = pa.table(columns, schema=TRIPLES)
    write_table(folder / "few.parquet", triples.slice(0, MINI_BATCH))
    return triples


def parts(triples: pa.Table, size: int) -> Iterator[pa.Table]:
    """Yield one part after the other, from the first again when all were."""
    for number in itertools.count():
        yield triples.take(pa.array(np.arange(number * size, (number + 1) * size) % len(triples)))


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
    files |= {name: folder / "queries.arrow" for name in ("queries", "validation_queries")}
    training = {"pooling": "mean", "batch_size": MINI_BATCH, "learning_rate": RATE, "warmup_updates": 0}
    how = {"threads": torch.get_num_threads(), "output_curve": folder / "curve.csv"}
    common.run(sys.executable, *program, *common.words({**files, **training, **how, **options}))
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
    arguments: Any = peers.SentenceTransformerTrainingArguments(
        output_dir=str(folder / "peer"),
        per_device_train_batch_size=MINI_BATCH,
        gradient_accumulation_steps=args.gradient_accumulation,
        num_train_epochs=1,
        learning_rate=RATE,
        bf16=precision == "bf16",
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
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
    device = "cuda" if torch.cuda.is_available() else "cpu"
    update = MINI_BATCH * args.gradient_accumulation
    lengths = {"query_length": args.length, "passage_length": args.length}
    shape = {"dimension": args.dimension, "gradient_accumulation": args.gradient_accumulation, **lengths}
    stage = ("-m", "cort.train")
    programs = {"plain": (("-c", PLAIN), 1)} | {f"{n} tokens at once": (stage, n) for n in args.tokens_at_once}
    for precision in common.worthwhile_precisions(device):
        for name, (program, tokens) in programs.items():
            options = {**shape, "precision": precision, "tokens_at_once": tokens}
            yield f"{precision}, {name}", partial(train, folder, parts(triples, UPDATES * update), program, options)
        if PEER:
            yield f"{precision}, sentence-transformers", peer(folder, parts(triples, update), args, precision)


def main() -> None:
    """Prepare, measure in turns, print."""
    sizes = {"gradient_accumulation": 16, "tokens_at_once": [1_024, 8_192], "length": 256, "dimension": 128}
    args = common.parse(__doc__, data=Path, base_model=None, rounds=5, **sizes)
    with tempfile.TemporaryDirectory() as name:
        triples = write_texts(args.data.resolve(), args.base_model, Path(name))
        # The peer's first round is slower; the stage leaves its first update out itself.
        speeds = common.in_turns(args.rounds, dict(variants(args, Path(name), triples)), warm_up=PEER)
    sys.stdout.write(f"{torch.get_num_threads()} threads, torch {torch.__version__}; ")
    sys.stdout.write(f"{MINI_BATCH * args.gradient_accumulation} triples an update\n\n")
    rows = []
    for variant, found in speeds.items():
        same, single = (common.ratios(found, speeds[f"{name}, plain"]) for name in (variant.split(",")[0], "fp32"))
        rows.append((variant, f"{statistics.median(found):.1f}", same, single))
    common.print_table(rows, ["variant", "triples/s", "to plain, same precision", "to plain, fp32"])


if __name__ == "__main__":
    main()
