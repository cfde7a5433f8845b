"""Models with random weights, texts of random tokens and what is judged of them: all that checks and figures work on.

Stages run in this process, on the GPU or as if there were none.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from cort import base_model
from cort.formats import tables
from cort.formats.records import Ranking
from cort.formats.runs import write_run
from cort.formats.tokens import write_tokens
from cort.models.tokenizer import fingerprint
from cort.system import devices

BERT_BASE = {"model_type": "bert"}
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
#: without chance, so that two devices can be compared; larger weights than usual tell texts apart
PLAIN = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.2}
T5 = {"model_type": "t5", "d_model": 32, "d_ff": 64, "d_kv": 16, "num_layers": 2, "num_heads": 2, "dropout_rate": 0.0}
# Tokens of MS MARCO's passages and queries: median and spread of their logarithms, and the limits of both.
PASSAGE, QUERY = (68, 0.42, 8, 300), (6, 0.4, 2, 60)
SPECIAL = 5
GPUS = cache(devices._list_gpus)


@dataclass(frozen=True)
class Size:
    """How much is checked and measured; `model` are the settings of the encoder that is measured."""

    passages: int
    queries: int
    model: Mapping[str, Any]
    vocabulary: int
    encoded: int
    vectors: int
    dimension: int
    updates: int
    accumulation: int
    matrix: int
    rounds: int


SIZES = {
    "small": Size(60, 24, {**BERT_BASE, **SMALL}, 300, 60, 20_000, 16, 2, 2, 256, 2),
    "full": Size(400, 96, BERT_BASE, 30_522, 65_536, 8_841_823, 128, 4, 100, 8_192, 10),
}


@dataclass(frozen=True)
class World:
    """Where all is: a folder of its own, and the device that is checked, "cpu" or "cuda"."""

    folder: Path
    device: str
    size: Size

    def path(self, name: str) -> Path:
        """Where a file is."""
        return self.folder / name

    def run(self, stage: str, device: str = "", /, **options: object) -> None:
        """Run a stage on a device, if none is named on the one that is checked.

        :raises RuntimeError: it failed; with the last lines of its log.
        """
        log = self.path("stage.log")
        words = [f"--{name.replace('_', '-')}" for name in options]
        values = [list(map(str, value)) if isinstance(value, list) else [str(value)] for value in options.values()]
        argv = [word for name, value in zip(words, values, strict=True) for word in (name, *value)]
        # To ask anew which GPUs there are takes a second.
        with working_on(device or self.device), patch("cort.system.devices._list_gpus", GPUS):
            status = importlib.import_module(f"cort.{stage}").main([*argv, "--log", str(log)])
        if status:
            lines = log.read_text("utf-8").splitlines()[-8:]
            raise RuntimeError("\n".join([f"cort.{stage}: status {status}", *lines]))


@contextmanager
def working_on(device: str) -> Iterator[None]:
    """Leave accelerate, which remembers its device, and torch, as they were; on the CPU there is no GPU meanwhile."""
    from accelerate.state import AcceleratorState

    threads = torch.get_num_threads()
    AcceleratorState._reset_state(reset_partial_state=True)
    alone = patch("torch.cuda.is_available", return_value=False) if device == "cpu" else nullcontext()
    with alone, patch.dict(os.environ, {"ACCELERATE_USE_CPU": "true"} if device == "cpu" else {}):
        try:
            yield
        finally:
            AcceleratorState._reset_state(reset_partial_state=True)
            torch.use_deterministic_algorithms(False)
            torch.set_num_threads(threads)


def lengths(count: int, kind: tuple[float, float, int, int], seed: int) -> npt.NDArray[np.int64]:
    """Draw numbers of tokens."""
    median, spread, least, most = kind
    drawn = np.random.default_rng(seed).lognormal(np.log(median), spread, count)
    return np.clip(drawn.round(), least, most).astype(np.int64)


def make_model(folder: Path, architecture: Mapping[str, Any], vocabulary: int) -> Path:
    """Draw a model, with a tokenizer of so many tokens or fewer."""
    words = folder.with_suffix(".parquet")
    letters = np.random.default_rng(1).integers(97, 123, (vocabulary // 10 + 1, 20, 5), dtype=np.uint8)
    texts = [" ".join(bytes(word).decode() for word in some) for some in letters]
    ids = [str(row) for row in range(len(texts))]
    tables.write_table(words, pa.table({"doc_id": ids, "text": texts}, schema=tables.PASSAGES))
    options = ["--architecture", json.dumps(architecture), "--vocabulary-size", str(vocabulary), "--seed", "1"]
    if base_model.main([*options, "--passages", str(words), "--output", str(folder)]):
        raise RuntimeError(f"{folder}: no model")
    return folder


def make_tokens(path: Path, model: Path, counts: npt.NDArray[np.int64], prefix: str) -> list[str]:
    """Draw texts of so many tokens each; their ids."""
    most = len(json.loads((model / "tokenizer.json").read_text("utf-8"))["model"]["vocab"])
    generator = np.random.default_rng(len(counts))
    ids = [f"{prefix}{row}" for row in range(len(counts))]
    blocks = (
        (pa.array(ids[at : at + 4_096]), [generator.integers(SPECIAL, most, n) for n in counts[at : at + 4_096]])
        for at in range(0, len(ids), 4_096)
    )
    write_tokens(path, blocks, fingerprint(model))
    return ids


def make_examples(folder: Path, queries: list[str], passages: list[str], count: int) -> None:
    """Draw triples, pairs, judgements, a teacher's scores, and a run of 10 passages for each query."""
    generator = np.random.default_rng(2)
    asked = [queries[row % len(queries)] for row in range(count)]
    positives, negatives = ([passages[row] for row in generator.integers(0, len(passages), count)] for _ in range(2))
    zeros, ones = (pa.array([value] * count, pa.int32()) for value in (0, 1))
    table = pa.table([zeros, *map(pa.array, (asked, positives, negatives)), ones], tables.TRIPLES)
    tables.write_table(folder / "triples.parquet", table)
    both = [*zip(asked, positives, strict=True)], [*zip(asked, negatives, strict=True)]
    judged = [(*pair, grade) for two in zip(*both, strict=True) for pair, grade in zip(two, (1, 0), strict=True)]
    grades = pa.array([0] * len(judged), pa.int32()), pa.array([grade for *_, grade in judged], pa.int32())
    tables.write_table(folder / "pairs.parquet", pa.table([grades[0], *_columns(judged), grades[1]], tables.PAIRS))
    known = list(dict.fromkeys(both[0]))
    relevance = pa.array([1] * len(known), pa.int32())
    tables.write_table(folder / "qrels.parquet", pa.table([*_columns(known), relevance], tables.QRELS))
    scored = list(dict.fromkeys(both[0] + both[1]))
    scores = pa.array(generator.standard_normal(len(scored)), pa.float32())
    tables.write_table(folder / "scores.parquet", pa.table([*_columns(scored), scores], tables.SCORES))
    drawn = ((one, generator.choice(len(passages), 10, replace=False)) for one in queries)
    falling = np.arange(10, 0, -1, dtype=np.float64)
    write_run(folder / "run.trec", (Ranking(one, [passages[row] for row in rows], falling) for one, rows in drawn), "r")


def _columns(pairs: Sequence[tuple[Any, ...]]) -> list[pa.Array]:
    return [pa.array([pair[column] for pair in pairs], pa.string()) for column in (0, 1)]


def make_world(folder: Path, size: Size) -> None:
    """Write what the checks read."""
    plain = make_model(folder / "plain", {**BERT_BASE, **SMALL, **PLAIN}, 300)
    make_model(folder / "dropout", {**BERT_BASE, **SMALL}, 300)
    make_model(folder / "t5", T5, 300)
    passages = make_tokens(folder / "passages.arrow", plain, lengths(size.passages, PASSAGE, 3), "d")
    queries = make_tokens(folder / "queries.arrow", plain, lengths(size.queries, QUERY, 4), "q")
    make_examples(folder, queries, passages, size.queries)
