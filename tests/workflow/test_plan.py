"""`python -m workflow.plan`, `.build` and `.why` on the tiny experiment, as a person calls them."""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess

import pytest
import yaml

from cort.config.load import read
from tests.support.changes import altered, mark_as_built, prepare
from tests.support.common import ROOT, wait_until
from tests.support.configs import reversed_keys
from tests.support.forking import run_module, snakemake
from tests.support.java import make_java
from tests.support.processes import Python
from tests.support.sandbox import copy_tree, copy_with_tiny, executable
from tests.support.workflow import RULES, command_of, options_of, plan_jobs
from workflow import build
from workflow.running import LOCKS
from workflow.snakemake_api import PlanError

pytestmark = pytest.mark.slow

TINY = ["--configfile", "tiny/tiny.yaml"]
PASSAGES = "results/tiny/collection/passages.parquet"
LINE = r"^\S.*: found .+, expected .+; .+$"


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """A copy of the project with the tiny experiment, of which nothing is built."""
    return copy_with_tiny(tmp_path_factory.mktemp("fresh"))


@pytest.fixture(scope="module")
def jobs(fresh):
    """All its jobs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(fresh)
        return plan_jobs(["--cores", "2", *TINY])[0]


@pytest.fixture(scope="module")
def finished(fresh, jobs, tmp_path_factory):
    """The same, marked as built."""
    folder = shutil.copytree(fresh, tmp_path_factory.mktemp("finished") / "tree")
    mark_as_built(folder, TINY[1], jobs)
    return folder


@pytest.fixture
def call(monkeypatch):
    """Call one of the two in a folder; status and output."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return lambda module, folder, *arguments: run_module(folder, f"workflow.{module}", *arguments)


@pytest.fixture
def begun(monkeypatch, capsys):
    """Call build in this process in a folder; status, what it writes, and the words of Snakemake if it is reached."""

    def run(folder, *arguments):
        called = []
        monkeypatch.chdir(folder)
        monkeypatch.setattr(build, "run", called.append)
        try:
            build.main([*map(str, arguments)])
            status = 0
        except SystemExit as left:
            status = left.code
        printed = capsys.readouterr()
        assert printed.out == ""
        return status, printed.err.splitlines(), called

    return run


def test_a_plan_has_the_number_of_jobs_of_each_rule(call, fresh, jobs):
    status, output = call("plan", fresh, *TINY)
    assert status == 0
    # Own files are not read.
    known, unknown = output.split("\n\nToo little is known yet to estimate what these jobs take of a GPU: ")
    assert "train 1," in unknown
    counted, scored = known.split("\n\nPairs to score:\n")
    first, *others = counted.splitlines()
    assert scored == "  cross on test: at most 10 x the queries of test"
    assert first == f"tiny: {len(jobs)} jobs would run."
    counts = dict(re.findall(r"(\w+) (\d+)(?:,|$)", " ".join(others)))
    assert {name: int(count) for name, count in counts.items()} == {
        job.rule: sum(other.rule == job.rule for other in jobs) for job in jobs
    }
    assert len(output.splitlines()) < 25
    assert max(map(len, output.splitlines())) <= 100
    assert not (fresh / "results").exists()


def test_jobs_know_what_they_are(jobs):
    assert {job.name for job in jobs if job.planned} > {"train encoder", "retrieve test/cort", "collection"}
    (tuning,) = (job for job in jobs if job.rule == "bm25_tune")
    assert tuning.benchmark == "benchmarks/tiny/bm25_tune/bm25.tsv"


def test_a_run_of_training_queries_takes_all_cores_and_others_half(fresh):
    status, output = snakemake(fresh, "--dry-run", "--printshellcmds", "--cores", 6, *TINY)
    assert status == 0, output
    commands = re.findall(r"cort\.retrieve bm25 .*--threads (\d+) .*--output \S*/runs/(\w+)/bm25\.trec", output)
    assert {split: threads for threads, split in commands} == {"train": "6", "validation": "3", "test": "3"}


def test_the_order_of_keys_is_no_param(fresh, tmp_path, monkeypatch):
    monkeypatch.chdir(fresh)
    tuned = {"systems": ["cort", "bm25"], "method": "linear", "tune": {"measure": "RR@10", "folds": 2}}
    path = altered(fresh, tmp_path / "ordered.yaml", {"systems.tuned": {"fuse": tuned}})
    found = []
    for config in (read(path), reversed_keys(read(path))):
        path.write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
        planned, _ = plan_jobs(["--cores", "2", "--configfile", str(path)])
        found.append([(job.name, job.params) for job in planned])
    assert found[0] == found[1]
    assert any("--folds=2" in param for _, params in found[0] for param in params)


def test_stages_that_draw_get_the_seed_and_labels_the_levels_of_their_splits(fresh, tmp_path, monkeypatch):
    monkeypatch.chdir(fresh)
    shutil.copy("tiny/data/qrels.test.tsv", "tiny/data/qrels.other.tsv")
    other = {"queries": "tiny/data/queries.test.tsv", "qrels": "tiny/data/qrels.other.tsv", "relevance_level": 2}
    changes = {"seed": 77, "splits.other": other, "systems.published.run": {"test": "tiny/data/run.test.trec"}}
    path = altered(fresh, tmp_path / "changed.yaml", changes)
    planned, _ = plan_jobs(["--cores", "2", "--configfile", str(path)])
    words = {job.name: "".join(job.params) for job in planned}
    drawing = {job.name for job in planned if "seed" in options_of(command_of(job.rule)).model_fields}
    # Of these splits, nothing is drawn.
    assert {name for name in drawing if "'--seed=77'" not in words[name]} == {"split test", "split other"}
    (agreement,) = (text for name, text in words.items() if name.startswith("agreement "))
    assert "'--other-relevance-level=2', '--relevance-level=1'" in agreement


def test_latencies_that_somebody_put_there_are_no_jobs(fresh, monkeypatch):
    latency = {"split": "test", "systems": ["bm25"]}
    timed = altered(fresh, fresh / "tiny" / "timed.yaml", {"latency": latency})
    other = fresh / "results" / "tiny" / "latency" / "train.json"
    other.parent.mkdir(parents=True)
    other.write_text("{}")
    monkeypatch.chdir(fresh)
    try:
        planned, _ = plan_jobs(["--cores", "2", "--configfile", str(timed)])
    finally:
        shutil.rmtree(fresh / "results")
    assert [job.wildcards["split"] for job in planned if job.rule == "latency"] == ["test"]


def test_a_finished_experiment_has_nothing_to_run(call, finished):
    assert call("plan", finished, *TINY) == (0, "Nothing would run: everything is up to date.\n")
    run = "results/tiny/runs/test/cort.trec"
    assert call("why", finished, run, *TINY) == (0, f"Nothing would run: {run} is up to date.\n")


def test_a_cluster_is_not_judged_by_this_machine(call, fresh, tmp_path):
    path = altered(fresh, tmp_path / "gpu.yaml", {"encoders.encoder.training.gpus": 3})
    status, output = call("plan", fresh, "--configfile", path)
    assert status == 1
    assert [line for line in output.splitlines() if re.match(LINE, line)] == [
        "encoders.encoder.training.gpus: found 3 on a machine with 0 GPUs, expected 1 at most; lower it, which changes "
        "no result, or use a larger machine"
    ]
    status, output = call("plan", fresh, "--configfile", path, "--", "--executor", "slurm", "--jobs", 4)
    assert (status, ": found" in output) == (0, False), output


def test_what_the_machine_lacks_ends_a_build_before_its_first_job(fresh, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    tree = shutil.copytree(fresh, tmp_path / "tree")
    path = altered(tree, tree / "gpu.yaml", {"encoders.encoder.training.gpus": 3})
    words = ("--cores", 1, "--configfile", path)
    card = "results/tiny/encoders/encoder/best/README.md"
    for status, output in (snakemake(tree, card, *words), run_module(tree, "workflow.build", *words[2:])):
        assert status == 1
        (line,) = (line for line in output.splitlines() if re.match(LINE, line))
        assert line.startswith("encoders.encoder.training.gpus: found 3 on a machine with 0 GPUs, expected 1 at most; ")
        assert "Traceback" not in output
        assert not (tree / "results").exists()
    # What is not made here needs nothing.
    assert snakemake(tree, PASSAGES, *words)[0] == 0


def test_what_the_machine_lacks_is_told_after_the_jobs(call, fresh, tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "java", "exit 1", "21")))
    status, output = call("plan", fresh, *TINY)
    first, *_, last = output.splitlines()
    assert (status, first[:6]) == (1, "tiny: ")
    assert re.match(LINE, last)
    assert last.startswith(f"{tmp_path}/java/bin/java: found ")


def test_a_build_is_left_to_snakemake(begun, fresh):
    words = ["--cores", "all", "--keep-incomplete", *TINY]
    assert begun(fresh, *TINY, "--", "--keep-incomplete") == (0, [], [words])


LOCKED = r"\.snakemake/locks: found the lock of a build "


@pytest.fixture
def stopped(fresh, real_starts):
    """Begin to build the passages by a command line, and stop it when it has the lock; the lock is gone afterwards."""
    with contextlib.ExitStack() as stack:

        def begin(*words):
            nothing = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
            process = stack.enter_context(Python(*words, cwd=fresh, **nothing))
            locks = (fresh / LOCKS).glob
            wait_until(lambda: any(path.stat().st_size for path in locks("*.output.lock")))
            process.send_signal(signal.SIGSTOP)
            return process

        yield begin
    shutil.rmtree(fresh / LOCKS, ignore_errors=True)


def test_a_second_build_is_refused_and_told_who_runs(begun, fresh, stopped):
    process = stopped(executable("snakemake"), PASSAGES, "--cores", 1, *TINY)
    status, (line,), called = begun(fresh, *TINY)
    assert (status, called) == (1, [])
    running = f"that runs: process {process.pid} \\({TINY[1]}\\), expected none; wait for its end, or end it"
    assert re.fullmatch(LOCKED + running, line)
    # Another experiment of the same folder.
    other = altered(fresh, fresh / "tiny" / "other.yaml", {"dataset": "other"})
    assert begun(fresh, "--configfile", other)[0] == 0
    process.kill()
    process.wait()
    status, (line,), _ = begun(fresh, *TINY)
    killed = f"{LOCKED}of tiny that no process .*, expected none; if it was killed, call `(.*)`, .*"
    command = re.fullmatch(killed, line)[1]
    assert shlex.split(command)[1:] == ["--unlock", *TINY]
    subprocess.run(shlex.split(command), cwd=fresh, check=True, capture_output=True)
    assert begun(fresh, *TINY)[0] == 0


def test_snakemake_refuses_what_make_builds(fresh, stopped):
    stopped("-m", "workflow.build", *TINY, "--", PASSAGES, "--cores", 1)
    status, output = snakemake(fresh, PASSAGES, "--cores", 1, *TINY)
    assert status == 1
    assert "found the lock of a build that runs: process " in output


def test_inputs_that_are_not_there_are_refused_with_their_keys(call, fresh, tmp_path):
    folder = shutil.copytree(fresh / "tiny", tmp_path / "tiny").parent
    for name in ("collection.tsv", "qrels.test.tsv"):
        (folder / "tiny" / "data" / name).unlink()
    lines = [
        "collection.passages: found tiny/data/collection.tsv, no such file",
        "splits.test.qrels: found tiny/data/qrels.test.tsv, no such file",
    ]
    copy_tree(folder)
    status, output = call("plan", folder, *TINY)
    assert (status, [line.split(", expected")[0] for line in output.splitlines()]) == (1, lines)
    status, output = snakemake(folder, "--cores", 1, *TINY)
    assert status == 1
    assert all(line in output for line in lines)
    assert not (folder / "results").exists()
    # They are not needed for everything.
    assert snakemake(folder, "--unlock", *TINY)[0] == 0


def test_a_config_with_mistakes_is_refused_before_a_plan(begun, call, fresh, tmp_path):
    wrong = altered(fresh, tmp_path / "wrong.yaml", {"deph": 5, "depth": "many"})
    (tmp_path / "my exp.yaml").write_text("dataset: &x [*x]\n")
    cases = (
        (wrong, ["did you mean depth?", "depth: found 'many'"]),
        ("none.yaml", ["none.yaml: found no readable file"]),
        (tmp_path / "my exp.yaml", ["my exp.yaml: found an anchor within itself"]),
    )
    for name, words in cases:
        status, output = call("plan", fresh, "--configfile", name)
        errors = output.splitlines()
        assert (status, len(errors)) == (1, len(words))
        assert all(any(word in line for line in errors) for word in words), errors
        assert call("why", fresh, "--configfile", name) == (1, output)
    # Snakemake would show a traceback.
    assert begun(fresh, "--configfile", tmp_path / "my exp.yaml") == (1, errors, [])


def test_a_target_nobody_makes_is_refused(fresh, monkeypatch):
    monkeypatch.chdir(fresh)
    with pytest.raises(PlanError, match=r"^results/tiny/nothing: found no rule that makes it"):
        plan_jobs(["results/tiny/nothing", "--cores", "1", *TINY])


def test_what_changed_comes_first_and_then_what_follows(call, finished, tmp_path):
    setting, value = "encoders.encoder.training.learning_rate", 0.002
    missing, queries = "results/tiny/measures/test/cort.json", "tiny/data/queries.test.tsv"
    changes = {"set": {setting: value}, "delete": [missing], "edit": [queries]}
    options = prepare(finished, folder := tmp_path / "tree", changes)
    status, output = call("why", folder, *options)
    assert status == 0
    first, second = output.split("Follows, because an input is rebuilt:\n")
    assert f"  split test: its input {queries} has other content\n" in first
    change = f"--learning-rate=0.001 -> --learning-rate={value}"
    assert re.search(rf"^  train encoder: ({change}$|its params changed: )", first, re.MULTILINE)
    assert f"  evaluate test/cort: {missing} is missing; after " in first
    assert "  encode encoder/1-of-1: after train encoder\n" in second
    assert "  bm25 test/bm25: after split test\n" in second


def test_results_move_with_their_records_or_are_accepted_without(call, fresh, finished, tmp_path):
    nothing = (0, "Nothing would run: everything is up to date.\n")
    for name, moved in (("with", ("results", "logs", "benchmarks", ".snakemake")), ("without", ("results",))):
        tree = shutil.copytree(fresh, tmp_path / name, ignore=shutil.ignore_patterns(".snakemake"))
        for folder in moved:
            # As `cp -r`, which gives every file a new time; first what was made last.
            for path in sorted((finished / folder).rglob("*"), reverse=True):
                (tree / path.relative_to(finished).parent).mkdir(parents=True, exist_ok=True)
                if path.is_file():
                    shutil.copyfile(path, tree / path.relative_to(finished))
        if name == "with":
            assert call("plan", tree, *TINY) == nothing
    status, output = call("why", tree, *TINY)
    assert status == 0
    text = " ".join(output.split())
    assert (
        "Snakemake has no record, in .snakemake, of how existing files were made. If results were copied from" in text
    )
    assert "how it was made is not recorded" in text
    assert "has other content" not in text
    # Whatever this machine lacks.
    path = altered(tree, tree / "gpu.yaml", {"encoders.encoder.training.gpus": 300})
    assert snakemake(tree, "--cores", 1, "--touch", "--configfile", path)[0] == 0
    assert call("plan", tree, *TINY) == nothing


def test_what_was_never_made_is_not_made_yet(call, fresh):
    status, output = call("why", fresh, "results/tiny/collection/passages.parquet", *TINY)
    assert (status, output) == (0, "1 job would run.\n\nChanged or missing:\n  collection: not made yet\n")


@pytest.mark.parametrize(
    ("goal", "command"),
    [
        ("results", "workflow.build"),
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


def test_what_cannot_be_fetched_and_mistakes_in_judgements_show_first():
    first = {name for name, rule in RULES.items() if rule.priority == max(one.priority for one in RULES.values())}
    fetching = {f"pretrained_{kind}" for kind in ("encoder", "reranker", "weigher", "expander")}
    assert first == {"split", "download", "base_model", *fetching}
