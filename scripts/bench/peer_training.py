"""sentence-transformers' trainer on the triples of `benchmark_training.py`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from sentence_transformers import (  # type: ignore[import-not-found, unused-ignore]
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers import losses as st_losses
from sentence_transformers import models as st_models

from cort.training.triples import TripleRows


def peer_update(
    base_model: Path, folder: Path, triples: TripleRows, mini_batch: int, gradient_accumulation: int, length: int
) -> dict[str, Callable[[int], float]]:
    """Name a function for each precision that trains one update of `gradient_accumulation` mini-batches.

    :param folder: holds the tables of passages and queries, and is written to.
    """
    from datasets import Dataset  # type: ignore[import-not-found, import-untyped, unused-ignore]

    passages, queries = (pq.read_table(folder / f"{name}.parquet")["text"] for name in ("passages", "queries"))
    columns = {"anchor": (queries, triples.queries), "positive": (passages, triples.positives)}
    columns["negative"] = (passages, triples.negatives)
    transformer = st_models.Transformer(str(base_model), max_seq_length=length)
    pooling = st_models.Pooling(transformer.get_word_embedding_dimension(), "mean")
    model = SentenceTransformer(modules=[transformer, pooling])
    loss = st_losses.MultipleNegativesRankingLoss(model)

    def one(bf16: bool) -> Callable[[int], float]:
        def run(number: int) -> float:
            many = mini_batch * gradient_accumulation
            rows = np.arange(number * many, (number + 1) * many) % len(triples.queries)
            texts = {name: texts.take(column[rows]).to_pylist() for name, (texts, column) in columns.items()}
            arguments: Any = SentenceTransformerTrainingArguments(
                output_dir=str(folder / "peer"),
                per_device_train_batch_size=mini_batch,
                gradient_accumulation_steps=gradient_accumulation,
                num_train_epochs=1,
                learning_rate=1e-7,
                bf16=bf16,
                save_strategy="no",
                logging_strategy="no",
                report_to=[],
                disable_tqdm=True,
            )
            trainer = SentenceTransformerTrainer(model, arguments, train_dataset=Dataset.from_dict(texts), loss=loss)
            return float(trainer.train().training_loss)

        return run

    return {f"{name}, sentence-transformers": one(name == "bf16") for name in ("fp32", "bf16")}
