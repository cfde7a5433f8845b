"""Encoding passages beside sentence-transformers' `encode` at its defaults: same model, texts and length, in turns.

Both start from texts: `tokenize` and `encode` here, tokenization inside the peer's call. Without the extra `peers` only
this project's rows are measured. Every row is the median of the rounds, the ratio that of pairs of one round; the
difference is the largest between two numbers of vectors, the cosine the smallest between two vectors of a text.

Usage: python scripts/benchmark_encode.py --data ../shared/data/squad --base-model FOLDER [--texts 3000]
           [--rounds 3] [--budgets 1024 8192] [--precisions fp32 bf16]
"""

from __future__ import annotations

import argparse
import copy
import functools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from cort import encode
from cort.formats.embeddings import from_batch
from cort.formats.tables import PASSAGES, read_table
from cort.formats.tokens import Tokens
from cort.models.encoder import Encoder, new_encoder, texts_of
from cort.models.settings import EncoderSettings
from cort.models.tokenizer import load_template
from cort.models.transformer import TOKEN_BUDGETS
from scripts.bench.training import worthwhile
from scripts.sandbox import run_stage

LENGTH = 256
Vectors = npt.NDArray[np.float32]


def prepare(data: Path, base_model: Path, texts: int, folder: Path) -> tuple[Encoder, list[str]]:
    """Write a collection of the first texts and a base model; the encoder without projection, and the texts."""
    with open(data / "collection.tsv", encoding="utf-8") as lines:
        part = [line for line, _ in zip(lines, range(texts), strict=False)]
    (folder / "collection.tsv").write_text("".join(part), encoding="utf-8", newline="\n")
    run_stage("collection", "--passages", folder / "collection.tsv", "--output", folder / "passages.parquet")
    run_stage("base_model", "--pretrained", base_model, "--output", folder / "lm")
    settings = EncoderSettings(
        pooling="mean",
        dimension=384,
        query_length=LENGTH,
        passage_length=LENGTH,
        similarity="cosine",
        projection=False,
        query_segment=0,
    )
    return new_encoder(folder / "lm", settings, seed=1).eval(), read_table(folder / "passages.parquet", PASSAGES)[
        "text"
    ].to_pylist()


def ours(encoder: Encoder, folder: Path, device: torch.device, precision: str, budget: int) -> Vectors:
    """Tokenize and encode as the stages do."""
    from cort import tokenize

    TOKEN_BUDGETS[device.type] = budget
    encoder = copy.deepcopy(encoder).place(device, precision)
    paths = ["--texts", folder / "passages.parquet", "--tokenizer", folder / "lm", "--output", folder / "p.arrow"]
    tokenize.stage(tokenize.build_parser().parse_args(list(map(str, paths))))
    texts = texts_of(Tokens(folder / "p.arrow"), load_template(folder / "lm"), encoder.settings, "passage")
    blocks = encode.shard_blocks(len(texts.tokens), "1-of-1")
    made = (encode.encode_block(block, encoder, texts, device, precision, "fp32") for block in blocks)
    return np.concatenate([from_batch(batch)[1] for batch in made])


def peer(base_model: Path, device: torch.device) -> Callable[[list[str]], Vectors]:
    """Load the same model in sentence-transformers."""
    from sentence_transformers import SentenceTransformer  # type: ignore[import-not-found, unused-ignore]
    from sentence_transformers import models as st_models

    transformer = st_models.Transformer(str(base_model), max_seq_length=LENGTH)
    pooling = st_models.Pooling(transformer.get_word_embedding_dimension(), "mean")
    model = SentenceTransformer(modules=[transformer, pooling, st_models.Normalize()], device=device.type)
    return lambda texts: np.asarray(model.encode(texts, show_progress_bar=False), dtype=np.float32)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="with collection.tsv")
    parser.add_argument("--base-model", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--texts", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budgets", type=int, nargs="+", help="padded tokens at once; default: what `encode` takes")
    parser.add_argument("--precisions", nargs="+", help="default: fp32 and bf16, if its products are no slower here")
    args = parser.parse_args(argv)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        encoder, texts = prepare(args.data.resolve(), args.base_model.resolve(), args.texts, folder)
        encoder.to(device)
        rows: dict[str, Callable[[], Vectors]] = {}
        try:
            encode_peer = peer(args.base_model, device)
            rows["sentence-transformers"] = lambda: encode_peer(texts)
        except ImportError:
            sys.stdout.write("sentence-transformers is not installed: no peer\n")
        for precision in args.precisions or worthwhile(device):
            for budget in args.budgets or [TOKEN_BUDGETS[device.type]]:
                make = functools.partial(ours, encoder, folder, device, precision, budget)
                rows[f"{precision}, {budget} tokens at once"] = make
        report(rows, args.texts, args.rounds)


def report(rows: dict[str, Callable[[], Vectors]], texts: int, rounds: int) -> None:
    """Time all rows in turns; print texts per second, ratios to the first row and how far vectors are from its."""
    seconds: dict[str, list[float]] = {name: [] for name in rows}
    vectors: dict[str, Vectors] = {}
    for _ in range(rounds):
        for name, make in rows.items():
            started = time.perf_counter()
            vectors[name] = make()
            seconds[name].append(time.perf_counter() - started)
    first = next(iter(rows))
    sys.stdout.write("| | texts/s | ratio | from | to | largest difference | smallest cosine |\n")
    for name in rows:
        ratios = [one / other for one, other in zip(seconds[first], seconds[name], strict=True)]
        cosine = (vectors[name] * vectors[first]).sum(axis=1).min()
        cells = [f"{texts / statistics.median(seconds[name]):.1f}", f"{statistics.median(ratios):.2f}"]
        cells += [f"{min(ratios):.2f}", f"{max(ratios):.2f}"]
        cells += [f"{np.abs(vectors[name] - vectors[first]).max():.1e}", f"{cosine:.5f}"]
        sys.stdout.write(f"| {name} | {' | '.join(cells)} |\n")


if __name__ == "__main__":
    main()
