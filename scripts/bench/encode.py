"""Encoding passages beside sentence-transformers' `encode` at its defaults: same model, texts and length, in turns.

Both start from texts: the stages `tokenize` and `encode` here, tokenization inside the peer's call. Without the extra
`peers` only this project's rows are measured. Every row is the median of the rounds, the ratio that of pairs of one
round; the difference is the largest between two numbers of vectors, the cosine the smallest between two of a text.

Usage: python -m scripts.bench.encode --data ../shared/data/squad --base-model FOLDER [--texts 3000]
           [--rounds 3] [--budgets 1024 8192] [--precisions fp32 bf16]
"""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from cort import encode, tokenize
from cort.formats.embeddings import open_shards
from cort.formats.tables import PASSAGES, read_table
from cort.models.transformer import TOKEN_BUDGETS
from scripts.bench.common import (
    in_turns,
    make_parser,
    print_table,
    ratios,
    worthwhile_precisions,
    write_encoder,
    write_passages,
)

LENGTH = 256
Vectors = npt.NDArray[np.float32]


def ours(encoder: Path, folder: Path, device: torch.device, precision: str, budget: int) -> Vectors:
    """Tokenize and encode as the stages do."""
    TOKEN_BUDGETS[device.type] = budget
    tokens, vectors = folder / "tokens.arrow", folder / "vectors.arrow"
    texts = ("--tokenizer", encoder, "--texts", folder / "passages.parquet", "--output", tokens)
    source = ("--model", encoder, "--tokens", tokens, "--kind", "passage", "--precision", precision)
    threads = ("--threads", torch.get_num_threads())
    for stage, options in ((tokenize, texts), (encode, (*source, *threads, "--output", vectors))):
        if stage.main(list(map(str, options))):
            sys.exit(1)
    return np.concatenate([block for _, block in open_shards([vectors])[0].blocks()])


def peer(base_model: Path, device: torch.device) -> Callable[[list[str]], Vectors]:
    """Load the same model in sentence-transformers."""
    from sentence_transformers import SentenceTransformer  # type: ignore[import-not-found, unused-ignore]
    from sentence_transformers import models as st_models

    transformer = st_models.Transformer(str(base_model), max_seq_length=LENGTH)
    pooling = st_models.Pooling(transformer.get_word_embedding_dimension(), "mean")
    model = SentenceTransformer(modules=[transformer, pooling, st_models.Normalize()], device=device.type)
    return lambda texts: np.asarray(model.encode(texts, show_progress_bar=False), dtype=np.float32)


def report(rows: Mapping[str, Callable[[], Vectors]], texts: int, rounds: int) -> None:
    """Time all rows in turns; print texts per second, ratios to the first row and how far vectors are from its."""
    vectors: dict[str, Vectors] = {}

    def measure(name: str) -> float:
        started = time.perf_counter()
        vectors[name] = rows[name]()
        return time.perf_counter() - started

    seconds = in_turns(rounds, {name: partial(measure, name) for name in rows})
    first = next(iter(rows))
    table = [["", "texts/s", "ratio", "largest difference", "smallest cosine"]]
    for name, times in seconds.items():
        difference = np.abs(vectors[name] - vectors[first]).max()
        cosine = (vectors[name] * vectors[first]).sum(axis=1).min()
        cells = [f"{texts / statistics.median(times):.1f}", ratios(seconds[first], times)]
        table.append([name, *cells, f"{difference:.1e}", f"{cosine:.5f}"])
    print_table(*table)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = make_parser(__doc__, data="collection.tsv", base_model=True)
    parser.add_argument("--texts", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budgets", type=int, nargs="+", help="padded tokens at once; default: what `encode` takes")
    parser.add_argument("--precisions", nargs="+", help="default: fp32 and bf16, if its products are no slower here")
    args = parser.parse_args(argv)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open(args.data / "collection.tsv", encoding="utf-8") as lines:
            table = write_passages(itertools.islice(lines, args.texts), folder)
        texts = read_table(table, PASSAGES)["text"].to_pylist()
        encoder = write_encoder(args.base_model, LENGTH, "cosine", folder)
        rows: dict[str, Callable[[], Vectors]] = {}
        try:
            rows["sentence-transformers"] = partial(peer(args.base_model, device), texts)
        except ImportError:
            sys.stdout.write("sentence-transformers is not installed: no peer\n")
        for precision in args.precisions or worthwhile_precisions(device):
            for budget in args.budgets or [TOKEN_BUDGETS[device.type]]:
                run = partial(ours, encoder, folder, device, precision, budget)
                rows[f"{precision}, {budget} tokens at once"] = run
        report(rows, len(texts), args.rounds)


if __name__ == "__main__":
    main()
