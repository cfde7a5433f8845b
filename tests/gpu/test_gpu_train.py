"""Trainings on a GPU: the changes of weights of the CPU; and the same bytes again, also after an end."""

import os
import shutil
import signal
import subprocess
import sys
from socket import create_server
from unittest.mock import patch

import pytest
import torch

from cort.training.state import TrainingState
from tests.support.common import ROOT, read_curve
from tests.support.released import weights_of
from tests.support.training import long_training_options

pytestmark = pytest.mark.gpu
long = pytest.mark.usefixtures("long")
#: of the change of a model, beside that on the CPU
CHANGE = {"fp32": 2e-3, "tf32": 0.02, "bf16": 0.1, "fp16": 0.05}
LOSS = {"fp32": 1e-4, "tf32": 0.01, "bf16": 0.05, "fp16": 0.05}
#: a large epsilon makes updates as large as their gradients
USUAL = {"learning_rate": 0.1, "adam_epsilon": 1.0, "warmup_updates": 0, "validate_every": 100}


@pytest.fixture
def options(plain, long_caches, examples, tmp_path):
    """Words of a training into a new folder, and that folder."""

    def words(name, what, **changes):
        output = tmp_path / what
        output.mkdir()
        return long_training_options(plain, long_caches, examples, name, output, **(USUAL | changes)), output

    return words


def read(output):
    """The weights of the last model, and its losses."""
    losses = [row["loss"] for row in read_curve(output / "curve.csv") if row["loss"] is not None]
    return weights_of(output / "model" / "last") | {"losses": torch.tensor(losses)}


@pytest.fixture
def trained(stage, options):
    def train(name, device, what, **changes):
        argv, output = options(name, what, **changes)
        stage(name, device, argv)
        return read(output)

    return train


@pytest.fixture
def check(trained, device, difference):
    """Train on both devices, without chance: weights change alike, and losses are the same."""

    def compare(name, precision="fp32", only_here=None, **changes):
        found = trained(name, device, "found", precision=precision, **changes, **(only_here or {}))
        reference = trained(name, "cpu", "reference", **changes)
        start = trained(name, "cpu", "start", **changes, learning_rate=1e-30)
        keys = [key for key in reference if key != "losses" and reference[key].is_floating_point()]
        moved, wanted = (
            torch.cat([(one[key].double() - start[key].double()).flatten() for key in keys])
            for one in (found, reference)
        )
        assert wanted.norm() > 0
        assert difference(moved, wanted) <= CHANGE[precision]
        assert difference(found["losses"], reference["losses"]) <= LOSS[precision]

    return compare


@long
@pytest.mark.parametrize("loss", ["triplet", "multilabel_margin", "info_nce", "margin_mse"])
def test_an_encoder_learns_as_on_the_cpu(check, stage, rerankers, examples, long_caches, tmp_path, loss):
    files = {}
    for split in ("train", "validation"):
        prefix, scores = "" if split == "train" else "validation_", tmp_path / f"{split}.parquet"
        if loss == "margin_mse":
            argv = ["--model", rerankers("cross_encoder"), "--triples", examples / f"triples.{split}.parquet"]
            argv += ["--passages", long_caches["passages"], "--queries", long_caches[f"queries.{split}"]]
            stage("score", "cpu", [*argv, "--output", scores])
            files[f"{prefix}teacher_scores"] = scores
        elif loss != "triplet":
            files[f"{prefix}qrels"] = examples / f"qrels.{split}.parquet"
    check("train", loss=loss, **files)


@long
@pytest.mark.parametrize("precision", ["bf16", "fp16", "tf32"])
def test_an_encoder_learns_in_lower_precision(check, request, precision):
    if precision != "bf16":
        request.getfixturevalue("gpu")
    check("train", precision)


def test_gradient_checkpointing_changes_nothing(check):
    check("train", only_here={"gradient_checkpointing": "True"})


def test_a_compiled_model_learns_as_on_the_cpu(gpu, check):
    if not any(map(shutil.which, ("gcc", "cc", "g++"))):
        pytest.skip("no compiler of C")
    check("train", only_here={"compile": "True"})


@long
@pytest.mark.parametrize("kind", ["cross_encoder", "late_interaction", "knrm", "conv_knrm"])
def test_a_reranker_learns_as_on_the_cpu(check, kind):
    own = {"late_interaction": {"dimension": 16}, "conv_knrm": {"filters": 8}}
    check("train_reranker", kind=kind, **own.get(kind, {}))


@long
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_training_is_the_same_again_and_after_an_end(
    make_base_model, stage, options, trained, device, tmp_path, precision
):
    dropout = {"base_model": make_base_model(hidden_size=64, max_position_embeddings=512), "precision": precision}
    dropout |= {"learning_rate": 1e-3, "adam_epsilon": 1e-6}
    undisturbed, again = (trained("train", device, name, **dropout) for name in ("undisturbed", "again"))
    dropout["checkpoints"] = tmp_path / "checkpoints"
    advance = TrainingState.advance

    def ended(state, step, *values):
        advance(state, step, *values)
        if step == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    with patch.object(TrainingState, "advance", ended):
        stage("train", device, options("train", "ended", **dropout)[0], status=os.EX_TEMPFAIL)
    argv, output = options("train", "resumed", **dropout)
    assert "resumed at update 1" in stage("train", device, argv)
    for found in (again, read(output)):
        assert found.keys() == undisturbed.keys()
        assert all(torch.equal(found[key], undisturbed[key]) for key in found)


@long
def test_a_worker_alone_learns_as_a_process_alone(trained, options, device, difference):
    """Several processes on GPUs speak by NCCL."""
    alone, (argv, output) = trained("train", device, "alone"), options("train", "worker")
    with create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
    rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    rank |= {"MASTER_PORT": port, "NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"}
    # As many threads as here: on a CPU sums depend on them.
    rank |= {"OMP_NUM_THREADS": str(torch.get_num_threads())} | (
        {"ACCELERATE_USE_CPU": "true"} if device == "cpu" else {}
    )
    subprocess.run([sys.executable, "-m", "cort.train", *argv], cwd=ROOT, env=os.environ | rank, check=True)
    found = read(output)
    assert max(difference(found[key], alone[key]) for key in found if alone[key].norm()) <= 1e-6
