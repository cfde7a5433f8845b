"""Compare encoding with sentence-transformers' `encode` at its defaults: same model, texts and length.

Both start from texts: the stages `tokenize` and `encode` here, tokenization inside the other's call. Rows are medians
over alternating rounds, ratios are medians of the ratios per round; the difference is the largest between components,
the cosine the smallest between two vectors of a text.

Usage: python -m scripts.bench.encode --data ../shared/data/squad --base-model FOLDER [--precisions fp32 bf16]
"""

import itertools
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cort import encode, tokenize
from cort.formats.tables import PASSAGES, read_table
from cort.retrieval.vectors import open_vectors
from scripts.bench import common

LENGTH = 256


def ours(encoder: Path, folder: Path, precision: str) -> Any:
    """Tokenize and encode as the stages do."""
    tokens, vectors = folder / "tokens.arrow", folder / "vectors.arrow"
    texts = {"tokenizer": encoder, "texts": folder / "passages.parquet", "output": tokens}
    how = {"kind": "passage", "precision": precision, "threads": torch.get_num_threads(), "output": vectors}
    if tokenize.main(common.words(texts)):
        sys.exit(1)
    if encode.main(["vectors", *common.words({"model": encoder, "tokens": tokens, **how})]):
        sys.exit(1)
    return open_vectors([vectors]).matrix()


def peer(encoder: Path, device: str, texts: list[str]) -> Callable[[], Any]:
    """Load the same model in sentence-transformers, to encode texts."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(encoder), device=device)
    return lambda: np.asarray(model.encode_document(texts, normalize_embeddings=True), dtype=np.float32)


def main() -> None:
    """Measure and print."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    args = common.parse(__doc__, data=Path, base_model=Path, texts=3_000, rounds=3, precisions=["fp32", "bf16"])
    with tempfile.TemporaryDirectory() as name:
        folder, vectors, work = Path(name), dict[str, Any](), dict[str, Callable[[], Any]]()
        with open(args.data / "collection.tsv", encoding="utf-8") as lines:
            (folder / "sample.tsv").write_text("".join(itertools.islice(lines, args.texts)), encoding="utf-8")
        passages, encoder = folder / "passages.parquet", folder / "encoder"
        common.run_stage("collection", passages=folder / "sample.tsv", output=passages)
        shape = {"kind": "dense", "pooling": "mean", "similarity": "cosine", "passage_length": LENGTH}
        common.run_stage("pretrained", pretrained=args.base_model.resolve(), **shape, output=encoder)
        texts = read_table(passages, PASSAGES)["text"].to_pylist()
        work["sentence-transformers"] = peer(encoder, device, texts)
        work |= {precision: partial(ours, encoder, folder, precision) for precision in args.precisions}

        def measure(name: str) -> float:
            return common.seconds_of(lambda: vectors.update({name: work[name]()}))

        seconds = common.in_turns(args.rounds, {name: partial(measure, name) for name in work})
    rows, first = [], next(iter(work))
    for name, times in seconds.items():
        difference, cosine = np.abs(vectors[name] - vectors[first]).max(), (vectors[name] * vectors[first]).sum(1).min()
        cells = [f"{len(texts) / statistics.median(times):.1f}", common.ratios(seconds[first], times)]
        rows.append([name, *cells, f"{difference:.1e}", f"{cosine:.5f}"])
    common.print_table(["", "texts/s", "ratio", "largest difference", "smallest cosine"], rows)


if __name__ == "__main__":
    main()
