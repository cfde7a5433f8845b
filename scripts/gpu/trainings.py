"""Trainings on a GPU against the CPU: the same changes of weights; and the same bytes again, also after an end."""

from __future__ import annotations

import csv
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import torch
from safetensors.torch import load_file, save_file

from cort.training.state import TrainingState
from scripts.gpu.checks import HALF, LENGTHS, RERANKERS, caches, difference, finish
from scripts.gpu.results import Found, same, within
from scripts.gpu.world import World

#: of a trained model's change, beside that on the CPU; a large epsilon makes updates as large as their gradients
CHANGE = {"fp32": 2e-3, **HALF}
TRAINING = {"learning_rate": 0.1, "adam_epsilon": 1.0, "warmup_updates": 0, "gradient_accumulation": 2, "batch_size": 4}
OBJECTIVES: dict[str, dict[str, str]] = {
    "triplet": {},
    "multilabel_margin": {"qrels": "qrels.parquet", "validation_qrels": "qrels.parquet"},
    "info_nce": {"qrels": "qrels.parquet", "validation_qrels": "qrels.parquet"},
    "margin_mse": {"teacher_scores": "scores.parquet", "validation_teacher_scores": "scores.parquet"},
}


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
    return caches(world) | shape | files | changes


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
    if world.device == "cpu":
        return Found("not on a CPU", "", None)
    if not (shutil.which("gcc") or shutil.which("cc") or shutil.which("g++")):
        return Found("no compiler", "", None)
    return train_encoder(world, compile=True)


def train_reranker(world: World, kind: str) -> Found:
    """Train a re-ranker."""
    pairs = {"pairs": world.path("pairs.parquet"), "validation_pairs": world.path("pairs.parquet")}
    shape = {"kind": kind, "query_length": 32, "max_length": 180, **RERANKERS[kind]}
    return train(world, "train_reranker", "fp32", {**caches(world), **pairs, **shape})


def train_expander(world: World) -> Found:
    """Train a model that generates queries."""
    qrels = {"qrels": world.path("qrels.parquet"), "validation_qrels": world.path("qrels.parquet")}
    shape = {"base_model": world.path("t5"), "epochs": 1, **LENGTHS}
    return train(world, "train_expander", "fp32", {**caches(world), **qrels, **shape})


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
        finish([subprocess.Popen([sys.executable, "-m", "cort.train", *words], stderr=subprocess.PIPE)])
    found = load_file(output / "model" / "last" / "model.safetensors")
    return within(max(difference(found[name].numpy(), alone[name].numpy()) for name in found), 1e-6)


def _rank(device: str) -> dict[str, str]:
    from socket import create_server

    with create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
    named = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    # As many threads as here: on a CPU sums depend on them.
    named |= {"NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": str(torch.get_num_threads())}
    return named | {"MASTER_PORT": port} | ({"ACCELERATE_USE_CPU": "true"} if device == "cpu" else {})
