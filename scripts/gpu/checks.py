"""Every path on a GPU against the CPU: each check runs what an experiment runs, and compares what it writes.

Tolerances: single precision differs by the order of its additions, half precision by its rounding, which was seen on
CPUs; what is promised to be the same is compared bit for bit.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from cort.formats import tables
from cort.formats.embeddings import all_vectors, open_shards
from scripts.gpu.results import Found, at_least, same, within
from scripts.gpu.world import World

Numbers = npt.NDArray[np.floating]
Check = Callable[[World], Found]

#: relative difference of numbers in single precision, and cosine and relative difference in half precision
SINGLE, COSINE = 1e-4, 0.995
HALF = {"bf16": 0.1, "fp16": 0.05}
LENGTHS = {"query_length": 32, "passage_length": 180}
RERANKERS: dict[str, dict[str, object]] = {
    "cross_encoder": {},
    "late_interaction": {"dimension": 16},
    "knrm": {},
    "conv_knrm": {"filters": 8},
}


def difference(one: Numbers, other: Numbers) -> float:
    """Length of the difference as a share of the other's."""
    reference = np.asarray(other, np.float64)
    return float(np.linalg.norm(np.asarray(one, np.float64) - reference) / max(float(np.linalg.norm(reference)), 1e-30))


def multiply(world: World) -> Found:
    """Products in single precision have no fewer bits (no TF32), as the bounds of exact search need."""
    torch.set_float32_matmul_precision("highest")
    one, other = torch.randn(2, 256, 512, generator=torch.Generator().manual_seed(1)).double()
    found = (one.to(world.device, torch.float32) @ other.T.to(world.device, torch.float32)).cpu()
    return within(difference(found.numpy(), (one @ other.T).numpy()), 1e-6)


def encoder(world: World) -> Path:
    """Make an encoder of random weights."""
    from cort.models.encoder import new_encoder, save_encoder
    from cort.models.settings import EncoderSettings

    folder = world.path("encoder")
    if not folder.exists():
        model = new_encoder(world.path("plain"), EncoderSettings(dimension=32, query_length=32, passage_length=180), 1)
        save_encoder(model, world.path("plain"), folder)
    return folder


def encoded(world: World, precision: str, device: str = "") -> Numbers:
    """Encode all passages by the stage."""
    output = world.path(f"vectors.{precision}.{device or 'device'}.arrow")
    named = {"model": encoder(world), "tokens": world.path("passages.arrow"), "kind": "passage"}
    world.run("encode", device, **named, precision=precision, output=output)
    return all_vectors(open_shards([output]))


def encode(world: World, precision: str) -> Found:
    """Vectors are those of the CPU in single precision."""
    found, reference = encoded(world, precision), encoded(world, "fp32", "cpu")
    if precision == "fp32":
        return within(float(np.abs(found - reference).max()), 5e-5)
    return at_least(float((found * reference).sum(1).min()), COSINE)


def encode_twice(world: World) -> Found:
    """Encode again, to the same vectors."""
    return same(np.array_equal(encoded(world, "bf16"), encoded(world, "bf16")))


def score(world: World, kind: str, precision: str = "fp32") -> Found:
    """Scores of re-rankers are those of the CPU."""
    from cort.models.rerankers import new_reranker, save_reranker
    from cort.models.settings import PairSettings

    model = world.path(f"reranker.{kind}")
    if not model.exists():
        settings: dict[str, Any] = RERANKERS[kind]
        new = new_reranker(world.path("plain"), PairSettings(32, 180, kind=kind, **settings), 1)
        save_reranker(new, world.path("plain"), model)
    scores = []
    for device, name in ((world.device, precision), ("cpu", "fp32")):
        output = world.path(f"scores.{kind}.{device}.parquet")
        read = {"candidates": world.path("run.trec"), "depth": 10, **caches(world, validation=False)}
        world.run("score", device, model=model, **read, precision=name, output=output)
        scores.append(tables.read_table(output, tables.SCORES)["score"].to_numpy())
    return within(difference(*scores), SINGLE if precision == "fp32" else HALF[precision])


def caches(world: World, *, validation: bool = True) -> dict[str, object]:
    """Name the texts that trainings and re-rankers read."""
    queries = world.path("queries.arrow")
    names: dict[str, object] = {"passages": world.path("passages.arrow"), "queries": queries}
    return names | ({"validation_queries": queries} if validation else {})


def expand(world: World) -> Found:
    """Most queries are those generated on the CPU: a logit's last bits decide few draws."""
    found = []
    for device in (world.device, "cpu"):
        output = world.path(f"expansions.{device}.parquet")
        shape = {"passage_length": 180, "query_length": 8, "queries": 4}
        world.run("expand", device, model=world.path("t5"), tokens=world.path("passages.arrow"), **shape, output=output)
        found.append(
            [text for row in tables.read_table(output, tables.EXPANSIONS)["queries"].to_pylist() for text in row]
        )
    return at_least(float(np.mean([one == other for one, other in zip(*found, strict=True)])), 0.98)


def weigh(world: World) -> Found:
    """Weigh terms: but for weights between two whole numbers, they are those of the CPU."""
    from cort.models.transformer import TOKENIZER_FILES
    from cort.models.weigher import load_weigher

    model = world.path("weigher")
    if not model.exists():
        load_weigher(world.path("plain"), 180, trained=False)[0].classifier.save_pretrained(model)
        for name in TOKENIZER_FILES:
            shutil.copyfile(world.path("plain") / name, model / name)
    found = []
    for device in (world.device, "cpu"):
        output = world.path(f"weights.{device}.parquet")
        world.run("weigh", device, model=model, tokens=world.path("passages.arrow"), passage_length=180, output=output)
        found.append(tables.read_table(output, tables.TERM_WEIGHTS)["weights"].to_pylist())
    return at_least(float(np.mean([one == other for one, other in zip(*found, strict=True)])), 0.98)


def share_device(world: World) -> Found:
    """Two processes that encode at once take turns on one device, and their shards are those of one process."""
    reference, shards = encoded(world, "fp32"), []
    processes = []
    for part in ("1-of-2", "2-of-2"):
        shards.append(world.path(f"shard.{part}.arrow"))
        words = ["--model", encoder(world), "--tokens", world.path("passages.arrow"), "--kind", "passage"]
        words += ["--shard", part, "--output", shards[-1]]
        command = [sys.executable, "-m", "cort.encode", *map(str, words)]
        processes.append(subprocess.Popen(command, stderr=subprocess.PIPE))
    finish(processes)
    return same(np.array_equal(all_vectors(open_shards(shards)), reference))


def finish(processes: list[subprocess.Popen[bytes]]) -> None:
    """Wait for processes.

    :raises RuntimeError: one failed; with its last words.
    """
    for process in processes:
        _, said = process.communicate()
        if process.returncode:
            raise RuntimeError(said.decode(errors="replace")[-1_500:])
