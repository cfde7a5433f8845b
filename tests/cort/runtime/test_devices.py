"""GPUs listed by a fake `nvidia-smi`, and leases that real processes take on them."""

import itertools
import json
import logging
import os
import signal
import stat
import subprocess
import time

import numpy as np
import pytest
import torch

from cort import retrieve
from cort.formats.shards import write_shard
from cort.models import transformer
from cort.runtime import devices
from cort.runtime.devices import lease, parse_listing, visible_devices
from cort.runtime.errors import InputError
from tests.support.common import command_line, fake_gpus, fake_nvidia_smi, gpu_uuid, logged, wait_until
from tests.support.processes import Python

PARTED = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
  MIG 3g.20gb     Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
  MIG 1g.5gb      Device  1: (UUID: MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-b7d0e6a2-0001-2b2c-524d-9e3d8d2b8a77)
GPU 2: NVIDIA A100-SXM4-40GB (UUID: GPU-b7d0e6a2-0002-2b2c-524d-9e3d8d2b8a77)
  MIG 1g.5gb Device 0: (UUID: MIG-GPU-b7d0e6a2-0002-2b2c-524d-9e3d8d2b8a77/11/0)
"""
LARGE = "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"
SMALL = "MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb"
WHOLE = "GPU-b7d0e6a2-0001-2b2c-524d-9e3d8d2b8a77"
OLD = "MIG-GPU-b7d0e6a2-0002-2b2c-524d-9e3d8d2b8a77/11/0"
# Seconds after which a test fails; long enough for a busy machine.
SOON = 120


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    """No GPUs, no settings, a lock folder of the test's own."""
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CORT_LEASES", str(tmp_path / "leases"))
    monkeypatch.setenv("PATH", fake_nvidia_smi(tmp_path / "none", "exit 9"))


@pytest.fixture
def gpus(monkeypatch, tmp_path):
    """Let there be GPUs; their identities."""

    def make(number):
        monkeypatch.setenv("PATH", fake_gpus(tmp_path / f"gpus{number}", number))
        return [gpu_uuid(gpu) for gpu in range(number)]

    return make


def test_instances_of_a_gpu_replace_it_of_which_cuda_can_use_only_one(monkeypatch, tmp_path):
    assert parse_listing(PARTED) == [[LARGE, SMALL], [WHOLE], [OLD]]
    monkeypatch.setenv("PATH", fake_nvidia_smi(tmp_path / "parted", f"cat <<'END'\n{PARTED}END"))
    assert visible_devices() == [LARGE, SMALL, WHOLE, OLD]
    with lease(2) as held:
        assert (held, cuda_settings()) == ([LARGE], {"CUDA_VISIBLE_DEVICES": LARGE})


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        *((" 1 , 2 ", [WHOLE, OLD]), ("2,1", [OLD, WHOLE]), ("0", [LARGE, SMALL]), (f"1,{WHOLE}", [WHOLE])),
        *((name, [WHOLE]) for name in ("1", "1,-1,2", "1,9,2", "1,x,2", WHOLE)),
        *((f"{SMALL},{LARGE}", [SMALL, LARGE]), (OLD, [OLD])),
        *((name, []) for name in ("", "-1", "NoDevFiles", "9", "G")),
    ],
)
def test_visible_devices_are_those_up_to_the_first_unknown_entry(monkeypatch, tmp_path, setting, expected):
    monkeypatch.setenv("PATH", fake_nvidia_smi(tmp_path / "parted", f"cat <<'END'\n{PARTED}END"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    assert visible_devices() == expected


@pytest.mark.parametrize(
    ("setting", "expected"),
    [("0,3", ["0", "3"]), ("0,x,1", ["0"]), ("GPU-ab,MIG-GPU-c/1/0", ["GPU-ab", "MIG-GPU-c/1/0"])],
)
def test_without_nvidia_smi_entries_serve_as_identities(monkeypatch, setting, expected):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    assert visible_devices() == expected


OTHERS = ["exit 9", "echo 'GPU 0: x (UUID: GPU-1)'; exit 1", None, "true", "echo '  MIG 1g (UUID: MIG-1)'"]
OTHERS += ["echo 'No devices found.'", "echo 'NVIDIA-SMI has failed'"]


@pytest.mark.parametrize("script", OTHERS)
def test_an_nvidia_smi_that_fails_or_says_something_else_or_is_missing_lists_no_gpu(monkeypatch, tmp_path, script):
    monkeypatch.setenv("PATH", fake_nvidia_smi(tmp_path / "fails", script) if script else str(tmp_path))
    assert visible_devices() == []


def test_an_nvidia_smi_that_hangs_is_given_up(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("PATH", fake_nvidia_smi(tmp_path / "hangs", "echo 'GPU 0: x (UUID: GPU-1)'; exec sleep 300"))
    monkeypatch.setattr(devices, "PATIENCE", 0.5)
    started = time.monotonic()
    assert visible_devices() == []
    assert time.monotonic() - started < SOON
    (message,) = logged(caplog, "WARNING")
    assert message.startswith("nvidia-smi does not answer within 0.5 s:")


def test_no_visible_device_needs_no_nvidia_smi(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", fake_nvidia_smi(tmp_path / "traced", f"touch {tmp_path}/called"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert visible_devices() == []
    assert not (tmp_path / "called").exists()


def cuda_settings():
    return {name: value for name, value in os.environ.items() if name.startswith("CUDA_")}


def test_without_devices_nothing_is_leased_and_nothing_changes(tmp_path):
    before = dict(os.environ)
    with lease(2) as held:
        assert held == []
        assert os.environ == before
    assert not (tmp_path / "leases").exists()


def test_a_leased_device_is_the_only_visible_one_by_its_uuid(gpus, tmp_path):
    first, second = gpus(2)
    with lease() as held:
        assert held == [first]
        assert cuda_settings() == {"CUDA_VISIBLE_DEVICES": first}
        os.environ["CUDA_VISIBLE_DEVICES"] = f"{first},{second}"
        with lease() as others:
            assert others == [second]
    assert cuda_settings() == {}
    assert stat.S_IMODE((tmp_path / "leases").stat().st_mode) == 0o700
    # A lease gives at most all devices.
    with lease(5) as held:
        assert held == [first, second]


def test_numbers_stand_for_the_identities_that_nvidia_smi_lists(gpus, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    with lease(2) as held:
        assert (held, cuda_settings()) == (["2", "0"], {"CUDA_VISIBLE_DEVICES": "2,0"})
    identities = gpus(3)
    with lease(2) as held:
        assert held == [identities[2], identities[0]]
        assert cuda_settings() == {"CUDA_VISIBLE_DEVICES": ",".join(held)}
    assert cuda_settings() == {"CUDA_VISIBLE_DEVICES": "2,0"}


def test_leases_are_kept_in_a_folder_of_the_user_by_default(gpus, monkeypatch, tmp_path):
    gpus(1)
    monkeypatch.delenv("CORT_LEASES")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with lease():
        assert (tmp_path / f"cort-devices-{os.getuid()}" / f"{gpu_uuid(0)}.lock").is_file()


# Takes a lease like any stage, records when it gets it and returns it, and may call a program meanwhile.
JOB = """
import json, logging, os, signal, subprocess, sys, time
from cort.runtime.devices import lease
name, count, seconds, trace, program = sys.argv[1:]
logging.basicConfig(level=logging.INFO, format="%(message)s")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
def record(event):
    line = json.dumps([name, event, time.monotonic_ns(), held]) + "\\n"
    file = os.open(trace, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
with lease(int(count)) as held:
    record("start")
    if program:
        print("child", subprocess.Popen(program.split(), close_fds=False).pid, file=sys.stderr, flush=True)
    time.sleep(float(seconds))
    record("end")
"""


class Jobs:
    """Processes that take leases, and the trace they write."""

    def __init__(self, folder):
        self.folder, self.processes = folder, {}
        self.trace = folder / "trace.jsonl"

    def start(self, name, count=1, seconds=0.2, visible=None, program=""):
        environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
        with open(self.folder / f"{name}.log", "wb") as log:
            words = ("-c", JOB, name, count, seconds, self.trace, program)
            self.processes[name] = Python(*words, environment=environment, stdout=log, stderr=log)

    def log(self, name):
        return (self.folder / f"{name}.log").read_text("utf-8")

    def wait_for(self, name, words):
        """Wait until a job has logged these words."""
        wait_until(lambda: words in self.log(name) or self.processes[name].poll() is not None, words, SOON)
        assert words in self.log(name), self.log(name)

    def start_and_wait(self, name, words="leased device", seconds=600, **settings):
        self.start(name, seconds=seconds, **settings)
        self.wait_for(name, words)

    def kill(self, name, number=signal.SIGKILL):
        return self.processes[name].end(number, SOON)[0]

    def finish(self, *names):
        """Wait for jobs that must succeed."""
        for name in names or self.processes:
            assert self.processes[name].wait(SOON) == 0, self.log(name)

    def events(self):
        """Time in ns and devices by (name, event)."""
        rows = map(json.loads, self.trace.read_text("utf-8").splitlines())
        return {(name, event): (at, held) for name, event, at, held in rows}

    def intervals(self):
        """Return device -> [(start, end, name), ...] by start."""
        events, intervals = self.events(), {}
        for name, event in events:
            if event == "start":
                start, held = events[name, "start"]
                for device in held:
                    intervals.setdefault(device, []).append((start, events[name, "end"][0], name))
        return {device: sorted(times) for device, times in intervals.items()}


@pytest.fixture
def jobs(tmp_path):
    started = Jobs(tmp_path)
    yield started
    for process in started.processes.values():
        process.kill()
        process.wait()


def test_a_holder_that_is_killed_frees_its_device_at_once(gpus, jobs):
    gpus(1)
    jobs.start_and_wait("holder")
    names = [f"waiter{number}" for number in range(3)]
    for name in names:
        jobs.start_and_wait(name, "waiting for 1 of 1, of which 0 are free", seconds=0.2)
    jobs.kill("holder")
    jobs.finish(*names)
    # Waiting is logged once, however long it takes.
    assert jobs.log("waiter2").count("waiting") == 1


def test_a_program_the_holder_has_called_does_not_hold_the_device(gpus, jobs):
    gpus(1)
    jobs.start_and_wait("holder", "child", program="sleep 600")
    child = int(jobs.log("holder").split()[-1])
    jobs.kill("holder")
    try:
        jobs.start("next")
        jobs.finish("next")
        os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)


def test_who_waits_for_several_keeps_none_of_them(gpus, jobs):
    gpus(2)
    jobs.start_and_wait("holder")
    jobs.start_and_wait("waiter", "waiting for 2 of 2, of which 1 are free", count=2)
    jobs.start("next")
    jobs.finish("next")
    assert jobs.events()["next", "start"][1] == [gpu_uuid(1)]


def test_many_jobs_with_different_views_of_a_machine_take_turns_on_its_devices(gpus, jobs):
    identities = gpus(2)
    views = [None, "1", identities[1], "0,1", "1,0"]
    for number, view in enumerate(views * 2):
        jobs.start(f"job{number}", seconds=0.4, visible=view)
    jobs.finish()
    intervals = jobs.intervals()
    assert intervals.keys() == set(identities)
    assert sum(map(len, intervals.values())) == len(views) * 2
    for device, times in intervals.items():
        for (_, end, _), (start, _, _) in itertools.pairwise(times):
            assert end < start, (device, times)
    seen = {name: device for device, times in intervals.items() for _, _, name in times}
    assert {seen[f"job{number}"] for number, view in enumerate(views * 2) if view in views[1:3]} == {identities[1]}


@pytest.fixture
def retrieval(tmp_path):
    """Arguments of the stage that needs a device and is fastest to start."""
    for name in ("q", "p"):
        vectors = np.eye(4, dtype=np.float32)
        blocks = [([f"{name}{number}" for number in range(4)], vectors)]
        write_shard(tmp_path / f"{name}.arrow", blocks, model="m", dimension=4, count=4, storage="fp32")
    named = {"queries": "q.arrow", "passages": "p.arrow", "output": "x.trec", "log": "x.log"}
    return ["exact", "--tag", "x", *command_line({name: tmp_path / file for name, file in named.items()})]


KINDS = {
    "a symbolic link": lambda path: path.symlink_to(path.parent),
    "a file": lambda path: path.touch(),
    "a folder that others can write to": lambda path: [path.mkdir(), path.chmod(0o777)],
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_lock_folder_that_others_control_is_refused(gpus, monkeypatch, tmp_path, retrieval, complaint, kind):
    gpus(1)
    folder = tmp_path / "folder"
    KINDS[kind](folder)
    monkeypatch.setenv("CORT_LEASES", str(folder))
    assert complaint(retrieve.main, retrieval, tmp_path / "x.trec").startswith(f"{folder}: found {kind}, expected")


def test_a_lock_folder_of_another_user_is_refused(gpus, monkeypatch, tmp_path):
    gpus(1)
    (tmp_path / "leases").mkdir()
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    with pytest.raises(InputError, match=f"found a folder of user {owner}"), lease():
        pass


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stage_that_waits_ends_with_the_signal_and_writes_nothing(gpus, jobs, tmp_path, retrieval, number, status):
    gpus(1)
    jobs.start_and_wait("holder")
    process = Python("-m", "cort.retrieve", *retrieval, stderr=subprocess.PIPE)
    log = tmp_path / "x.log"
    wait_until(lambda: log.exists() and "waiting for" in log.read_text("utf-8"), "the stage", SOON)
    ended, output = process.end(number, SOON)
    assert ended == status
    assert "Traceback" not in output
    assert not (tmp_path / "x.trec").exists()


def test_a_stage_names_its_device_and_goes_on_without_torch_support(gpus, tmp_path, retrieval):
    gpus(1)
    assert retrieve.main([*retrieval, "--gpus", "0"]) == 0
    assert not (tmp_path / "leases").exists()
    assert retrieve.main(retrieval) == 0
    said = (tmp_path / "x.log").read_text("utf-8")
    assert f"leased device {gpu_uuid(0)}" in said
    if not torch.cuda.is_available():
        assert said.count("WARNING") == 1
        assert f"torch {torch.__version__} cannot use {gpu_uuid(0)}" in said


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is there")
def test_the_cpu_is_a_warning_only_if_gpus_were_leased(caplog):
    with caplog.at_level(logging.WARNING):
        assert transformer.choose_device(1, []).type == "cpu"
        assert logged(caplog, "WARNING") == []
        assert transformer.choose_device(1, ["GPU-1", "GPU-2"]).type == "cpu"
    assert len(logged(caplog, "WARNING")) == 1
