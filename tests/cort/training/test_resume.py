"""Real processes, really interrupted: they end with the same bytes as one that was not."""

import json
import signal
import subprocess
import sys

import pytest

from cort.runtime.program import program_of
from tests.support.common import ROOT
from tests.support.training import Process, loading, results

pytestmark = pytest.mark.slow

# Runs a stage, and lists the project's modules that it loaded.
LISTING = """
import importlib, json, sys
assert importlib.import_module(sys.argv[1]).main(sys.argv[2:]) == 0
print(json.dumps([name for name in sys.modules if name.split(".")[0] == "cort"]))
"""


@pytest.fixture(scope="session")
def undisturbed(stage_options, tmp_path_factory):
    """Results of trainings without interruption and checkpoints, and the modules that they loaded."""
    trainings = {}

    def get(stage, lora=None):
        if lora:
            pytest.importorskip("peft")
        if (stage, lora) not in trainings:
            output = tmp_path_factory.mktemp("undisturbed")
            command = [sys.executable, "-c", LISTING, f"cort.{stage}", *stage_options(stage, output, lora_rank=lora)]
            process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
            trainings[stage, lora] = results(output), set(json.loads(process.stdout))
        return trainings[stage, lora]

    return get


@pytest.mark.parametrize(("stage", "lora"), [("train", None), ("train_reranker", 2)])
def test_all_modules_that_are_loaded_belong_to_the_program_of_the_training(stage, lora, undisturbed):
    _, loaded = undisturbed(stage, lora)
    assert f"cort.{stage}" in loaded
    own = [name for name in loaded if not name.startswith(("cort.runtime", "cort.config"))]
    files = {f"{name.replace('.', '/')}{ending}" for name in own for ending in (".py", "/__init__.py")}
    assert {name for name in files if (ROOT / name).is_file()} <= program_of(f"cort.{stage}").keys()


@pytest.mark.parametrize(
    ("stage", "interruptions", "lora"),
    [
        ("train", [signal.SIGKILL, signal.SIGUSR1], None),
        ("train_reranker", [signal.SIGTERM], 2),
        pytest.param(
            *("train_reranker", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM], None), marks=pytest.mark.exhaustive
        ),
    ],
)
def test_a_training_that_is_interrupted_several_times_ends_with_the_same_bytes(
    stage, interruptions, lora, stage_options, undisturbed, tmp_path
):
    """The first process of several has other settings: its checkpoint must be ignored."""
    folder, output, log = tmp_path / "checkpoints", tmp_path / "out", tmp_path / "a.log"
    if lora:
        pytest.importorskip("peft")
    options = stage_options(stage, output, checkpoints=folder, log=log, lora_rank=lora)
    other = len(interruptions) > 1
    for at, number in enumerate(interruptions):
        # Only before SIGKILL, which comes without warning, must checkpoints be written.
        every = 0 if number == signal.SIGKILL else 600
        changes = ["--weight-decay", "0.2"] if other and at == 0 else []
        process = Process(stage, [*options, *changes, "--checkpoint-every", str(every)])
        process.wait_for("validation loss", 2)
        status = process.end(number)
        # A process that was killed leaves what says that it was writing.
        assert not list(output.glob("[!.]*"))
        assert bool(process.saying("belongs to another training: ignored")) == (other and at == 1)
        assert len(process.saying("resumed at update")) == (at > other)
        if number == signal.SIGKILL:
            assert status == -number
        else:
            assert status == (130 if number == signal.SIGINT else 75)
            (line,) = process.saying("WARNING", "ERROR", "Traceback")
            assert line.startswith(f"WARNING {number.name}: checkpoint written at update ")
            assert line.endswith(".safetensors")
            assert line in log.read_text()
    process = Process(stage, options)
    assert process.end() == 0
    assert len(process.saying("resumed at update")) == 1
    models, curve = results(output)
    assert (models, curve) == undisturbed(stage, lora)[0]
    assert len(curve) > 50
    # What a killed process was writing is left to `make clean-cache`.
    assert not list(folder.glob("[!.]*"))


@pytest.mark.exhaustive
def test_two_processes_with_the_same_training_do_not_harm_each_other(stage_options, undisturbed, tmp_path):
    """The second resumes from the first one's checkpoints; the first then overwrites nothing."""
    folder, output = tmp_path / "checkpoints", tmp_path / "out"
    options = [*stage_options("train", output, checkpoints=folder), "--checkpoint-every", "0"]
    first = Process("train", options)
    first.wait_for("validation loss", 2)
    # The first may not finish before the second has begun.
    first.process.send_signal(signal.SIGSTOP)
    second = Process("train", options)
    second.wait_for("resumed at update")
    first.process.send_signal(signal.SIGCONT)
    assert first.end() == 1
    (error,) = first.saying("ERROR")
    assert f"ERROR {output}/" in error
    assert "a stage that started later writes it" in error
    assert second.end() == 0
    assert second.saying("WARNING", "ERROR") == second.saying("WARNING best model")
    assert results(output) == undisturbed("train")[0]
    assert not folder.exists()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGUSR1, 138), (signal.SIGINT, 130)])
def test_a_signal_while_it_loads_ends_it_at_once(stage_options, tmp_path, number, status):
    folder, output = tmp_path / "checkpoints", tmp_path / "out"
    process = Process("train", stage_options("train", output, checkpoints=folder), loading)
    process.wait_for("INFO cort ")
    assert process.end(number) == status
    assert not process.saying("Traceback")
    assert not output.exists()
