"""The GPU check tried on a CPU: its runner with workers that fail in every way, its arithmetic, and all of it once."""

import json
import math
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cort.retrieval import codes
from scripts import gpu_check
from scripts.gpu import results
from scripts.gpu.results import Found, Result, at_least, same, table, within
from tests.support.common import ROOT, wait_until

# A worker whose items do what their names say; it is told which are left, or none.
WORKER = """
import json, os, sys, time
names = ["well", "badly", "dies", "hangs", "after"]
left = sys.argv[sys.argv.index("--left") + 1:] if "--left" in sys.argv else names
def say(**what):
    print(json.dumps(what), flush=True)
say(start="the program")
say(machine={"torch": "9"}, items=[(name, "check", 3) for name in left])
for name in left:
    say(start=name)
    if name == "dies":
        os._exit(3)
    if name == "hangs":
        time.sleep(60)
    error = "Traceback" if name == "badly" else ""
    status = "FAILED" if error else "passed"
    result = dict(name=name, kind="check", status=status, measured=0.5, error=error)
    result |= dict(expected="x", seconds=0.1, details={})
    say(result=result)
"""


@pytest.fixture
def worker(tmp_path):
    (tmp_path / "worker.py").write_text(WORKER)
    return [sys.executable, str(tmp_path / "worker.py")]


def test_what_fails_hangs_or_dies_ends_nothing_else(worker, tmp_path):
    run = gpu_check.Run({}, tmp_path / "found.json", time.monotonic() + 60)
    gpu_check.work(run, worker, [])
    assert {one.name: one.status for one in run.results} == {
        "well": "passed",
        "badly": "FAILED",
        "dies": "FAILED",
        "hangs": "FAILED",
        "after": "passed",
    }
    errors = {one.name: one.error for one in run.results if one.error}
    assert errors == {
        "badly": "Traceback",
        "dies": "ended its process with status 3",
        "hangs": "took too long, and was killed",
    }
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["machine"] == {"torch": "9"}
    assert [one["name"] for one in found["results"]] == [one.name for one in run.results]


def test_a_run_that_is_ended_leaves_no_process(tmp_path):
    (tmp_path / "worker.py").write_text("import os, time; print('{}', flush=True); os.fork(); time.sleep(60)")
    worker = gpu_check.Worker([sys.executable, str(tmp_path / "worker.py")])
    lines = worker.lines(lambda: 20)
    next(lines)
    lines.close()
    assert worker.code == -signal.SIGKILL
    wait_until(lambda: not members(worker._process.pid), "the processes of the worker")


def members(group):
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            found.append(path.read_text().rpartition(")")[2].split())
    return [one for one in found if int(one[2]) == group and one[0] != "Z"]


def test_what_there_is_no_time_for_counts_as_failed(worker, monkeypatch):
    run = gpu_check.Run({}, None, time.monotonic() - 1)
    gpu_check.work(run, [sys.executable, "-c", "import time; time.sleep(60)"], [])
    assert [(one.name, one.error) for one in run.results] == [("the program", "took too long, and was killed")]
    item = {"after": gpu_check.Item("after", "check", 1)}
    assert gpu_check._work(run, ["false"], item) == {}
    assert run.results[-1].error == "ended its process with status 1"
    monkeypatch.setattr(gpu_check, "_work", lambda *_: item)
    gpu_check.work(run, worker, [])
    assert (run.results[-1].status, run.results[-1].error) == ("FAILED", "no time was left")


def test_what_is_missing_is_named(monkeypatch, capsys):
    monkeypatch.setattr(gpu_check, "find_spec", lambda name: None if name in ("pyarrow", "tqdm") else name)
    assert gpu_check.main([]) == 1
    assert capsys.readouterr().out.startswith("missing: pyarrow, tqdm; install what requirements.lock names, or ")


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (within(0.5, 1), "passed"),
        (within(2, 1), "FAILED"),
        (within(math.nan, 1), "FAILED"),
        (within(math.inf, 1), "FAILED"),
        (at_least(1, 1), "passed"),
        (at_least(math.nan, 1), "FAILED"),
        (same(True), "passed"),
        (same(False), "FAILED"),
        (Found("", "", None), "skipped"),
    ],
)
def test_a_check_is_judged(found, status):
    assert Result.of("it", "check", found, 1).status == status


def test_figures_are_judged_by_their_goals_and_fail_no_check():
    found = [at_least(1, 2), at_least(3, 2), Found(1, "", None)]
    assert [Result.of("it", "figure", one, 1).status for one in found] == ["missed", "reached", "measured"]


def test_the_table_has_numbers_details_and_errors():
    rows = [
        Result.of("one", "check", within(0.123456, 1)._replace(details={"also": 2.0}), 1.26),
        Result.failed("other", "check", "first\nsecond", 2),
    ]
    lines = table(rows)
    assert lines[1].split() == ["passed", "one", "0.1235", "at", "most", "1", "1.3"]
    assert [line.strip() for line in (lines[2], *lines[4:])] == ["also: 2", "first", "second"]
    assert results.read(json.dumps(vars(rows[1]))) == rows[1]


def test_the_operations_of_bert_base():
    from scripts.gpu.figures import operations

    config = SimpleNamespace(hidden_size=768, num_hidden_layers=12, intermediate_size=3072)
    # 85 million weights in the layers (all 110 million but embeddings, biases, norms and pooler), and 12 x 12 heads.
    expected = 2 * 84_934_656 * 100 + 12 * 12 * 4 * 100 * 100 * 64
    assert operations(config, np.array([100])) == expected
    assert operations(config, np.array([100, 100])) == 2 * expected


def test_searches_of_the_check_find_the_same(tmp_path):
    from scripts.gpu import searches
    from scripts.gpu.world import SIZES, World

    world = World(tmp_path, "cpu", SIZES["small"])
    torch.set_num_threads(1)
    assert searches.search(world, coded=True, devices=2).passed
    other = searches.in_memory(searches.ties(500, searches.DIMENSION, 1))
    index, asked = searches.ExactIndex([other]), searches.ties(3, searches.DIMENSION, 2)
    found = index.search(asked, 10)
    assert searches.equal(found, index, asked, 10)
    found[1][0][3] += 1e-6
    assert not searches.equal(found, index, asked, 10)


@pytest.mark.parametrize(
    ("free", "devices", "right", "expected"),
    [
        (7_999, 1, True, True),
        (8_000, 1, True, False),
        (2_000, 1, True, True),
        (1_999, 1, True, False),
        (3_999, 2, True, True),
        (4_000, 2, True, False),
        (7_999, 1, False, False),
    ],
)
def test_a_gpu_holds_codes_where_it_has_no_room_for_vectors(monkeypatch, free, devices, right, expected):
    # 1,000 numbers: 4,000 bytes, or 1,000 as codes, in half of what is free.
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 0))
    monkeypatch.setattr(codes, "is_right", lambda device: right)
    assert codes.needed([f"cuda:{number}" for number in range(devices)], 1_000) == expected


@pytest.mark.parametrize(
    ("noise", "precision", "passed"),
    [(0, "fp32", True), (1e-6, "fp32", True), (1e-3, "fp32", False), (math.nan, "fp32", False), (1e-3, "bf16", True)],
)
def test_vectors_and_trainings_that_differ_are_found(monkeypatch, tmp_path, noise, precision, passed):
    from scripts.gpu import checks, trainings
    from scripts.gpu.world import SIZES, World

    world = World(tmp_path, "cuda", SIZES["small"])
    generator = np.random.default_rng(1)
    vectors = generator.standard_normal((50, 16))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)

    def encoded(world, precision, device=""):
        return vectors if device == "cpu" else vectors + noise * vectors[::-1]

    def trained(world, stage, device, name, learning_rate=0.1, **options):
        weights = torch.from_numpy(encoded(None, None, device) * learning_rate)
        return {"weight": weights, "losses": torch.tensor([1.0 + (device != "cpu") * noise])}

    monkeypatch.setattr(checks, "encoded", encoded)
    monkeypatch.setattr(trainings, "trained", trained)
    assert checks.encode(world, precision).passed == passed
    assert trainings.train(world, "train", precision, {}).passed == passed


@pytest.mark.slow
@pytest.mark.exhaustive
def test_all_of_it_on_a_cpu(tmp_path):
    command = [sys.executable, "-m", "scripts.gpu_check", "--device", "cpu", "--size", "small", "--seconds", "3000"]
    done = subprocess.run([*command, "--output", tmp_path / "found.json"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-10_000:]
    found = {one["name"]: one for one in json.loads((tmp_path / "found.json").read_text())["results"]}
    checks = [one for one in found.values() if one["kind"] == "check"]
    assert len(checks) > 30
    assert {one["status"] for one in checks} == {"passed", "skipped"}
    # On one device, both ways are the same.
    assert found["encode, fp32"]["measured"] == found["train, triplet"]["measured"] == 0
    assert {one["status"] for one in found.values() if one["kind"] == "figure"} <= {"reached", "missed", "measured"}
    assert "0 of " in done.stdout
