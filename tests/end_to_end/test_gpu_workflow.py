"""The workflow on a machine with GPUs, which a fake `nvidia-smi` lists: its plan, and two workflows that share them."""

import itertools
import os
import random
import re
import shutil
import subprocess

import pytest

from tests.support.changes import altered
from tests.support.common import fake_gpus, gpu_uuid
from tests.support.forking import snakemake, succeed
from tests.support.processes import Python
from tests.support.sandbox import TINY, copy_with_tiny
from tests.tiny.generate import PASSAGES, make_passages

pytestmark = pytest.mark.usefixtures("real_starts")

SETTINGS = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
GPU_RULES = {"encode", "encode_queries", "retrieve", "score", "train", "train_reranker"}
EMBEDDINGS = "results/tiny/embeddings/encoder"
# As many as three devices do not do at once, twice.
SHARDS = 4
BLOCK = 4_096


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path_factory):
    """Choose the number of GPUs, at first 3; locks are the test's own."""
    folder = tmp_path_factory.mktemp("machine")
    path = os.environ["PATH"]

    def choose(number, visible=None):
        monkeypatch.setenv("PATH", path)
        monkeypatch.setenv("PATH", fake_gpus(folder / str(number), number))
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CORT_LEASES", str(folder / "leases"))
    choose(3)
    return choose


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """The tiny experiment, whose encoder is trained on 5 GPUs; without messages Snakemake shows what a job gets."""
    folder = copy_with_tiny(tmp_path_factory.mktemp("tree"))
    altered(folder, folder / TINY, {"encoders.encoder.training.gpus": 5})
    for path in (folder / "workflow" / "rules").glob("*.smk"):
        path.write_text(re.sub(r" +message:\n.*\n", "", path.read_text("utf-8")), "utf-8")
    return folder


def plan(tree, *options):
    """Rule -> (GPUs, threads) of its jobs."""
    output = succeed(tree, "snakemake", "--dry-run", "--configfile", "tiny/tiny.yaml", *options)
    found = {}
    for name, text in re.findall(r"^rule (\w+):\n((?: .*\n)+)", output, re.MULTILINE):
        gpus = re.search(r"resources: .*\bgpu=(\d+)", text)
        threads = re.search(r"threads: (\d+)", text)
        if gpus:
            found.setdefault(name, set()).add((int(gpus[1]), int(threads[1]) if threads else 1))
    assert all(len(kinds) == 1 for kinds in found.values()), found
    return {name: kinds.pop() for name, kinds in found.items()}


def test_each_job_with_a_gpu_gets_its_part_of_the_cores(tree):
    jobs = {name: job for name, job in plan(tree, "--cores", 8).items() if job[0]}
    assert jobs == {name: (1, 2) for name in GPU_RULES} | {"train": (3, 8), "train_reranker": (1, 8)}


@pytest.mark.parametrize(
    ("there", "options", "encode", "train"),
    [
        ((0,), ("--cores", 16), (0, 8), (0, 8)),
        # Devices that are hidden do not count, and a limit of the user holds.
        ((3, "2,0"), ("--cores", 8), (1, 4), (2, 8)),
        ((3,), ("--cores", 8, "--resources", "gpu=1"), (1, 8), (1, 8)),
    ],
)
def test_only_gpus_that_may_be_used_count(tree, machine, there, options, encode, train):
    machine(*there)
    jobs = plan(tree, *options)
    assert (jobs["encode"], jobs["train"]) == (encode, train)


def test_a_cluster_is_asked_for_the_gpus_of_the_config_whatever_this_machine_has(tree, machine):
    for number in (0, 3):
        machine(number)
        jobs = plan(tree, "--executor", "slurm", "--jobs", 4)
        assert {name: gpus for name, (gpus, _) in jobs.items() if gpus} == {name: 1 for name in GPU_RULES} | {
            "train": 5
        }


def enlarge(folder):
    """Let the tiny experiment have a block of passages per shard, and a model that is busy with it for a while."""
    generator = random.Random(3)  # noqa: S311 - texts, not secrets
    texts = [text for _ in range(SHARDS * BLOCK // PASSAGES) for text in make_passages(generator)]
    with open(folder / "tiny" / "data" / "collection.tsv", "a", encoding="utf-8") as handle:
        handle.writelines(f"more{number}\t{text}\n" for number, text in enumerate(texts))
    sizes = {"hidden_size": 64, "num_hidden_layers": 2}
    altered(folder, folder / TINY, {f"base_models.small.architecture.{name}": size for name, size in sizes.items()})


def encode(folder, *options, targets):
    """Start a build of the shards."""
    words = ("-m", "snakemake", *targets, "--configfile", "tiny/tiny.yaml", *options)
    return Python(*words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def seconds(line):
    hours, minutes, rest = line[:8].split(":")
    return int(hours) * 3600 + int(minutes) * 60 + int(rest)


def read_log(path):
    """Return start, time of the lease, end in seconds, and the device."""
    lines = path.read_text("utf-8").splitlines()
    leased = [line for line in lines if " leased device " in line]
    assert len(leased) == 1, lines
    assert " done in " in lines[-1]
    times = [seconds(line) for line in (lines[0], leased[0], lines[-1])]
    # Past midnight.
    return *(time if time >= times[0] else time + 86_400 for time in times), leased[0].rpartition(" ")[2]


@pytest.mark.slow
@pytest.mark.exhaustive
def test_two_workflows_share_three_gpus_and_give_the_same_bytes(tmp_path, machine):
    prepared = copy_with_tiny(tmp_path / "prepared")
    enlarge(prepared)
    machine(0)
    inputs = ("results/tiny/encoders/encoder/best/README.md", "results/tiny/tokens/small/passages.arrow")
    succeed(prepared, "snakemake", *inputs, "--cores", 2, "--configfile", "tiny/tiny.yaml")
    plain, *trees = (shutil.copytree(prepared, tmp_path / name) for name in ("plain", "one", "other"))
    targets = [f"{EMBEDDINGS}/passages.{number}-of-{SHARDS}.arrow" for number in range(1, SHARDS + 1)]
    process = encode(plain, "--cores", 2, "--set-threads", "encode=1", targets=targets)
    assert "gpu=" not in process.communicate()[0]
    assert process.returncode == 0

    machine(3)
    # Cores for all shards at once: GPUs alone limit the jobs.
    options = ("--cores", SHARDS, "--set-threads", "encode=1")
    processes = [encode(folder, *options, targets=targets) for folder in trees]
    for process in processes:
        output, _ = process.communicate()
        assert process.returncode == 0, output[-10_000:]
        assert "Provided resources: gpu=" in output

    logs = [[read_log(path) for path in sorted((tree / "logs/tiny/encode").iterdir())] for tree in trees]
    assert [len(some) for some in logs] == [SHARDS, SHARDS]
    for some in logs:
        # In one workflow, a GPU is free when a job starts: never four jobs at once.
        assert max(sum(start <= at < end for start, _, end, _ in some) for at, *_ in some) <= 3
    both = list(itertools.chain(*logs))
    by_device = {device: sorted(log[1:3] for log in both if log[3] == device) for *_, device in both}
    assert by_device.keys() <= {gpu_uuid(number) for number in range(3)}
    assert len(by_device) > 1
    for times in by_device.values():
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(times)), by_device
    for target in targets:
        assert (trees[0] / target).read_bytes() == (trees[1] / target).read_bytes() == (plain / target).read_bytes()

    # Devices, like threads, are no reason to make anything again.
    machine(0)
    status, output = snakemake(trees[0], *targets, "--dry-run", "--configfile", "tiny/tiny.yaml")
    assert (status, "Nothing to be done" in output) == (0, True), output
