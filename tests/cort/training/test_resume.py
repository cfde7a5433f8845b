"""Real processes, really interrupted: they end with the same bytes as one that nothing happened to."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from cort import pairs, triples
from cort.formats import tables
from cort.models.cache_key import imported_modules
from tests.conftest import ROOT
from tests.support.common import command_line, contents

pytestmark = pytest.mark.slow
TIMEOUT = 300


@pytest.fixture(scope="session")
def stage_options(world, lm, caches, tmp_path_factory):
    """Options of both stages, of long trainings with small models; keyword arguments replace some."""
    folder = tmp_path_factory.mktemp("examples")
    table = tables.read_table(world.path("qrels.parquet"), tables.QRELS)
    for name, part, epochs in (("train", (0, 20), 18), ("validation", (20, 10), 1)):
        tables.write_table(folder / f"qrels.{name}.parquet", table.slice(*part))
        for what, sample in (("triples", triples), ("pairs", pairs)):
            argv = ["--qrels", folder / f"qrels.{name}.parquet", "--run", world.path("ranking.trec")]
            argv += ["--first-rank", 2, "--last-rank", 20, "--epochs", epochs, "--output-counts", folder / "c.json"]
            assert sample.main([str(part) for part in [*argv, "--output", folder / f"{what}.{name}.parquet"]]) == 0
    own = {
        "train": {
            "triples": folder / "triples.train.parquet",
            "validation-triples": folder / "triples.validation.parquet",
            "pooling": "mean",
            "dimension": 16,
            "passage-length": 24,
        },
        "train_reranker": {
            "pairs": folder / "pairs.train.parquet",
            "validation-pairs": folder / "pairs.validation.parquet",
            "max-length": 32,
        },
    }

    def build(stage, output, **changes):
        named = {
            **own[stage],
            "base-model": lm,
            "passages": caches["passages"],
            "queries": caches["queries.train"],
            "validation-queries": caches["queries.validation"],
            "query-length": 12,
            "batch-size": {"train": 2, "train_reranker": 4}[stage],
            "gradient-accumulation": 3,
            "learning-rate": 0.002,
            "warmup-updates": 2,
            "validate-every": 6,
            "seed": 1,
            "output": output / "model",
            "output-curve": output / "curve.csv",
        }
        return command_line(named, changes)

    return build


class Process:
    """A stage in a process of its own, whose log can be waited for."""

    def __init__(self, stage, argv, **environment):
        command = [sys.executable, "-m", f"cort.{stage}", *argv]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **environment},
            stderr=subprocess.PIPE,
            text=True,
            # As in a terminal, wherever the tests run.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        self.lines, self.grown = [], threading.Condition()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        for line in self.process.stderr:
            with self.grown:
                self.lines.append(line.rstrip("\n").split(" ", 1)[-1])
                self.grown.notify_all()
        self.process.wait()
        with self.grown:
            self.grown.notify_all()

    def wait_for(self, text, count=1):
        def there():
            return sum(text in line for line in self.lines) >= count or self.process.poll() is not None

        with self.grown:
            assert self.grown.wait_for(there, TIMEOUT)
        assert self.process.poll() is None, self.lines

    def end(self, number=None):
        """Send a signal and wait; the exit status."""
        if number is not None:
            self.process.send_signal(number)
        status = self.process.wait(TIMEOUT)
        self.reader.join()
        return status

    def saying(self, *words):
        return [line for line in self.lines if any(word in line for word in words)]


def results(output):
    """Bytes of both models, and the curve without the column that is measured."""
    rows = (output / "curve.csv").read_text().splitlines()
    return contents(output / "model"), [row.rsplit(",", 1)[0] for row in rows]


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
    assert not second.saying("WARNING", "ERROR")
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
    assert loaded <= set(imported_modules(f"cort.{stage}"))
