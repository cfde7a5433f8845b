"""profiles/slurm on a real SLURM of one node: what jobs ask for and get, and what becomes of a build if things fail."""

import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support import slurm
from tests.support import slurm as cluster
from tests.support.changes import snakemake
from tests.support.common import ROOT
from tests.support.sandbox import TINY, copy_with_tiny
from tests.support.workflow import RULES, SYSTEMS, UNUSED, module_of, planned

LOCAL = {rule for rule, text in RULES.items() if "localrule: True" in text}
# Of the tiny experiment, which brings its own texts.
SUBMITTED = RULES.keys() - LOCAL - UNUSED
ON_GPUS = {rule for rule, text in RULES.items() if " gpu=gpus(" in text}
# As the copy was built.
ONE_SHARD = {"encode": 1}
RUNS = [f"results/tiny/runs/test/{system}.trec" for system in SYSTEMS]


def read_profile(name):
    return yaml.safe_load((ROOT / "profiles" / name / "profile.yaml").read_text("utf-8"))


def test_profile_keeps_all_of_the_default_one_and_gives_gpus_to_rules_there_are():
    assert read_profile("default").items() <= read_profile("slurm").items()
    assert read_profile("slurm")["set-resources"].keys() == ON_GPUS


@pytest.mark.parametrize("rule", RULES)
def test_rule_is_light_or_asks_for_memory_and_time(rule):
    assert all(f" {name}=" in RULES[rule] for name in ("mem_mb", "runtime")) == (rule not in LOCAL)


def test_rules_that_use_models_or_indexes_are_not_light():
    assert not LOCAL & (
        ON_GPUS | {"collection", "tokenize", "bm25_index", "bm25_tune", "bm25", "onng", "hnsw", "audit"}
    )


def test_missing_packages_are_named_in_one_line(tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("bash", "id", "realpath"):
        (tools / tool).symlink_to(subprocess.run(["which", tool], capture_output=True, text=True).stdout.strip())
    script = slurm.SCRIPT.read_text("utf-8").replace(":/usr/local/sbin:/usr/sbin:/sbin", "")
    (tmp_path / "script").write_text(script, "utf-8")
    command = ["bash", tmp_path / "script", "start", tmp_path / "slurm"]
    done = subprocess.run(command, env={"PATH": str(tools)}, capture_output=True, text=True)
    assert done.returncode == slurm.CANNOT_RUN_HERE
    install = "apt-get install --no-install-recommends slurm-wlm munge"
    assert done.stderr.splitlines() == [f"error: found no munged, expected SLURM and MUNGE; {install}"]


def test_wrong_usage_is_told(tmp_path):
    for words in ([], ["begin"], ["start", "one", "two"]):
        done = subprocess.run([slurm.SCRIPT, *words], capture_output=True, text=True)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert "usage:" in done.stderr


def test_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "precious").write_text("data")
    done = subprocess.run([slurm.SCRIPT, "start", tmp_path], capture_output=True, text=True)
    if done.returncode == slurm.CANNOT_RUN_HERE:
        pytest.skip(f"no SLURM sandbox here: {done.stderr.strip()}")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def processes_of(folder):
    """Processes whose command or environment names a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (path / "cmdline").read_bytes() + (path / "environ").read_bytes():
                found.append(path.name)
        except OSError:
            pass
    return found


@pytest.mark.slow
def test_sandbox_starts_once_and_stops_without_a_trace(tmp_path):
    sandbox = cluster.Sandbox(tmp_path)
    sandbox.start()
    try:
        again = sandbox.call("start")
        assert (again.returncode, "stop it first" in again.stderr) == (1, True)
        assert sandbox.call("status").returncode == 0
        sandbox.command("sbatch", "--output", "/dev/null", "--wrap", "sleep 600 & srun sleep 600")
        cluster.wait_until(lambda: [job for job in sandbox.jobs() if job["JobState"] == "RUNNING"], "the job")
        assert len(processes_of(tmp_path)) > 3
    finally:
        sandbox.stop()
    assert sandbox.call("status").returncode == 1
    cluster.wait_until(lambda: not processes_of(tmp_path), "processes to end", 10)
    sandbox.stop()


# The tiny experiment: in one copy built by SLURM from nothing, in the other already built but for a few files.


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory):
    """A running sandbox."""
    sandbox = cluster.Sandbox(tmp_path_factory.mktemp("sandbox"))
    sandbox.start()
    yield sandbox
    sandbox.stop()


@pytest.fixture(scope="module")
def tree(sandbox, tmp_path_factory):
    """A copy of the project in which SLURM built the tiny experiment from nothing, on a bad day, in one go."""
    tree = copy_with_tiny(tmp_path_factory.mktemp("cluster"))
    sandbox.inject(["cort.tokenize", "queries.test.parquet"], cluster.SAVE_WHEN_WARNED)
    sandbox.inject(["cort.retrieve", "runs/test/bm25.trec"], cluster.HANG)
    sandbox.inject(["cort.train_reranker"], cluster.WARN_AFTER_VALIDATION)
    sandbox.inject(["cort.retrieve", "graph", "cort-onng"], cluster.FAIL)
    hanging = sandbox.inject(["cort.retrieve", "graph", "cort-onng"], cluster.HANG)
    limits = {
        # SLURM looks every 30 s: jobs are warned 45 to 75 s after their start.
        "tokenize": {"runtime": 2, "slurm_extra": "'--signal=USR1@45'"},
        "bm25": {"runtime": "1 if attempt == 1 else 5", "slurm_extra": ""},
    }
    run = cluster.Run(sandbox, tree, cluster.write_profile(tree, "bad-day", set_resources=limits))
    run.wait_until(lambda: {"cort.train"} & {stage["stage"] for stage in sandbox.stages()}, "training", 900)
    sandbox.restart_controller(pause=3)
    run.wait_until(hanging.exists, "the job to cancel", 900)
    sandbox.command("scancel", sandbox.jobs("retrieve_graph", "cort-onng")[-1]["JobId"])
    status, output = run.wait()
    assert status == 0, output[-10_000:]
    return tree


@pytest.fixture(scope="module")
def finished(sandbox, built, tmp_path_factory):
    """A copy of the project in which the tiny experiment is built already."""
    return shutil.copytree(built, tmp_path_factory.mktemp("finished") / "tree", symlinks=True)


def states(sandbox, rule, wildcards=""):
    return [job["JobState"] for job in sandbox.jobs(rule, wildcards)]


def gpus(job):
    """Number of GPUs a job asked for, and with which option."""
    for name, option in {"TresPerJob": "--gpus", "TresPerNode": "--gres"}.items():
        if match := re.fullmatch(r"gres:gpu:(\d+)", job.get(name, "")):
            return option, int(match[1])
    return None


@pytest.mark.slow
@pytest.mark.exhaustive
def test_heavy_rules_run_in_slurm_and_light_ones_do_not(sandbox, tree):
    assert {job["rule"] for job in sandbox.jobs()} == SUBMITTED
    modules = {f"cort.{module_of(name)}" for name in SUBMITTED}
    inside = {stage["stage"] for stage in sandbox.stages() if stage["SLURM_JOB_ID"]}
    outside = {stage["stage"] for stage in sandbox.stages() if not stage["SLURM_JOB_ID"]}
    assert (inside, outside) == (modules, {f"cort.{module_of(name)}" for name in LOCAL - UNUSED})


@pytest.mark.slow
@pytest.mark.exhaustive
def test_jobs_ask_for_what_rule_and_profile_say(sandbox, tree):
    for job in sandbox.jobs():
        text = RULES[job["rule"]]
        # The test's profile allows two CPUs at most.
        asked = {
            "Partition": "gpu" if job["rule"] in ON_GPUS else "cpu",
            "NumCPUs": "2" if " threads: " in text else "1",
        }
        assert {name: job[name] for name in asked} == asked, job
        assert gpus(job) == (("--gpus", 1) if job["rule"] in ON_GPUS else None)
        hours, minutes, _ = map(int, re.sub(r"^1-00", "24", job["TimeLimit"]).split(":"))
        if job["rule"] not in ("tokenize", "bm25"):
            assert 60 * hours + minutes == base_of(text, "runtime") * attempt_of(sandbox, job, text)
            # Inputs are small, but count.
            assert 0 <= memory_of(job) - base_of(text, "mem_mb") * attempt_of(sandbox, job, text) < 10


def base_of(text, resource):
    return int(re.search(rf" {resource}=(?:growing\(|times\()?(\d+)", text)[1])


def attempt_of(sandbox, job, text):
    """Number of the attempt a job is, 1 for rules that ask for the same in each."""
    same = sandbox.jobs(job["rule"], job["wildcards"])
    return 1 + [other["JobId"] for other in same].index(job["JobId"]) if "growing" in text else 1


def memory_of(job):
    """Megabytes."""
    number, unit = re.search(r"mem=([\d.]+)([MG])", job["TRES"]).groups()
    return float(number) * {"M": 1, "G": 1024}[unit]


@pytest.mark.slow
@pytest.mark.exhaustive
def test_jobs_with_a_gpu_see_it_and_others_see_none(sandbox, tree):
    rule_of = {job["JobId"]: job["rule"] for job in sandbox.jobs()}
    seen = {
        (rule_of[stage["SLURM_JOB_ID"]], stage["CUDA_VISIBLE_DEVICES"])
        for stage in sandbox.stages()
        if stage["SLURM_JOB_ID"]
    }
    assert {rule for rule, devices in seen if devices in ("0", "1")} == ON_GPUS & SUBMITTED
    assert {rule for rule, devices in seen if devices is None} == SUBMITTED - ON_GPUS


@pytest.mark.slow
@pytest.mark.exhaustive
def test_results_are_those_of_a_local_build(built, tree):
    assert [name for name in RUNS if (tree / name).read_bytes() != (built / name).read_bytes()] == []
    assert (tree / "results" / "tiny" / "report" / "index.html").is_file()


@pytest.mark.slow
@pytest.mark.exhaustive
def test_failed_and_cancelled_jobs_are_tried_again_and_those_over_their_limit_with_more(sandbox, tree):
    assert states(sandbox, "retrieve_graph", "cort-onng") == ["FAILED", "CANCELLED", "COMPLETED"]
    over, again = sandbox.jobs("bm25", "test_bm25")
    assert (over["JobState"], over["TimeLimit"]) == ("TIMEOUT", "00:01:00")
    assert (again["JobState"], again["TimeLimit"]) == ("COMPLETED", "00:05:00")
    assert memory_of(again) == 2 * memory_of(over)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_jobs_are_warned_of_their_time_limit_and_training_goes_on_in_the_next_attempt(sandbox, tree):
    warned, again = sandbox.jobs("tokenize", "queries.test")
    assert (sandbox.faults / "saved").read_text() == f"signal {int(signal.SIGUSR1)}, Snakemake lives: True"
    assert (warned["JobState"], again["JobState"]) == ("FAILED", "COMPLETED")
    assert warned["RunTime"] < warned["TimeLimit"]
    # It harms no stage that cannot heed it.
    assert [stage for stage in sandbox.stages() if stage["heeds_warning"]] == []
    warned, again = sandbox.jobs("train_reranker")
    assert (warned["JobState"], again["JobState"]) == ("FAILED", "COMPLETED")
    (log,) = (tree / "logs" / "tiny" / "train_reranker").iterdir()
    assert "resumed at update" in log.read_text("utf-8")
    assert not (tree / "results" / "tiny" / "checkpoints" / "rerankers" / "cross").exists()


@pytest.mark.slow
@pytest.mark.exhaustive
def test_jobs_outlive_a_restart_of_the_controller(sandbox, tree):
    log = (sandbox.folder / "slurm" / "log" / "slurmctld.log").read_text()
    assert log.count("slurmctld version") == 2
    assert states(sandbox, "train") == ["COMPLETED"]


def is_done(tree):
    """Whether nothing of the runs is left to do, half-made or locked."""
    status, output = snakemake(tree, "--dry-run", "--configfile", TINY, "--", *RUNS)
    left = [path for path in (tree / "results").rglob("*") if path.name.endswith(".tmp")]
    return status == 0 and "Nothing to be done" in output and not left


@pytest.mark.slow
def test_rerun_after_a_failure_redoes_only_what_was_lost(sandbox, built, finished):
    # The other form of asking for GPUs, as the profile's comment gives it.
    gres = re.search(r"expect --gres: (\{.*\})", (finished / cluster.PROFILE).read_text("utf-8"))[1]
    profile = cluster.write_profile(finished, "no-retries", gpus=gres, retries=0, set_scatter=ONE_SHARD)
    (finished / "results/tiny/runs/test/cort-onng.trec").unlink()
    (finished / "results/tiny/scores/cross/test.parquet").unlink()
    (finished / "results/tiny/runs/test/cort+bm25-cross.trec").unlink()
    before = len(sandbox.jobs())
    sandbox.inject(["cort.retrieve", "graph", "cort-onng"], cluster.FAIL)
    status, output = cluster.Run(sandbox, finished, profile, *RUNS).wait()
    assert status == 1
    # The other branch was finished, with the GPU it asked for.
    assert (finished / RUNS[SYSTEMS.index("cort+bm25-cross")]).read_bytes()
    assert sorted((job["rule"], job["JobState"], gpus(job)) for job in sandbox.jobs()[before:]) == [
        ("retrieve_graph", "FAILED", None),
        ("score", "COMPLETED", ("--gres", 1)),
    ]
    (seen,) = [stage for stage in sandbox.stages() if stage["SLURM_JOB_ID"] == sandbox.jobs("score")[-1]["JobId"]]
    assert seen["CUDA_VISIBLE_DEVICES"] in ("0", "1")
    status, output = cluster.Run(sandbox, finished, profile, *RUNS).wait()
    assert status == 0, output[-10_000:]
    assert planned(output) == {"retrieve_graph": 1, "total": 1}
    assert [job["rule"] for job in sandbox.jobs()[before + 2 :]] == ["retrieve_graph"]
    assert is_done(finished)
    assert [name for name in RUNS if (finished / name).read_bytes() != (built / name).read_bytes()] == []


@pytest.mark.slow
def test_killed_snakemake_is_started_again_while_its_jobs_go_on(sandbox, built, finished):
    profile = cluster.write_profile(finished, "killed", set_scatter=ONE_SHARD)
    name = RUNS[SYSTEMS.index("cort-onng")]
    (finished / name).unlink()
    before = len(sandbox.jobs("retrieve_graph", "cort-onng"))
    waiting = [sandbox.inject(["cort.retrieve", "graph", "cort-onng"], cluster.WAIT_FOR_GO) for _ in range(2)]
    first = cluster.Run(sandbox, finished, profile, *RUNS)
    first.wait_until(waiting[0].exists, "the first job")
    first.kill()
    second = cluster.Run(sandbox, finished, profile, *RUNS)
    second.wait_until(waiting[1].exists, "the second job")
    # Two jobs write the same file now.
    assert states(sandbox, "retrieve_graph", "cort-onng")[before:] == ["RUNNING", "RUNNING"]
    (sandbox.faults / "go").touch()
    status, output = second.wait()
    assert status == 0, output[-10_000:]
    both = ["COMPLETED", "COMPLETED"]
    cluster.wait_until(lambda: states(sandbox, "retrieve_graph", "cort-onng")[before:] == both, "the first job's end")
    assert is_done(finished)
    assert (finished / name).read_bytes() == (built / name).read_bytes()
