"""`python -m workflow.plan` and `python -m workflow.why` on the tiny experiment, as a person calls them."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from workflow.planning.forecast import costs_of, read_benchmark, shipped, truncations

from cort.experiment.checks import load
from cort.formats.shards import Tokens
from tests.support.changes import altered, mark_as_built, prepare, run_module
from tests.support.common import COMMIT, ROOT
from tests.support.sandbox import copy_with_tiny
from workflow import plan, why
from workflow.planning import dryrun, preflight
from workflow.planning.dryrun import DryRun, dry_run

pytestmark = pytest.mark.slow

TINY = ["--configfile", "tiny/tiny.yaml"]
LINE = r"^\S.*: found .+, expected .+; .+$"


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """A copy of the project with the tiny experiment, of which nothing is built."""
    return copy_with_tiny(tmp_path_factory.mktemp("fresh"))


@pytest.fixture(scope="module")
def jobs(fresh):
    """What Snakemake would run of it."""
    return dry_run(["--cores", "2", *TINY], fresh)


@pytest.fixture(scope="module")
def finished(fresh, jobs, tmp_path_factory):
    """The same, marked as built."""
    folder = shutil.copytree(fresh, tmp_path_factory.mktemp("finished") / "tree")
    mark_as_built(folder, TINY[1], jobs.jobs)
    return folder


@pytest.fixture(autouse=True)
def quick_plans(monkeypatch):
    """Plan in processes that begin with Snakemake loaded; the fixture `jobs` does it as a person's call would."""

    def run(command, cwd, **_):
        status, output = run_module(cwd, *command[2:])
        return subprocess.CompletedProcess(command, status, "", output)

    monkeypatch.setattr(dryrun, "subprocess", SimpleNamespace(run=run))


@pytest.fixture
def call(monkeypatch, capsys):
    """Call one of the two in a folder; status, output and lines of errors."""

    def run(module, folder, *arguments):
        monkeypatch.chdir(folder)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        capsys.readouterr()
        status = module.main(list(map(str, arguments)))
        printed = capsys.readouterr()
        return status, printed.out, printed.err.splitlines()

    return run


def write_benchmark(path, seconds, memory):
    """Write what Snakemake measures of a job."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"s\th:m:s\tmax_rss\tcpu_time\n{seconds}\t0:00:01\t{memory}\t1\n", "utf-8")


def test_a_plan_has_a_line_for_each_phase_with_limits_until_something_is_recorded(call, fresh, jobs):
    benchmarks = fresh / "benchmarks" / "tiny"
    phases = {job.phase for job in jobs.jobs}
    for job in (job for job in jobs.jobs if job.phase == "encoder"):
        write_benchmark(fresh / job.benchmark, 1_234.5 if job.rule == "train" else 0.1, 4_321)
    try:
        status, output, errors = call(plan, fresh, *TINY, "--cores", 2)
    finally:
        shutil.rmtree(benchmarks.parent)
    assert (status, errors) == (0, [])
    assert output.startswith("tiny: 63 jobs would run.\n")
    lines = output.split("\n\n")[1].splitlines()
    assert {line.split()[0] for line in lines[1:] if line[0] != " "} == phases
    found = {line.split()[0]: line for line in lines}
    assert re.search(r"^encoder +\d+  20 min 35 s +4.3 GB +\d+ MB  triples, train, encode", found["encoder"])
    assert re.search(r"^reranker +\d+  limit .+ 16.0 GB ", found["reranker"])
    assert re.search(r"^In all limit .+ on 2 cores, \d+ MB of disk", output, re.MULTILINE)
    assert re.search(r"^Languages of BM25: bm25 en", output, re.MULTILINE)
    assert len(output.splitlines()) <= 25
    assert max(map(len, output.splitlines())) <= 110
    assert not (fresh / "results").exists()


def test_a_job_takes_what_is_recorded_of_it_or_of_its_rule(fresh, jobs, tmp_path):
    evaluations = [job for job in jobs.jobs if job.rule == "evaluate"]
    write_benchmark(tmp_path / evaluations[0].benchmark, 3.0, 100)
    write_benchmark(tmp_path / evaluations[1].benchmark, 5.0, "-")
    found = dict(zip([job.name for job in jobs.jobs], costs_of(jobs, "tiny", tmp_path), strict=True))
    assert [found[job.name][:2] for job in evaluations[:3]] == [(3, 100), (5, 0), (4, 100)]
    assert found["train encoder"] == (24 * 3600, 16000, False)
    # A shipped experiment has records of another machine.
    named = dict(zip([job.name for job in jobs.jobs], costs_of(jobs, "pydocs", tmp_path), strict=True))
    assert named["train encoder"] == shipped()["pydocs", "train"]


def test_truncation_is_told_where_token_caches_are(fresh, caches, lm, tmp_path):
    config = load(fresh / TINY[1])
    # Two tokens remain beside the special ones.
    config["encoders"]["encoder"]["passage_length"] = 4
    assert truncations(config, tmp_path) == ""
    sources = {"base_models/small/tokenizer.json": f"{lm}/tokenizer.json"}
    for path, source in (sources | {"tokens/small/passages.arrow": caches["passages"]}).items():
        target = tmp_path / "results" / config["dataset"] / path
        target.parent.mkdir(parents=True)
        shutil.copy(source, target)
    lengths = Tokens(caches["passages"]).lengths
    expected = f"encoder: passages: {len(lengths)} texts, {lengths.mean():.1f} tokens on average, "
    assert expected in truncations(config, tmp_path)


@pytest.mark.parametrize("text", ["", "s\tmax_rss\n", "s\tmax_rss\nx\t1\n", "h\n1\n"])
def test_a_benchmark_that_says_nothing_is_none(tmp_path, text):
    (tmp_path / "a.tsv").write_text(text)
    assert read_benchmark(tmp_path / "a.tsv") is read_benchmark(tmp_path / "none.tsv") is None


def test_latencies_that_somebody_put_there_are_no_jobs(fresh):
    latency = {"split": "test", "systems": ["bm25"]}
    timed = altered(fresh, fresh / "tiny" / "timed.yaml", {"latency": latency})
    other = fresh / "results" / "tiny" / "latency" / "train.json"
    other.parent.mkdir(parents=True)
    other.write_text("{}")
    try:
        planned = dry_run(["--cores", "2", "--configfile", timed], fresh)
    finally:
        shutil.rmtree(fresh / "results")
    assert [job.wildcards["split"] for job in planned.jobs if job.rule == "latency"] == ["test"]


def test_a_finished_experiment_has_nothing_to_run(call, finished, monkeypatch):
    monkeypatch.setattr(plan.os, "execv", lambda *_: pytest.fail("nothing is to be run"))
    assert call(plan, finished, *TINY, "--run") == (0, "Nothing would run: everything is up to date.\n", [])
    run = "results/tiny/runs/test/cort.trec"
    assert call(why, finished, run, *TINY) == (0, f"Nothing would run: {run} is up to date.\n", [])


def test_a_cluster_is_not_judged_by_this_machine(call, fresh, monkeypatch):
    monkeypatch.setattr(preflight, "available_memory", lambda: 1.0)
    status, output, errors = call(plan, fresh, *TINY, "--", "--executor", "slurm", "--jobs", 4)
    assert (status, errors) == (0, [])
    assert " on slurm, " in output


def test_the_quickstart_has_a_record_of_every_rule(jobs):
    run = dry_run(["--cores", "2"], ROOT)
    assert {job.rule for job in (*run.done, *run.jobs)} == {rule for dataset, rule in shipped() if dataset == "pydocs"}


@pytest.fixture
def refused(call, fresh, jobs, monkeypatch):
    """Plan without asking Snakemake again; the only line, for which nothing runs."""
    monkeypatch.setattr(plan, "dry_run", lambda *_: jobs)
    monkeypatch.setattr(plan.os, "execv", lambda *_: pytest.fail("it must not run"))

    def check(*options, folder=fresh):
        lines = set()
        for arguments in ([*TINY, *options], [*TINY, *options, "--run"]):
            status, _, errors = call(plan, folder, *arguments)
            assert status == 1
            assert len(errors) == 1, errors
            lines.update(errors)
        (line,) = lines
        assert re.match(LINE, line), line
        return line

    return check


def test_without_obstacles_it_runs(call, fresh, jobs, monkeypatch):
    called = []
    monkeypatch.setattr(plan, "dry_run", lambda *_: jobs)
    monkeypatch.setattr(plan.os, "execv", lambda program, words: called.append((program, words)))
    status, output, errors = call(plan, fresh, *TINY, "--cores", 2, "--run", "--", "--keep-incomplete")
    assert (status, errors) == (0, [])
    assert re.match(r"63 jobs, limit .+, \d+ MB of disk, .+ of memory for .+\n", output)
    options = ["--keep-incomplete", *TINY, "--cores", "2"]
    assert called == [(sys.executable, [sys.executable, "-m", "snakemake", *options])]


def test_too_little_memory_refuses_by_what_is_recorded_alone(call, refused, fresh, jobs, monkeypatch):
    monkeypatch.setattr(preflight, "available_memory", lambda: 30_000.0)
    largest = next(job for job in jobs.jobs if job.rule == "bm25_tune")
    write_benchmark(fresh / largest.benchmark, 1.0, 31_000)
    try:
        assert refused().startswith("memory for bm25_tune bm25: found 30.0 GB, expected 31.0 GB")
    finally:
        shutil.rmtree(fresh / "benchmarks")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [("free_disk", 1.0, "found 1 MB free"), ("java_home", Path("/none"), "/none/bin/java: found ")],
)
def test_too_small_a_disk_and_no_java_refuse(refused, monkeypatch, name, value, words):
    monkeypatch.setattr(preflight, name, lambda *_: value)
    assert words in refused()


@pytest.mark.parametrize(("key", "value"), [("gpus", 3), ("precision", "fp16")])
def test_a_gpu_that_is_not_there_refuses(refused, fresh, tmp_path, key, value):
    path = altered(fresh, tmp_path / "gpu.yaml", {f"encoders.encoder.training.{key}": value})
    assert refused("--configfile", path).startswith(f"encoders.encoder.training.{key}: found {value} ")


def test_a_hub_that_cannot_be_reached_refuses(refused, fresh, tmp_path, monkeypatch):
    from huggingface_hub import constants

    model = {"pretrained": "somebody/model", "revision": COMMIT}
    path = altered(fresh, tmp_path / "hub.yaml", {"base_models.small": model})
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    # Nobody listens there.
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    line = refused("--configfile", path)
    assert re.match(r"base_models.small: found no answer of http://127.0.0.1:1 \(.+\) for somebody/model", line)
    assert "HF_ENDPOINT" in line


def test_an_input_that_is_not_there_refuses(call, fresh, tmp_path):
    folder = tmp_path / "tree"
    shutil.copytree(fresh, folder)
    for name in ("collection.tsv", "qrels.test.tsv"):
        (folder / "tiny" / "data" / name).unlink()
    status, output, errors = call(plan, folder, *TINY)
    assert (status, output) == (1, "")
    assert [line.split(", expected")[0] for line in errors] == [
        "collection.passages: found tiny/data/collection.tsv, no such file",
        "splits.test.qrels: found tiny/data/qrels.test.tsv, no such file",
    ]
    assert call(why, folder, *TINY) == (1, "", errors)


@pytest.mark.parametrize("module", [plan, why])
def test_a_config_with_mistakes_is_refused(call, fresh, tmp_path, module):
    path = altered(fresh, tmp_path / "wrong.yaml", {"deph": 5})
    for name, words in ((path, "did you mean depth?"), ("none.yaml", "none.yaml: found no readable file")):
        status, output, errors = call(module, fresh, "--configfile", name)
        assert (status, output, len(errors)) == (1, "", 1)
        assert words in errors[0]


@pytest.mark.parametrize("module", [plan, why])
def test_a_config_that_cannot_be_read_is_not_shown_to_snakemake(call, fresh, tmp_path, monkeypatch, module):
    monkeypatch.setattr(module, "dry_run", lambda *_: pytest.fail("it must not plan"))
    (tmp_path / "my exp.yaml").write_text("dataset: &x [*x]\n")
    for options in ([], ["--force"]) if module is plan else ([],):
        status, output, errors = call(module, fresh, "--configfile", tmp_path / "my exp.yaml", *options)
        assert (status, output, len(errors)) == (1, "", 1)
        assert errors[0].startswith(f"{tmp_path}/my exp.yaml: found an anchor within itself")


def test_a_target_nobody_makes_is_refused(call, fresh):
    status, output, errors = call(why, fresh, "results/tiny/nothing", *TINY)
    assert (status, output, len(errors)) == (1, "", 1)
    assert errors[0].startswith("results/tiny/nothing: found no rule that makes it")


def test_what_changed_comes_first_and_then_what_follows(call, finished, tmp_path):
    setting, value = "encoders.encoder.training.learning_rate", 0.002
    missing, queries = "results/tiny/measures/test/cort.json", "tiny/data/queries.test.tsv"
    changes = {"set": {setting: value}, "delete": [missing], "edit": [queries]}
    options = prepare(finished, folder := tmp_path / "tree", changes)
    status, output, errors = call(why, folder, *options)
    assert (status, errors) == (0, [])
    first, second = output.split("Follows, because an input is rebuilt:\n")
    assert f"  split test: its input {queries} has other content\n" in first
    change = f"the setting {re.escape(setting)} changed: 0.001 -> {value}"
    assert re.search(rf"^  train encoder: ({change}$|its params changed: )", first, re.MULTILINE)
    assert f"  evaluate test/cort: {missing} is missing; after " in first
    assert "  encode encoder/1-of-1: after train encoder\n" in second
    assert "  bm25 test/bm25: after split test\n" in second


def test_what_was_never_made_is_not_made_yet(call, fresh):
    status, output, _ = call(why, fresh, "results/tiny/collection/passages.parquet", *TINY)
    assert (status, output) == (0, "1 job would run.\n\nChanged or missing:\n  collection: not made yet\n")


@pytest.mark.parametrize(
    ("goal", "command"),
    [
        ("results", "workflow.plan --run"),
        ("results FORCE=1", "workflow.plan --force"),
        ("plan", "workflow.plan"),
        ("why", "workflow.why"),
        ("why TARGET=a/b", "workflow.why a/b"),
    ],
)
def test_make_calls_them(goal, command):
    words = ["make", "--dry-run", "--assume-old=.venv/.installed", *goal.split(), "CONFIG=my exp.yaml"]
    # The tests may have been called by make themselves.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    # What follows a build is the time it took.
    called = shlex.split(done.stdout.splitlines()[0])
    assert called == [".venv/bin/python", "-m", *command.split(), "--configfile", "my exp.yaml"]


def test_jobs_know_what_they_are(jobs):
    assert isinstance(jobs, DryRun)
    assert (jobs.executor, jobs.done) == ("local", [])
    assert {job.name for job in jobs.jobs} > {"train encoder", "retrieve test/cort", "collection"}
    (tuning,) = (job for job in jobs.jobs if job.rule == "bm25_tune")
    assert tuning.benchmark == "benchmarks/tiny/bm25_tune/bm25.tsv"
    assert (tuning.threads, tuning.resources["heap_mb"]) == (2, 2000)
