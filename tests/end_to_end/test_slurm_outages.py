"""What becomes of a small build on a SLURM whose controller is away, that forgets jobs, or that has no GPUs."""

import shutil
import signal
import time

import pytest

from tests.support import slurm as cluster
from tests.support.common import wait_until
from tests.support.forking import snakemake
from tests.support.sandbox import TINY

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive, pytest.mark.usefixtures("real_starts")]

RUN = "results/tiny/runs/test/published.trec"
DENSE = "results/tiny/runs/test/cort.trec"
INSPECTION = "results/tiny/collection/inspection.json"
# Seconds for which a controller is away.
AWAY = 60


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory):
    """A running sandbox."""
    with cluster.Sandbox(tmp_path_factory.mktemp("sandbox")) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    return cluster.begin(tmp_path_factory.mktemp("begun"), RUN, INSPECTION)


@pytest.fixture
def tree(begun, tmp_path):
    return shutil.copytree(begun, tmp_path / "tree", symlinks=True)


def test_a_controller_that_is_away_for_a_minute_delays_a_build(sandbox, tree):
    profile = cluster.write_profile(tree, "outage", retries=0)
    waiting = sandbox.inject(["cort.import_run"], cluster.WAIT_IN_THE_END)
    before = len(sandbox.jobs())
    # While a job is to be submitted, and while one ends.
    sandbox.end_controller()
    run = cluster.Run(sandbox, tree, profile, RUN)
    run.wait_until(lambda: "controller does not answer" in run.output, "the outage to be noticed")
    time.sleep(AWAY)
    sandbox.start_controller()
    run.wait_until(waiting.exists, "the job")
    sandbox.end_controller()
    (sandbox.faults / "go").touch()
    run.wait_until((tree / RUN).exists, "the run")
    time.sleep(AWAY)
    sandbox.start_controller()
    status, output = run.wait()
    (sandbox.faults / "go").unlink()
    assert status == 0, output[-5_000:]
    assert [job["JobState"] for job in sandbox.jobs()[before:]] == ["COMPLETED"]


def test_jobs_that_slurm_has_forgotten_end_well_if_their_outputs_are_there(sandbox, tree):
    profile = cluster.write_profile(tree, "forgotten", retries=0)
    waiting = sandbox.inject(["cort.import_run"], cluster.WAIT_FOR_GO)
    failing = sandbox.inject(["cort.inspect"], f"{cluster.WAIT_FOR_GO}\n{cluster.FAIL}")
    sandbox.set_min_job_age(2)
    run = cluster.Run(sandbox, tree, profile, RUN, INSPECTION)
    try:
        run.wait_until(lambda: waiting.exists() and failing.exists(), "both jobs")
        # As a suspended laptop: nobody looks at the jobs before SLURM has forgotten them.
        run.process.send_signal(signal.SIGSTOP)
        (number,) = cluster.ids(
            job for job in sandbox.jobs() if job["rule"] == "inspect" and job["JobState"] == "RUNNING"
        )
        (sandbox.faults / "go").touch()
        wait_until(lambda: not sandbox.jobs(), "SLURM to forget the jobs", 180)
        run.process.send_signal(signal.SIGCONT)
        status, output = run.wait()
    finally:
        run.kill()
        (sandbox.faults / "go").unlink(missing_ok=True)
        sandbox.set_min_job_age(3600)
    (line,) = cluster.last_lines(output)
    expected = f"inspect failed: SLURM has forgotten the job {number}, which did not make all of its outputs"
    assert (status, line.partition(";")[0]) == (1, expected), output[-5_000:]
    status, output = snakemake(tree, "--dry-run", "--configfile", TINY, "--", RUN)
    assert (status, "Nothing to be done" in output) == (0, True), output


def test_a_cluster_without_gpus_trains_and_searches_on_cpus(tree, tmp_path):
    status, output = snakemake(tree, "--cores", 2, "--configfile", TINY, "--omit-from", "train", "--", DENSE)
    assert status == 0, output[-5_000:]
    with cluster.Sandbox(tmp_path, gpus=0) as sandbox:
        status, output = cluster.Run(sandbox, tree, cluster.write_profile(tree, "cpus", retries=0), DENSE).wait()
        jobs, stages = sandbox.jobs(), sandbox.stages()
    assert status == 0, output[-5_000:]
    assert {"train", "encode", "retrieve"} <= {job["rule"] for job in jobs}
    assert {(job["JobState"], job["Partition"], job.get("TresPerJob")) for job in jobs} == {("COMPLETED", "cpu", None)}
    assert {stage["CUDA_VISIBLE_DEVICES"] for stage in stages} == {None}
