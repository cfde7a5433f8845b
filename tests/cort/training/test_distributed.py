"""Several processes train as one does; on the CPU, with gloo."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from cort.training.parallel import LAUNCHER, open_store, usable_processes
from tests.support.common import ROOT, logged, read_curve, wait_until
from tests.support.processes import Python
from tests.support.released import weights_of
from tests.support.training import Process, results, without_dropout

CPU = {"ACCELERATE_USE_CPU": "true"}
slow = pytest.mark.slow


# Each passage of a mini-batch is a negative of its queries, whichever process encoded it; activations are not kept.
ACROSS_PROCESSES = {"loss": "info_nce", "similarity": "cosine", "gradient_checkpointing": "True"}


@slow
@pytest.mark.parametrize(
    ("stage", "more"),
    [
        ("train", ACROSS_PROCESSES),
        pytest.param("train", {}, marks=pytest.mark.exhaustive),
        pytest.param("train_reranker", {}, marks=pytest.mark.exhaustive),
    ],
)
def test_two_processes_make_the_updates_of_one(stage, more, stage_options, lm, tmp_path):
    """The processes share every mini-batch; the last update has fewer of them."""
    model = without_dropout(lm, tmp_path / "lm")
    changes = {"base_model": model, "learning_rate": 1e-3, "warmup_updates": 0, "max_gradient_norm": 1.0}
    # Texts are batched with other texts, which changes the rounding. With a small epsilon, Adam would turn rounding
    # errors of gradients near 0 into steps.
    changes |= {"adam_epsilon": 1e-3, "gradient_accumulation": 5, "validate_every": 3, **more}
    changes["batch_size"] = {"train": 16, "train_reranker": 26}[stage]
    if more:
        plain = stage_options(stage, tmp_path)
        folder = Path(plain[plain.index("--triples") + 1]).parent
        changes |= {"qrels": folder / "qrels.train.parquet", "validation_qrels": folder / "qrels.validation.parquet"}
    curves, weights = [], []
    for processes in (1, 2):
        output = tmp_path / str(processes)
        process = Process(stage, stage_options(stage, output, processes=processes, threads=2, **changes), **CPU)
        assert process.end() == 0, process.lines[-20:]
        assert len(process.saying("validation loss")) == 3
        assert len(process.saying("2 processes of 1 threads")) == processes - 1
        curves.append(read_curve(output / "curve.csv"))
        weights.append(weights_of(output / "model" / "last"))
        assert (output / "model" / "best").is_dir()
    assert len(curves[0]) == 1 + {"train": 5, "train_reranker": 6}[stage]
    for alone, together in zip(*curves, strict=True):
        for name in ("step", "epoch", "loss", "validation_loss", "learning_rate"):
            values = alone[name], together[name]
            assert values == (None, None) or values[0] == pytest.approx(values[1], rel=1e-5)
    changed = 0.0
    start = load_file(model / "model.safetensors")
    for (file, name), tensor in weights[0].items():
        # Softmax ignores the bias of keys: its gradient is rounding error, which Adam turns into steps.
        if name.endswith("key.bias"):
            continue
        assert torch.allclose(tensor, weights[1][file, name], rtol=0, atol=1e-6), name
        before = start.get(name.removeprefix("bert."))
        if before is not None and before.shape == tensor.shape:
            changed += (tensor - before).abs().max().item()
    # They moved a thousand times farther than they may differ.
    assert changed > 0.01


@slow
@pytest.mark.exhaustive
def test_two_processes_resume_as_if_nothing_had_happened(stage_options, tmp_path):
    """With dropout, so that the random states of both count. The launcher alone gets the signals."""
    undisturbed, folder, output, log = (tmp_path / name for name in ("undisturbed", "checkpoints", "out", "a.log"))
    assert Process("train", stage_options("train", undisturbed, processes=2), **CPU).end() == 0
    options = stage_options("train", output, processes=2, checkpoints=folder, log=log)

    def assert_log():
        assert [text.split(" ", 1)[1] for text in log.read_text().splitlines()] == process.lines

    for number, every in ((signal.SIGUSR1, 600), (signal.SIGKILL, 0), (signal.SIGINT, 600)):
        process = Process("train", [*options, "--checkpoint-every", str(every)], **CPU)
        process.wait_for("validation loss", 2)
        workers = psutil.Process(process.process.pid).children()
        assert len(workers) == 2
        status = process.end(number)
        assert not output.exists()
        gone, alive = psutil.wait_procs(workers, timeout=30)
        assert len(gone) == 2, alive
        if number == signal.SIGKILL:
            continue
        assert status == {signal.SIGUSR1: 75, signal.SIGINT: 130}[number]
        # One of both speaks, and the log has the same lines.
        (line,) = process.saying("WARNING", "ERROR", "Traceback")
        assert line.startswith(f"WARNING {number.name}: checkpoint written at update ")
        assert_log()
    process = Process("train", options, **CPU)
    assert process.end() == 0
    assert len(process.saying("resumed at update")) == 1
    assert len(process.saying("done in")) == 1
    assert_log()
    assert results(output) == results(undisturbed)
    assert not folder.exists()


@slow
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"passage_length": 49}, "passage_length: found 49, expected 3 to 48 tokens for this model"),
        (
            {"learning_rate": 10, "weight_decay": 100, "warmup_updates": 0},
            "update 4: found the loss nan on the examples ",
        ),
    ],
    ids=["before they meet", "in an update"],
)
def test_an_error_of_all_processes_is_one_line(stage_options, tmp_path, changes, error):
    process = Process("train", stage_options("train", tmp_path, processes=2, **changes), **CPU)
    assert process.end() == 1
    (line,) = process.saying("WARNING", "ERROR", "Traceback")
    assert line.startswith(f"ERROR {error}")


@slow
def test_a_killed_process_ends_the_others_and_costs_little(stage_options, tmp_path):
    folder, output = tmp_path / "checkpoints", tmp_path / "out"
    options = [*stage_options("train", output, processes=2, checkpoints=folder), "--checkpoint-every", "0"]
    process = Process("train", options, **CPU)
    process.wait_for("validation loss", 2)
    workers = psutil.Process(process.process.pid).children()
    second = next(worker for worker in workers if worker.environ()["RANK"] == "1")
    second.kill()
    assert process.end() == 128 + signal.SIGKILL
    (line,) = process.saying("WARNING", "ERROR", "Traceback")
    assert line == "ERROR process 1 was killed by signal 9 (out of memory?); the others were ended"
    assert len(psutil.wait_procs(workers, timeout=30)[0]) == 2
    # One process can go on where two were.
    process = Process("train", stage_options("train", output, checkpoints=folder))
    process.wait_for("resumed at update")
    process.end(signal.SIGKILL)


@slow
@pytest.mark.parametrize(
    ("number", "status"), [pytest.param(signal.SIGTERM, 143, marks=pytest.mark.exhaustive), (signal.SIGINT, 130)]
)
def test_a_signal_while_the_processes_start_ends_all(stage_options, tmp_path, number, status):
    process = Process("train", stage_options("train", tmp_path, processes=2), **CPU)
    process.wait_for("2 processes")
    launcher = psutil.Process(process.process.pid)
    workers = wait_until(lambda: len(started := launcher.children()) == 2 and started, "two workers", 60)
    assert process.end(number) == status
    assert not process.saying("Traceback")
    assert len(psutil.wait_procs(workers, timeout=30)[0]) == 2


def test_a_worker_whose_launcher_is_gone_ends_at_once():
    environment = {**os.environ, LAUNCHER: str(os.getpid() + 1), "RANK": "0"}
    command, options = [sys.executable, "-m", "cort.train", "--help"], {"cwd": ROOT, "stdout": subprocess.PIPE}
    result = subprocess.run(command, env=environment, check=False, **options)
    assert (result.returncode, result.stdout) == (128 + signal.SIGKILL, b"")
    environment[LAUNCHER] = str(os.getpid())
    assert b"--processes N" in subprocess.run(command, env=environment, check=True, **options).stdout


def test_a_worker_dies_with_its_launcher(tmp_path):
    """The launcher is killed while the worker sleeps."""
    worker = "import os, time; from cort.training.parallel import die_with; die_with(os.getppid()); "
    worker += "print(1, flush=True); time.sleep(99)"
    launcher = f"import subprocess, sys; process = subprocess.Popen([sys.executable, '-c', {worker!r}]); "
    launcher += "print(process.pid, flush=True); process.wait()"
    with Python("-c", launcher, stdout=subprocess.PIPE) as process:
        orphan = psutil.Process(int(process.stdout.readline()))
        assert process.stdout.readline() == "1\n"
    process.stdout.close()
    assert psutil.wait_procs([orphan], timeout=30)[0] == [orphan]


def test_the_store_listens_on_the_loopback_device_only():
    store = open_store()
    listening = [socket.laddr for socket in psutil.Process().net_connections() if socket.status == psutil.CONN_LISTEN]
    assert [address.ip for address in listening if address.port == store.port] == ["127.0.0.1"]


def test_there_are_as_many_processes_as_gpus_at_most(monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.delenv("ACCELERATE_USE_CPU", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert [usable_processes(wanted) for wanted in (1, 2, 8)] == [1, 1, 1]
    assert logged(caplog) == [f"{wanted} processes requested, 0 GPUs available" for wanted in (2, 8)]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert [usable_processes(wanted) for wanted in (1, 2, 8)] == [1, 2, 4]
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    assert usable_processes(8) == 8
