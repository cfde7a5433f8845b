"""profiles/slurm on a SLURM of three nodes: what jobs ask for and get, and what becomes of a build if jobs fail."""

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml
from snakemake.api import SnakemakeApi
from snakemake.settings.types import ConfigSettings, OutputSettings, Quietness, ResourceSettings

from tests.support import slurm
from tests.support import slurm as cluster
from tests.support.changes import altered
from tests.support.common import COMMIT, ROOT
from tests.support.forking import snakemake, succeed
from tests.support.sandbox import TINY, copy_with_tiny
from tests.support.workflow import RULES, SYSTEMS, UNUSED, module_of, planned, process_as_it_was

pytestmark = pytest.mark.usefixtures("real_starts")

# Rules that need a network in some experiments, if not in the default one, or take a second.
LOCAL = {"resolve", "download", "import_split", "passage_queries", "judge", "embed", "embed_queries", "score_served"}
LOCAL |= {f"pretrained_{kind}" for kind in ("encoder", "reranker", "weigher", "expander")}
# Of the tiny experiment, which brings its own texts.
SUBMITTED = RULES.keys() - LOCAL - UNUSED
# Rules of the jobs with several; those of a system's run have a name of their own, and so have others below.
GROUPS = {
    "index.expanded": {"bm25_index", "import_expansions"},
    "tokens.small": {"base_model", "tokenize"},
    "samples": {"triples"},
    "run.test.bm25": {"bm25", "evaluate"},
    "run.test.expanded": {"bm25", "evaluate"},
    "run.test.published": {"import_run", "evaluate"},
    "run.test.cort-onng": {"retrieve_graph", "evaluate"},
    "run.test.cort-hnsw": {"retrieve_graph", "evaluate"},
    "run.test.cort+bm25": {"fuse", "evaluate"},
    "run.test.cort+bm25-cross": {"rerank", "evaluate"},
    "report": {"compare", "consistency", "depths", "provenance", "report"},
}
RUNS = [f"results/tiny/runs/test/{system}.trec" for system in SYSTEMS]
# Of the tiny experiment with four shards.
JOBS = 43
MEASURES = "results/tiny/measures/test/bm25.json"


def test_profile_keeps_all_of_the_default_one():
    default, profile = (
        yaml.safe_load((ROOT / "profiles" / name / "profile.yaml").read_text("utf-8")) for name in ("default", "slurm")
    )
    assert default.items() <= profile.items()


def test_only_rules_that_need_a_network_run_beside_snakemake_and_others_ask_for_memory_and_time():
    asked = {name: {"mem_mb", "runtime"} & {*rule.resources} for name, rule in RULES.items()}
    assert {name for name, resources in asked.items() if len(resources) < 2} == LOCAL
    assert {name for name, rule in RULES.items() if name in rule.workflow._localrules} == LOCAL


@pytest.fixture(scope="module")
def unbuilt(tmp_path_factory):
    """A copy of the project; without messages Snakemake shows what a job gets."""
    folder = copy_with_tiny(tmp_path_factory.mktemp("unbuilt"))
    for path in (folder / "workflow" / "rules").glob("*.smk"):
        path.write_text(re.sub(r" +message:\n.*\n", "", path.read_text("utf-8")), "utf-8")
    return folder


@pytest.mark.parametrize(
    ("changes", "local"),
    [
        ({}, set()),
        ({"base_models.small": {"pretrained": "bert-base-uncased", "revision": COMMIT}}, {"base_model"}),
        ({"base_models.small": {"pretrained": "tiny"}}, set()),
        ({"collection": {"irds": "vaswani"}}, {"collection"}),
    ],
)
def test_models_of_a_hub_and_collections_of_a_source_are_got_beside_snakemake(unbuilt, monkeypatch, changes, local):
    monkeypatch.chdir(unbuilt)
    config = altered(unbuilt, unbuilt / "changed.yaml", changes)
    with process_as_it_was(), SnakemakeApi(OutputSettings(quiet={Quietness.ALL})) as api:
        settings = {
            "resource_settings": ResourceSettings(cores=1),
            "config_settings": ConfigSettings(configfiles=[config]),
        }
        workflow = api.workflow(**settings, snakefile=ROOT / "Snakefile", workdir=unbuilt)._workflow
        assert workflow._localrules - LOCAL - {"all", "experiment"} == local


def test_light_stages_share_a_job_with_those_that_they_follow(unbuilt):
    words = ("--workflow-profile", "profiles/slurm", "--configfile", TINY, "--dry-run", "--cores", 2)
    output = succeed(unbuilt, "snakemake", *words, "--config", "shards=4")
    found = {}
    for group, text in re.findall(r"Group job (\S+) .*\n((?: .*\n|\n(?= ))+)", output):
        found.setdefault(group, set()).update(re.findall(r"^ +rule (\w+):", text, re.MULTILINE))
    assert found == GROUPS
    alone = len(re.findall(r"^rule (?!experiment:|resolve:)\w+:", output, re.MULTILINE))
    assert alone + len(found) == JOBS


def asked(folder, attempt):
    """Rule -> threads, GPUs and minutes of its jobs in an attempt, with the profile and two cores."""
    options = ("--workflow-profile", "profiles/slurm", "--configfile", TINY, "--dry-run", "--quiet", "reason")
    output = succeed(folder, "snakemake", *options, "--attempt", attempt, "--cores", 2)
    found = {}
    # In a group, a line with the time is between two rules.
    rules = re.findall(r"^ *rule (?!(?:all|experiment):)(\w+):\n((?: +[^\[\s].*\n)+)", output, re.MULTILINE)
    for rule, text in rules:
        numbers = (re.search(rf"\b{name}[:=] ?(\d+)", text) for name in ("threads", "gpu", "runtime"))
        found[rule] = [
            int(number[1]) if number else default for number, default in zip(numbers, (1, 0, 0), strict=True)
        ]
    return found


def test_time_grows_up_to_the_limit_of_the_profile(unbuilt):
    first, last = asked(unbuilt, 1), asked(unbuilt, 4)
    assert (first["evaluate"], last["evaluate"]) == ([1, 0, 30], [1, 0, 120])
    assert (first["encode"], last["encode"]) == ([2, 1, 1_440], [2, 1, 4_320])


@pytest.mark.parametrize(("chosen", "extra"), [((), "--signal=USR1@300"), (("slurm_extra='--qos=x'",), "--qos=x")])
def test_default_resources_of_users_replace_no_other_ones(unbuilt, chosen, extra):
    words = ("--workflow-profile", "profiles/slurm", "--configfile", TINY, "--dry-run", "--cores", 2)
    output = succeed(unbuilt, "snakemake", *words, "--default-resources", "slurm_account=lab", *chosen, "--", RUNS[0])
    lines = re.findall(r"^    resources: (.*)", output, re.MULTILINE)
    parts = {"slurm_account=lab", "nodes=1", f"slurm_extra={extra}"}
    assert lines
    assert [line for line in lines if not parts <= {*line.split(", ")}] == []


@pytest.mark.parametrize("nodes", ["8 (null)", "8 gpu:2"])
def test_jobs_ask_for_what_the_nodes_have_by_gpu(unbuilt, tmp_path, monkeypatch, nodes):
    (tmp_path / "sinfo").write_text(f"#!/bin/sh\necho '{nodes}'\n", "utf-8")
    (tmp_path / "sinfo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    words = ("--workflow-profile", "profiles/slurm", "--configfile", TINY, "--dry-run", "--cores", 8)
    output = succeed(unbuilt, "snakemake", *words)
    (encode,) = re.findall(r"^rule encode:\n((?: .*\n)+)", output, re.MULTILINE)
    expected = ("threads: 4", "gpu=1,") if "gpu" in nodes else ("threads: 8", "gpu=0,")
    assert all(part in encode for part in expected)
    assert ("gpu=1," in output) == ("gpu" in nodes)


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
    with cluster.Sandbox(tmp_path_factory.mktemp("sandbox")) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def tree(sandbox, tmp_path_factory):
    """A copy of the project in which SLURM built the tiny experiment from nothing, on a bad day, in one go."""
    tree = copy_with_tiny(tmp_path_factory.mktemp("cluster"))
    sandbox.inject(["cort.tokenize", "queries.test.parquet"], cluster.SAVE_WHEN_WARNED)
    sandbox.inject(["cort.retrieve", "runs/test/bm25.trec"], cluster.HANG)
    sandbox.inject(["cort.train_reranker"], cluster.WARN_AFTER_VALIDATION)
    sandbox.inject(["cort.retrieve", "graph", "cort-onng"], cluster.FAIL)
    hanging = sandbox.inject(["cort.retrieve", "graph", "cort-onng"], cluster.HANG)
    # The limit of a group is the sum of those that run in turn; SLURM looks every 30 s.
    warned, short = {"runtime": 1, "slurm_extra": "'--signal=USR1@45'"}, {"runtime": "1 if attempt == 1 else 5"}
    limits = {"base_model": warned, "tokenize": warned, "bm25": short, "evaluate": short}
    run = cluster.Run(sandbox, tree, cluster.write_profile(tree, "bad-day", set_resources=limits, config={"shards": 2}))
    run.wait_until(lambda: {"cort.train"} & {stage["stage"] for stage in sandbox.stages()}, "training", 900)
    sandbox.end_controller()
    time.sleep(3)
    sandbox.start_controller()
    run.wait_until(hanging.exists, "the job to cancel", 900)
    sandbox.command("scancel", sandbox.jobs("run.test.cort-onng_evaluate_retrieve_graph")[-1]["JobId"])
    status, output = run.wait()
    assert status == 0, output[-10_000:]
    return tree


@pytest.fixture(scope="module")
def finished(sandbox, built, tmp_path_factory):
    """A copy of the project in which the tiny experiment is built already."""
    return shutil.copytree(built, tmp_path_factory.mktemp("finished") / "tree", symlinks=True)


def states(sandbox, rule, wildcards=""):
    return [job["JobState"] for job in sandbox.jobs(rule, wildcards)]


def group_of(job):
    """The group of rules that a job runs, whose name Snakemake begins with it."""
    return next((group for group in GROUPS if job["rule"].startswith(f"{group}_")), None)


def gpus(job):
    """Number of GPUs a job asked for."""
    match = re.fullmatch(r"gres:gpu:(\d+)", job.get("TresPerJob", ""))
    return int(match[1]) if match else 0


@pytest.mark.slow
@pytest.mark.exhaustive
def test_every_stage_runs_in_slurm(sandbox, tree):
    alone = SUBMITTED - set().union(*GROUPS.values()) | {"bm25", "bm25_index", "evaluate"}
    assert {group_of(job) or job["rule"] for job in sandbox.jobs()} == alone | GROUPS.keys()
    found = {(stage["stage"], bool(stage["SLURM_JOB_ID"])) for stage in sandbox.stages()}
    assert found == {(f"cort.{module_of(name)}", True) for name in SUBMITTED} | {("cort.resolve", False)}


@pytest.mark.slow
@pytest.mark.exhaustive
def test_jobs_ask_for_what_rule_and_profile_say(sandbox, tree, unbuilt):
    first = asked(unbuilt, 1)
    for job in sandbox.jobs():
        assert job["NumNodes"] == "1"
        if group_of(job):
            # Rules of a group run in turn.
            threads = max(first[rule][0] for rule in GROUPS[group_of(job)])
            assert (job["Partition"], int(job["NumCPUs"]), gpus(job)) == ("cpu", threads, 0)
            continue
        threads, devices, minutes = first[job["rule"]]
        assert (int(job["NumCPUs"]), gpus(job)) == (threads, devices)
        assert job["Partition"] == ("gpu" if devices else "cpu")
        same = sandbox.jobs(job["rule"], job["wildcards"])
        attempt = 1 if job["rule"].startswith("train") else 1 + [other["JobId"] for other in same].index(job["JobId"])
        assert abs(memory_of(job) - attempt * memory_of(same[0])) < 10
        # The others have limits of `tree`.
        if job["rule"] not in ("base_model", "tokenize", "bm25", "evaluate"):
            assert minutes_of(job) == min(attempt * minutes, 4_320)


def minutes_of(job):
    days, hours, minutes = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):00", job["TimeLimit"]).groups()
    return 1_440 * int(days or 0) + 60 * int(hours) + int(minutes)


def memory_of(job):
    """Megabytes."""
    number, unit = re.search(r"mem=([\d.]+)([MG])", job["TRES"]).groups()
    return float(number) * {"M": 1, "G": 1024}[unit]


@pytest.mark.slow
@pytest.mark.exhaustive
def test_jobs_with_a_gpu_see_it_and_others_see_none(sandbox, tree):
    with_gpu = {job["JobId"]: bool(gpus(job)) for job in sandbox.jobs()}
    stages = [stage for stage in sandbox.stages() if stage["SLURM_JOB_ID"]]
    seen = {(with_gpu[stage["SLURM_JOB_ID"]], stage["CUDA_VISIBLE_DEVICES"]) for stage in stages}
    assert {devices for gpu, devices in seen if gpu} <= {"0", "1"}
    assert {devices for gpu, devices in seen if not gpu} == {None}


@pytest.mark.slow
@pytest.mark.exhaustive
def test_results_are_those_of_a_local_build(built, tree):
    assert [name for name in RUNS if (tree / name).read_bytes() != (built / name).read_bytes()] == []
    assert (tree / "results" / "tiny" / "report" / "index.html").is_file()


@pytest.mark.slow
@pytest.mark.exhaustive
def test_failed_and_cancelled_jobs_are_tried_again_and_those_over_their_limit_with_more(sandbox, tree):
    assert states(sandbox, "run.test.cort-onng_evaluate_retrieve_graph") == ["FAILED", "CANCELLED", "COMPLETED"]
    over, again = sandbox.jobs("run.test.bm25_bm25_evaluate")
    assert (over["JobState"], over["TimeLimit"]) == ("TIMEOUT", "00:02:00")
    assert (again["JobState"], again["TimeLimit"]) == ("COMPLETED", "00:10:00")
    assert memory_of(again) == 2 * memory_of(over)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_jobs_are_warned_of_their_time_limit_and_training_goes_on_in_the_next_attempt(sandbox, tree):
    warned, again = sandbox.jobs("tokens.small_base_model_tokenize")
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
    """Whether nothing of the runs is left to do, or locked."""
    status, output = snakemake(tree, "--dry-run", "--configfile", TINY, "--", *RUNS)
    return status == 0 and "Nothing to be done" in output


@pytest.mark.slow
def test_rerun_after_a_failure_redoes_only_what_was_lost(sandbox, built, finished):
    profile = cluster.write_profile(finished, "no-retries", retries=0)
    (finished / "results/tiny/runs/test/cort-onng.trec").unlink()
    (finished / "results/tiny/scores/cross/test.parquet").unlink()
    (finished / "results/tiny/runs/test/cort+bm25-cross.trec").unlink()
    before = len(sandbox.jobs())
    sandbox.inject(["cort.retrieve", "graph", "cort-onng"], cluster.FAIL)
    # As docs/operations.md has it; the partition of GPUs is chosen all the same.
    status, output = cluster.Run(sandbox, finished, profile, *RUNS, "--set-resources", "score:gpu=2").wait()
    assert status == 1
    # The other branch was finished, with the GPUs it asked for.
    assert (finished / RUNS[SYSTEMS.index("cort+bm25-cross")]).read_bytes()
    found = sorted((job["rule"], job["JobState"], job["Partition"], gpus(job)) for job in sandbox.jobs()[before:])
    assert found == [
        ("run.test.cort+bm25-cross_rerank", "COMPLETED", "cpu", 0),
        ("run.test.cort-onng_retrieve_graph", "FAILED", "cpu", 0),
        ("score", "COMPLETED", "gpu", 2),
    ]
    score = sandbox.jobs("score")[-1]["JobId"]
    (seen,) = [stage for stage in sandbox.stages() if stage["SLURM_JOB_ID"] == score]
    assert seen["CUDA_VISIBLE_DEVICES"] == "0,1"
    status, output = cluster.Run(sandbox, finished, profile, *RUNS).wait()
    assert status == 0, output[-10_000:]
    assert planned(output) == {"retrieve_graph": 1, "total": 1}
    assert [job["rule"] for job in sandbox.jobs()[before + 3 :]] == ["run.test.cort-onng_retrieve_graph"]
    assert is_done(finished)
    assert [name for name in RUNS if (finished / name).read_bytes() != (built / name).read_bytes()] == []


@pytest.mark.slow
@pytest.mark.exhaustive
def test_jobs_over_their_memory_are_tried_again_with_more_and_those_with_wrong_data_are_not(sandbox, finished):
    profile = cluster.write_profile(finished, "wrong-data")
    (finished / MEASURES).unlink()
    published = finished / "tiny/data/run.test.trec"
    right = published.read_bytes()
    published.write_bytes(right + b"test0 Q0 d1 3 much other\n")
    before = len(sandbox.jobs())
    for _ in range(4):
        sandbox.inject(["cort.evaluate"], cluster.EXCEED_MEMORY)
    status, output = cluster.Run(sandbox, finished, profile, MEASURES, RUNS[SYSTEMS.index("published")]).wait()
    published.write_bytes(right)
    assert status == 1, output[-10_000:]
    jobs = sandbox.jobs()[before:]
    memory = [memory_of(job) for job in jobs if job["rule"] == "run.test.bm25_evaluate"]
    assert memory == [number * memory[0] for number in (1, 2, 3, 4)]
    assert [job["rule"] for job in jobs if job["rule"] != "run.test.bm25_evaluate"] == ["run.test.published_import_run"]
    assert "much" in output
