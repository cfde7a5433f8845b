"""Real processes, really interrupted: they end with the same bytes as one that nothing happened to."""

import json
import signal
import subprocess
import sys
from functools import partial

import pytest

from cort.system.program import program_of
from tests.support.common import ROOT
from tests.support.training import Process, long_training_options, results, write_examples

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def stage_options(world, lm, caches, tmp_path_factory):
    examples = write_examples(world, tmp_path_factory.mktemp("examples"), epochs=18, seed=42)
    return partial(long_training_options, lm, caches, examples)


@pytest.fixture(scope="session")
def undisturbed(stage_options, tmp_path_factory):
    """Results of trainings that nothing happened to, without checkpoints."""
    found = {}

    def get(stage):
        if stage not in found:
            output = tmp_path_factory.mktemp("undisturbed")
            assert Process(stage, stage_options(stage, output)).end() == 0
            found[stage] = results(output)
            assert len(found[stage][1]) > 50
        return found[stage]

    return get


@pytest.mark.parametrize(
    ("stage", "interruptions"),
    [
        ("train", [signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1]),
        pytest.param("train_reranker", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM], marks=pytest.mark.exhaustive),
    ],
)
def test_interrupted_again_and_again_it_ends_with_the_same_bytes(
    stage, interruptions, stage_options, undisturbed, tmp_path
):
    folder, output, log = tmp_path / "checkpoints", tmp_path / "out", tmp_path / "a.log"
    options = stage_options(stage, output, checkpoints=folder, log=log)
    for number in interruptions:
        # Only for what comes without warning must checkpoints be written before.
        every = 0 if number == signal.SIGKILL else 600
        process = Process(stage, [*options, "--checkpoint-every", str(every)])
        process.wait_for("validation loss", 2)
        status = process.end(number)
        assert not output.exists()
        if number == signal.SIGKILL:
            assert status == -number
        else:
            assert status == (130 if number == signal.SIGINT else 75)
            (line,) = process.saying("WARNING", "ERROR", "Traceback")
            assert line.startswith(f"WARNING {number.name}: checkpoint written at update ")
            assert line.endswith(".safetensors")
            assert line in log.read_text()
        assert folder.exists()
    process = Process(stage, options)
    assert process.end() == 0
    assert len(process.saying("resumed at update")) == 1
    assert results(output) == undisturbed(stage)
    assert not folder.exists()


@pytest.mark.exhaustive
def test_two_of_the_same_training_do_not_harm_each_other(stage_options, undisturbed, tmp_path):
    """The second resumes from the first one's checkpoints, which vanish while it works."""
    folder, output = tmp_path / "checkpoints", tmp_path / "out"
    options = [*stage_options("train", output, checkpoints=folder), "--checkpoint-every", "0"]
    first = Process("train", options)
    first.wait_for("validation loss", 2)
    # It may not be done before the second has begun.
    first.process.send_signal(signal.SIGSTOP)
    second = Process("train", options)
    second.wait_for("resumed at update")
    first.process.send_signal(signal.SIGCONT)
    assert first.end() == 0
    assert second.end() == 0
    assert second.saying("WARNING", "ERROR") == first.saying("WARNING best model")
    assert results(output) == undisturbed("train")
    assert not folder.exists()


def test_checkpoints_of_other_settings_are_not_resumed(stage_options, undisturbed, tmp_path):
    folder, output = tmp_path / "checkpoints", tmp_path / "out"
    process = Process("train", stage_options("train", output, checkpoints=folder, margin=0.2))
    process.wait_for("validation loss")
    assert process.end(signal.SIGTERM) == 75
    # Where results go, and how fast, makes no other training.
    process = Process("train", stage_options("train", output, checkpoints=folder))
    assert process.end() == 0
    assert len(process.saying("belongs to another training: ignored")) == 1
    assert not process.saying("resumed")
    assert results(output) == undisturbed("train")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGUSR1, 138), (signal.SIGINT, 130)])
def test_a_signal_while_it_loads_ends_it_at_once(stage_options, tmp_path, number, status):
    folder, output = tmp_path / "checkpoints", tmp_path / "out"
    process = Process("train", stage_options("train", output, checkpoints=folder))
    process.wait_for("INFO cort ")
    assert process.end(number) == status
    assert not process.saying("Traceback")
    assert not output.exists()


@pytest.mark.parametrize("stage", ["train", "train_reranker"])
def test_all_modules_that_are_loaded_belong_to_the_training(stage, stage_options, tmp_path):
    options = stage_options(stage, tmp_path / "out", gradient_accumulation=500, checkpoints=tmp_path / "c")
    code = """
import importlib, json, sys
assert importlib.import_module(sys.argv[1]).main(sys.argv[2:]) == 0
print(json.dumps([name for name in sys.modules if name.split(".")[0] == "cort"]))
"""
    command = [sys.executable, "-c", code, f"cort.{stage}", *options]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(json.loads(result.stdout))
    assert f"cort.{stage}" in loaded
    files = {f"{name.replace('.', '/')}{ending}" for name in loaded for ending in (".py", "/__init__.py")}
    known = {name for name in files if (ROOT / name).is_file() and not name.startswith("cort/system/")}
    assert known <= program_of(f"cort.{stage}").keys()
