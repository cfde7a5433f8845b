"""Measure training: CoRT's mini-batches one after the other, and together as `cort.train` encodes them.

Both compute the same loss of the same triples (6 a mini-batch, `--gradient-accumulation` mini-batches an update) with
the same encoder, in turns; the plain variant pads each mini-batch to its longest text. Where sentence-transformers is
installed (the extra `peers`) its trainer runs beside them: the same texts in the same mini-batches through the same
transformer, with its own loss over the passages of a mini-batch, and tokenized while it trains.

Passages and queries are TSV files with qrels, as in ../shared/data/squad; the model is a pretrained folder, or one of
MiniLM's size with random weights.

Usage: python scripts/benchmark_training.py --data ../shared/data/squad [--base-model FOLDER] [--rounds 5]
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import statistics
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cort.formats.tokens import Tokens
from cort.models.batching import Sequences, pad
from cort.models.encoder import Encoder, new_encoder, texts_of
from cort.models.settings import EncoderSettings
from cort.models.tokenizer import load_template
from cort.training.microbatches import Forward, MicroBatch, join_consecutive
from cort.training.objectives import ObjectiveSettings, make_objective
from cort.training.settings import TrainingSettings
from cort.training.triples import TripleRows, TripleTexts, triples_losses
from scripts.sandbox import run_stage

MINI_BATCH = 6
MINILM = {
    "model_type": "bert",
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "max_position_embeddings": 512,
}
PRECISIONS = {"fp32": None, "bf16": torch.bfloat16}
#: Rows of the matrices whose product tells whether a device has instructions for a precision.
PROBE = 512


class Plain:
    """One mini-batch after the other, each kind of text padded to its longest."""

    def __init__(self, model: Encoder, autocast: torch.autocast) -> None:
        self.model, self.autocast = model, autocast
        self.device = next(model.parameters()).device

    def __call__(self, sequences: Sequences) -> Tensor:
        """Run all sequences at once; returns (sequences, e)."""
        batch = pad([sequences.frame(row) for row in range(len(sequences))], sequences.pad_id)
        with self.autocast:
            outputs: Tensor = self.model({name: tensor.to(self.device) for name, tensor in batch.items()})
        return outputs.float()


class Alone:
    """What `Forward` wants of accelerate."""

    def __init__(self, device: torch.device, autocast: torch.autocast) -> None:
        self.device, self._autocast = device, autocast

    def autocast(self) -> torch.autocast:
        """Compute products in the asked precision."""
        return self._autocast


def update(texts: TripleTexts, chunks: Sequence[MicroBatch], forward: Any, optimizer: torch.optim.Optimizer) -> float:
    """One update over all chunks; its loss."""
    total, objective = 0.0, make_objective(ObjectiveSettings(), "angular")
    for chunk in chunks:
        loss = triples_losses(texts, chunk, forward, objective).sum()
        torch.autograd.backward(loss)
        total += loss.item()
    optimizer.step()
    optimizer.zero_grad()
    return total


def make_texts(
    data: Path, folder: Path, base_model: Path | None, settings: EncoderSettings
) -> tuple[Path, TripleTexts]:
    """Tokenize, and draw a triple for each judged query; the folder of the base model, and the triples' texts."""
    stages = [["collection", "--passages", data / "collection.tsv", "--output", folder / "passages.parquet"]]
    split = ["--queries", data / "queries.train.tsv", "--qrels", data / "qrels.train.tsv"]
    outputs = ["--output-queries", folder / "queries.parquet", "--output-qrels", folder / "qrels.parquet"]
    stages.append(["split", *split, "--passages", folder / "passages.parquet", "--unjudged-queries", "drop", *outputs])
    source = ["--pretrained", base_model] if base_model else ["--architecture", json.dumps(MINILM)]
    if not base_model:
        source += ["--vocabulary-size", "30522", "--seed", "1", "--passages", folder / "passages.parquet"]
    stages.append(["base_model", *source, "--output", folder / "lm"])
    for name in ("passages", "queries"):
        paths = ["--texts", folder / f"{name}.parquet", "--output", folder / f"{name}.arrow"]
        stages.append(["tokenize", "--tokenizer", folder / "lm", *paths])
    for stage, *options in stages:
        run_stage(str(stage), *options)
    import pyarrow.parquet as pq

    passages, queries = Tokens(folder / "passages.arrow"), Tokens(folder / "queries.arrow")
    qrels = pq.read_table(folder / "qrels.parquet")
    rows = queries.rows_of(qrels["query_id"], "qrels"), passages.rows_of(qrels["doc_id"], "qrels")
    generator = np.random.default_rng(1)
    by = generator.permutation(len(rows[0]))
    triples = TripleRows(rows[0][by], rows[1][by], generator.integers(len(passages), size=len(by)))
    template = load_template(folder / "lm")
    query_texts, passage_texts = (
        texts_of(cache, template, settings, kind) for cache, kind in ((queries, "query"), (passages, "passage"))
    )
    return folder / "lm", TripleTexts(triples, query_texts, passage_texts)


def worthwhile(device: torch.device) -> list[str]:
    """List the precisions in which a product is not slower than in fp32, as it is without instructions for them."""
    times = {}
    for name, dtype in PRECISIONS.items():
        matrix = torch.ones(PROBE, PROBE, device=device, dtype=dtype)
        product = functools.partial(torch.matmul, matrix, matrix)
        times[name] = min(timeit.repeat(lambda run=product: float(run()[0, 0]), number=1, repeat=5))  # type: ignore[misc]
    return [name for name, taken in times.items() if taken <= times["fp32"]]


def variants(
    model: Encoder, texts: TripleTexts, gradient_accumulation: int, tokens_at_once: int, device: torch.device
) -> dict[str, Callable[[int], float]]:
    """Name a function for each variant that makes update i."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-7)
    settings = TrainingSettings(6, gradient_accumulation, 0, 0, "all", 0, 1, 0, "fp32", 1, tokens_at_once)
    found: dict[str, Callable[[int], float]] = {}

    def one(forward: Any, together: bool) -> Callable[[int], float]:
        def run(number: int) -> float:
            many = MINI_BATCH * gradient_accumulation
            examples = np.arange(number * many, (number + 1) * many) % len(texts)
            limit = settings.tokens_at_once if together else 0
            chunks = join_consecutive(examples, MINI_BATCH, texts.tokens(examples), limit)
            return update(texts, chunks, forward, optimizer)

        return run

    for precision in worthwhile(device):
        dtype = PRECISIONS[precision]
        autocast = torch.autocast(device.type, dtype or torch.bfloat16, enabled=dtype is not None)
        found[f"{precision}, one after the other"] = one(Plain(model, autocast), False)
        found[f"{precision}, together"] = one(Forward(model, settings, Alone(device, autocast), None), True)
    return found


def seconds(run: Callable[[int], float], number: int, device: torch.device) -> float:
    """Time one update."""
    started = time.perf_counter()
    run(number)
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def table(times: dict[str, list[float]], triples: int) -> str:
    """Write medians, and paired ratios to the plain variant of the same precision, and to plain fp32."""
    lines = ["| variant | triples/s | to plain, same precision | to plain fp32 |", "| --- | ---: | ---: | ---: |"]
    for name, values in times.items():
        precision = name.split(",")[0]
        ratios = []
        for base in (f"{precision}, one after the other", "fp32, one after the other"):
            paired = [plain / own for plain, own in zip(times[base], values, strict=True)]
            ratios.append(f"{statistics.median(paired):.2f} ({min(paired):.2f} to {max(paired):.2f})")
        lines.append(f"| {name} | {triples / statistics.median(values):.1f} | {ratios[0]} | {ratios[1]} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Prepare, measure in turns, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, required=True, metavar="FOLDER", help="collection, queries.train, qrels.train"
    )
    parser.add_argument("--base-model", type=Path, metavar="FOLDER")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gradient-accumulation", type=int, default=16, help="mini-batches an update")
    parser.add_argument("--tokens-at-once", type=int, default=8_192)
    parser.add_argument("--length", type=int, default=256, help="tokens of a text at most")
    parser.add_argument("--dimension", type=int, default=128)
    args = parser.parse_args(argv)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    settings = EncoderSettings("mean", args.dimension, args.length, args.length)
    with tempfile.TemporaryDirectory() as name:
        folder, texts = make_texts(args.data.resolve(), Path(name), args.base_model, settings)
        model = new_encoder(folder, settings, 1).to(device).train()
        runs = variants(model, texts, args.gradient_accumulation, args.tokens_at_once, device)
        if importlib.util.find_spec("sentence_transformers"):
            from scripts.bench.peer_training import peer_update

            peer = peer_update(folder, Path(name), texts.triples, MINI_BATCH, args.gradient_accumulation, args.length)
            runs |= {run: function for run, function in peer.items() if f"{run.split(',')[0]}, together" in runs}
        times: dict[str, list[float]] = {run: [] for run in runs}
        for number in range(-1, args.rounds):
            for run, function in runs.items():
                taken = seconds(function, max(number, 0), device)
                if number >= 0:  # the first round warms up
                    times[run].append(taken)
    words = texts.tokens(np.arange(min(len(texts), 10_000)))
    sys.stdout.write(f"{device}, {torch.get_num_threads()} threads, torch {torch.__version__}; ")
    sys.stdout.write(
        f"{MINI_BATCH * args.gradient_accumulation} triples an update, {words.mean():.0f} tokens a triple\n\n"
    )
    sys.stdout.write(table(times, MINI_BATCH * args.gradient_accumulation) + "\n")


if __name__ == "__main__":
    main()
