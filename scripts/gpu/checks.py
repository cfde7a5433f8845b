"""Every path on a GPU against the CPU: each check runs what an experiment runs, and compares what it writes.

Tolerances: single precision differs by the order of its additions, half precision by its rounding, which was seen on
CPUs; what is promised to be the same is compared bit for bit.
"""

from __future__ import annotations

import csv
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file

from cort.formats import tables
from cort.formats.embeddings import all_vectors, open_shards
from cort.training.state import TrainingState
from scripts.gpu.results import Found, at_least, same, within
from scripts.gpu.world import World

Numbers = npt.NDArray[np.floating]
Check = Callable[[World], Found]

#: relative difference of numbers in single precision, and cosine and relative difference in half precision
SINGLE, COSINE = 1e-4, 0.995
HALF = {"bf16": 0.1, "fp16": 0.05}
#: of a trained model's change, beside that on the CPU; a large epsilon makes updates as large as their gradients
CHANGE = {"fp32": 2e-3, **HALF}
LENGTHS = {"query_length": 32, "passage_length": 180}
TRAINING = {"learning_rate": 0.1, "adam_epsilon": 1.0, "warmup_updates": 0, "gradient_accumulation": 2, "batch_size": 4}
OBJECTIVES: dict[str, dict[str, str]] = {
    "triplet": {},
    "multilabel_margin": {"qrels": "qrels.parquet", "validation_qrels": "qrels.parquet"},
    "info_nce": {"qrels": "qrels.parquet", "validation_qrels": "qrels.parquet"},
    "margin_mse": {"teacher_scores": "scores.parquet", "validation_teacher_scores": "scores.parquet"},
}
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
        read = {"candidates": world.path("run.trec"), "depth": 10, **_caches(world, validation=False)}
        world.run("score", device, model=model, **read, precision=name, output=output)
        scores.append(tables.read_table(output, tables.SCORES)["score"].to_numpy())
    return within(difference(*scores), SINGLE if precision == "fp32" else HALF[precision])


def _caches(world: World, *, validation: bool = True) -> dict[str, object]:
    queries = world.path("queries.arrow")
    names: dict[str, object] = {"passages": world.path("passages.arrow"), "queries": queries}
    return names | ({"validation_queries": queries} if validation else {})


def trained(world: World, stage: str, device: str, name: str, **options: object) -> dict[str, torch.Tensor]:
    """Train by a stage; the weights of the last model, and its losses."""
    output = world.path(f"trained.{name}.{device}")
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    files = {"output": output / "model", "output_curve": output / "curve.csv", "output_selection": output / "chosen"}
    named = {"base_model": world.path("plain"), "validate_every": 100, **TRAINING, **files, **options}
    world.run(stage, device, **named)
    with open(output / "curve.csv", encoding="utf-8", newline="") as lines:
        losses = [float(row["loss"]) for row in csv.DictReader(lines) if row["loss"]]
    weights = [load_file(path) for path in sorted((output / "model" / "last").glob("*.safetensors"))]
    return {name: one for some in weights for name, one in some.items()} | {"losses": torch.tensor(losses)}


def _encoder_options(world: World, loss: str = "triplet", **changes: object) -> dict[str, object]:
    triples = world.path("triples.parquet")
    files = {name: world.path(file) for name, file in OBJECTIVES[loss].items()}
    shape = {"dimension": 32, **LENGTHS, "loss": loss, "triples": triples, "validation_triples": triples}
    return _caches(world) | shape | files | changes


def train(world: World, stage: str, precision: str, options: Mapping[str, object], limit: float = 0.0) -> Found:
    """Train on both devices, without chance: weights change alike, and losses are the same."""
    if precision == "fp16" and world.device == "cpu":
        return Found("not on a CPU", "", None)
    found = trained(world, stage, world.device, "found", precision=precision, **options)
    start, reference = (_reference(world, stage, {**options, "learning_rate": rate}) for rate in (1e-30, 0.1))
    names = [name for name in reference if name != "losses" and reference[name].is_floating_point()]
    moved, wanted = (
        torch.cat([(model[name].double() - start[name].double()).flatten() for name in names])
        for model in (found, reference)
    )
    change = difference(moved.numpy(), wanted.numpy())
    loss = difference(found["losses"].numpy(), reference["losses"].numpy())
    judged = within(change, limit or CHANGE[precision])
    return judged._replace(
        passed=judged.passed and loss < (1e-4 if precision == "fp32" else 0.05),
        details={"of the losses": loss, "length of the change": float(wanted.norm())},
    )


def _reference(world: World, stage: str, options: Mapping[str, object]) -> dict[str, torch.Tensor]:
    """Train on the CPU, unless an earlier check did."""
    usual = {name: value for name, value in options.items() if name not in ("compile", "gradient_checkpointing")}
    key = hashlib.sha256(repr((stage, sorted(usual.items()))).encode()).hexdigest()[:16]
    path = world.path(f"{key}.safetensors")
    if not path.exists():
        save_file(trained(world, stage, "cpu", key, **usual), path)
    return load_file(path)


def train_encoder(world: World, loss: str = "triplet", precision: str = "fp32", **changes: object) -> Found:
    """Train an encoder."""
    return train(world, "train", precision, _encoder_options(world, loss, **changes))


def train_compiled(world: World) -> Found:
    """Train with torch.compile, which needs a compiler of C."""
    if not (shutil.which("gcc") or shutil.which("cc") or shutil.which("g++")):
        return Found("no compiler", "", None)
    return train_encoder(world, compile=True)


def train_reranker(world: World, kind: str) -> Found:
    """Train a re-ranker."""
    pairs = {"pairs": world.path("pairs.parquet"), "validation_pairs": world.path("pairs.parquet")}
    shape = {"kind": kind, "query_length": 32, "max_length": 180, **RERANKERS[kind]}
    return train(world, "train_reranker", "fp32", {**_caches(world), **pairs, **shape})


def train_expander(world: World) -> Found:
    """Train a model that generates queries."""
    qrels = {"qrels": world.path("qrels.parquet"), "validation_qrels": world.path("qrels.parquet")}
    shape = {"base_model": world.path("t5"), "epochs": 1, **LENGTHS}
    return train(world, "train_expander", "fp32", {**_caches(world), **qrels, **shape})


def _with_dropout(world: World, name: str, precision: str, **options: object) -> dict[str, torch.Tensor]:
    usual = {"base_model": world.path("dropout"), "learning_rate": 1e-3, "adam_epsilon": 1e-6}
    return trained(
        world, "train", world.device, name, precision=precision, **_encoder_options(world), **usual, **options
    )


def train_twice(world: World, precision: str) -> Found:
    """Train again, with dropout, to the same bytes."""
    return same(equal(*(_with_dropout(world, f"time {time}", precision) for time in (1, 2))))


def resume(world: World, precision: str) -> Found:
    """End a training in its second update, and go on: to the bytes of one that was not ended."""
    undisturbed = _with_dropout(world, "undisturbed", precision)
    advance, checkpoints = TrainingState.advance, {"checkpoints": world.path("checkpoints")}

    def ended(state: TrainingState, step: int, *values: Any) -> None:
        advance(state, step, *values)
        if step == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    try:
        with patch.object(TrainingState, "advance", ended):
            _with_dropout(world, "ended", precision, **checkpoints)
    except RuntimeError as error:
        if "checkpoint written at update 1" not in str(error):
            raise
    return same(equal(_with_dropout(world, "resumed", precision, **checkpoints), undisturbed))


def equal(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    """Whether two trainings gave the same weights and losses."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


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


def worker(world: World) -> Found:
    """One worker of several processes, which on a GPU speak by NCCL, gives the model of a process alone."""
    alone = trained(world, "train", world.device, "alone", **_encoder_options(world))
    with patch.dict(os.environ, _rank(world.device)):
        output = world.path("trained.worker")
        options = _encoder_options(world) | {"base_model": world.path("plain"), "validate_every": 100, **TRAINING}
        files = {"output": output / "model", "output_curve": output / "c.csv", "output_selection": output / "chosen"}
        words = [
            str(word) for name, value in {**options, **files}.items() for word in (f"--{name.replace('_', '-')}", value)
        ]
        _finish([subprocess.Popen([sys.executable, "-m", "cort.train", *words], stderr=subprocess.PIPE)])
    found = load_file(output / "model" / "last" / "model.safetensors")
    return within(max(difference(found[name].numpy(), alone[name].numpy()) for name in found), 1e-6)


def _rank(device: str) -> dict[str, str]:
    from socket import create_server

    with create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
    named = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    named |= {"NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"}
    return named | {"MASTER_PORT": port} | ({"ACCELERATE_USE_CPU": "true"} if device == "cpu" else {})


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
    _finish(processes)
    return same(np.array_equal(all_vectors(open_shards(shards)), reference))


def _finish(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        _, said = process.communicate()
        if process.returncode:
            raise RuntimeError(said.decode(errors="replace")[-1_500:])
