"""Encoding passages beside sentence-transformers' `encode` at its defaults: same model, texts and length, in turns.

Both start from texts: the stages `tokenize` and `encode` here, tokenization inside the peer's call. Without the extra
`peers` only this project's rows are measured. Every row is the median of the rounds, the ratio that of pairs of one
round; the difference is the largest between two numbers of vectors, the cosine the smallest between two of a text.

Usage: python -m scripts.bench.encode --data ../shared/data/squad --base-model FOLDER [--precisions fp32 bf16]
"""

import itertools
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from cort import encode, tokenize
from cort.formats.embeddings import all_vectors, open_shards
from cort.formats.tables import PASSAGES, read_table
from cort.models.transformer import TOKEN_BUDGETS
from scripts.bench import common
from scripts.bench.common import Vectors

LENGTH = 256


def ours(encoder: Path, folder: Path, device: str, precision: str, budget: int) -> Vectors:
    """Tokenize and encode as the stages do."""
    TOKEN_BUDGETS[device] = budget
    tokens, vectors = folder / "tokens.arrow", folder / "vectors.arrow"
    texts = {"tokenizer": encoder, "texts": folder / "passages.parquet", "output": tokens}
    how = {"kind": "passage", "precision": precision, "threads": torch.get_num_threads(), "output": vectors}
    for stage, options in ((tokenize, texts), (encode, {"model": encoder, "tokens": tokens, **how})):
        if stage.main(common.words(options)):
            sys.exit(1)
    return all_vectors(open_shards([vectors]))


def peer(base_model: Path, device: str, texts: list[str]) -> Callable[[], Vectors]:
    """Load the same model in sentence-transformers, to encode texts."""
    from sentence_transformers import SentenceTransformer  # type: ignore[import-not-found, unused-ignore]
    from sentence_transformers import models as st_models

    transformer = st_models.Transformer(str(base_model), max_seq_length=LENGTH)
    pooling = st_models.Pooling(transformer.get_word_embedding_dimension(), "mean")
    model = SentenceTransformer(modules=[transformer, pooling, st_models.Normalize()], device=device)
    return lambda: np.asarray(model.encode(texts, show_progress_bar=False), dtype=np.float32)


def main() -> None:
    """Measure and print."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    choices = {"budgets": [TOKEN_BUDGETS[device]], "precisions": common.worthwhile_precisions(device)}
    args = common.parse(__doc__, data=Path, base_model=Path, texts=3_000, rounds=3, **choices)
    vectors: dict[str, Vectors] = {}
    work: dict[str, Callable[[], Vectors]] = {}

    def measure(name: str) -> float:
        return common.timed(lambda: vectors.update({name: work[name]()})).seconds

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open(args.data / "collection.tsv", encoding="utf-8") as lines:
            passages = common.write_passages(itertools.islice(lines, args.texts), folder)
        encoder = common.write_encoder(args.base_model, LENGTH, "cosine", folder)
        texts = read_table(passages, PASSAGES)["text"].to_pylist()
        try:
            work["sentence-transformers"] = peer(args.base_model, device, texts)
        except ImportError:
            sys.stdout.write("sentence-transformers is not installed: no peer\n")
        for precision, budget in itertools.product(args.precisions, args.budgets):
            side = partial(ours, encoder, folder, device, precision, budget)
            work[f"{precision}, {budget} tokens at once"] = side
        seconds = common.in_turns(args.rounds, {name: partial(measure, name) for name in work})
    rows = []
    first = next(iter(work))
    for name, times in seconds.items():
        difference = np.abs(vectors[name] - vectors[first]).max()
        cosine = (vectors[name] * vectors[first]).sum(axis=1).min()
        cells = [f"{len(texts) / statistics.median(times):.1f}", common.ratios(seconds[first], times)]
        rows.append([name, *cells, f"{difference:.1e}", f"{cosine:.5f}"])
    common.print_table(rows, ["", "texts/s", "ratio", "largest difference", "smallest cosine"])


if __name__ == "__main__":
    main()
