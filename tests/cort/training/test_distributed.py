"""Several processes train as one does; on the CPU, with gloo."""

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from cort.formats import tables
from cort.training.losses import ENCODER_OBJECTIVES
from cort.training.parallel import LAUNCHER, open_store, usable_processes
from tests.support.common import ROOT, logged, read_curve, wait_until, write_rows
from tests.support.forking import succeed
from tests.support.gradients import gradients_of
from tests.support.processes import Copy, Python
from tests.support.released import weights_of
from tests.support.training import Process, results, without_dropout, write_examples

CPU = {"ACCELERATE_USE_CPU": "true"}
slow = pytest.mark.slow

# What shipped configs train, and what else can be trained: name -> stage and options.
REPBERT = {"pooling": "mean", "projection": "False", "dimension": 32, "similarity": "inner_product"}
REPBERT |= {"loss": "multilabel_margin", "query_segment": 0, "passage_segment": 1}
WEIGHTED_MEAN = {"pooling": "weighted_mean", "projection": "False", "dimension": 32, "loss": "info_nce"}
SPLADE = {"kind": "sparse", "loss": "info_nce", "temperature": 1}
COLBERT = {"kind": "late_interaction", "dimension": 16, "loss": "softmax"}
WITHOUT_LAYERS = {"base_model": "no layers"}
KINDS = {
    "cort": ("train", {"pooling": "cls", "base_model": "albert"}),
    "repbert": ("train", REPBERT),
    "mean of token vectors": ("train", {**WEIGHTED_MEAN, **WITHOUT_LAYERS}),
    "distilled": ("train", {"loss": "margin_mse"}),
    "taught by lists": ("train", {"loss": "kl", "negatives": 3, "matryoshka": [4, 8]}),
    "several negatives": ("train", {"loss": "info_nce", "negatives": 3, "gradient_checkpointing": "True"}),
    "trained further": ("train", {"loss": "info_nce", "relative_margin": 0.05, "base_model": "encoder"}),
    "splade": ("train", SPLADE),
    "splade without query model": ("train", {**SPLADE, "query_encoder": "none"}),
    "bert": ("train_reranker", {}),
    "electra": ("train_reranker", {"base_model": "electra"}),
    "linear head": ("train_reranker", {"head": "linear"}),
    "colbert": ("train_reranker", {**COLBERT, "similarity": "l2", "fill_queries": "True", "skip_punctuation": "True"}),
    "term weights": ("train_reranker", {**COLBERT, "term_weights": "True"}),
    "term weights without layers": ("train_reranker", {**COLBERT, "term_weights": "True", **WITHOUT_LAYERS}),
    "knrm": ("train_reranker", {"kind": "knrm", "loss": "softmax"}),
    "conv-knrm": ("train_reranker", {"kind": "conv_knrm", "filters": 8, "loss": "softmax"}),
}


def qrels_of(stage_options, folder):
    """Options of the qrels of the examples."""
    plain = stage_options("train", folder)
    examples = Path(plain[plain.index("--triples") + 1]).parent
    return {"qrels": examples / "qrels.train.parquet", "validation_qrels": examples / "qrels.validation.parquet"}


@pytest.fixture
def trainings(world, lm, make_base_model, make_encoder, stage_options, tmp_path):
    """Name -> stage and options, of `KINDS`."""
    models = {"no layers": make_base_model(num_hidden_layers=0), "encoder": make_encoder()}
    models |= {name: make_base_model(model_type=name, embedding_size=16) for name in ("albert", "electra")}
    files, several = qrels_of(stage_options, tmp_path), write_examples(world, tmp_path, 18, seed=4, negatives=3)
    for key, query_ids in (("", world.query_ids[:20]), ("validation_", world.query_ids[20:])):
        rows = [(*pair, number % 7) for number, pair in enumerate(itertools.product(query_ids, world.doc_ids))]
        files[f"{key}teacher_scores"] = write_rows(tmp_path / f"{key}scores.parquet", tables.SCORES, rows)
    made = {}
    for name, (stage, settings) in KINDS.items():
        # Several micro-batches; of pairs, batches of an odd number of texts.
        changes = {"tokens_at_once": 150, "batch_size": 5, **settings}
        changes["base_model"] = models.get(settings.get("base_model"), lm)
        if stage == "train" and (loss := settings.get("loss")):
            needed = "scores" if ENCODER_OBJECTIVES[loss].teacher else "qrels"
            changes |= {key: file for key, file in files.items() if key.endswith(needed)}
        if "negatives" in settings:
            changes |= {"triples": several / "triples.train.parquet", "batch_size": 4}
            changes["validation_triples"] = several / "triples.validation.parquet"
        made[name] = stage, stage_options(stage, tmp_path, **changes)
    return made


@slow
@pytest.mark.usefixtures("training_process")
def test_two_processes_compute_the_gradients_of_one_for_all_kinds_of_models(trainings, tmp_path):
    """In double precision. A weight that no process used has no gradient, or else AdamW would decay it."""
    (tmp_path / "trainings.json").write_text(json.dumps(trainings))
    store = open_store()
    named = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    words = "tests.support.gradients", tmp_path / "trainings.json", tmp_path
    processes = [
        Copy(*words, environment={**CPU, **named, "WORLD_SIZE": "2", "RANK": rank, "LOCAL_RANK": rank})
        for rank in ("0", "1")
    ]
    alone = {name: gradients_of(*training) for name, training in trainings.items()}
    assert [process.wait(600) for process in processes] == [0, 0]
    sums = load_file(tmp_path / "sums.1.safetensors")
    assert {name: set(gradient.flatten().tolist()) for name, gradient in sums.items()} == {
        **{name: {3.0} for name in ("all", "half", "long")},
        "some": {2.0},
    }
    for name, gradients in alone.items():
        first, second = (load_file(tmp_path / f"{name}.{rank}.safetensors") for rank in (0, 1))
        assert first.keys() == second.keys() == gradients.keys()
        for weight, gradient in gradients.items():
            assert torch.equal(first[weight], second[weight]), (name, weight)
            assert torch.allclose(first[weight], gradient, rtol=1e-11, atol=2e-11), (name, weight)


# Each passage of a mini-batch is a negative of its queries, whichever process encoded it; activations are not kept.
ACROSS_PROCESSES = {"loss": "info_nce", "similarity": "cosine", "gradient_checkpointing": "True"}
# Queries go through a layer that passages do not.
TERM_WEIGHTS = {**COLBERT, "term_weights": "True", "batch_size": 13}


@slow
@pytest.mark.parametrize(
    ("stage", "more"),
    [
        ("train", ACROSS_PROCESSES),
        # Their gradients are compared above.
        pytest.param("train_reranker", TERM_WEIGHTS, marks=pytest.mark.exhaustive),
        pytest.param("train", {}, marks=pytest.mark.exhaustive),
        pytest.param("train_reranker", {}, marks=pytest.mark.exhaustive),
    ],
)
def test_two_processes_make_the_updates_of_one(stage, more, stage_options, lm, tmp_path, monkeypatch):
    """The processes share every mini-batch; the last update has fewer of them."""
    monkeypatch.setenv(*next(iter(CPU.items())))
    model = without_dropout(lm, tmp_path / "lm")
    changes = {"base_model": model, "learning_rate": 1e-3, "warmup_updates": 0, "max_gradient_norm": 1.0}
    # Texts are batched with other texts, which changes the rounding. With a small epsilon, Adam would turn rounding
    # errors of gradients near 0 into steps.
    changes |= {"adam_epsilon": 1e-3, "gradient_accumulation": 5, "validate_every": 3}
    changes |= {"batch_size": {"train": 16, "train_reranker": 26}[stage], **more}
    if "similarity" in more:
        changes |= qrels_of(stage_options, tmp_path)
    curves, weights = [], []
    for processes in (1, 2):
        output = tmp_path / str(processes)
        options = stage_options(stage, output, processes=processes, threads=2, **changes)
        said = succeed(ROOT, f"cort.{stage}", *options)
        assert said.count("validation loss") == 3
        assert said.count("2 processes of 1 threads") == processes - 1
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
        # A process that was killed leaves what says that it was writing.
        assert not list(output.glob("[!.]*"))
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
