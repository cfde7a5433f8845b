"""What becomes of a small build on SLURM when the build, the controller or the cluster's settings fail."""

import re
import shutil
import time

import pytest

from tests.support import slurm as cluster
from tests.support.common import wait_until
from tests.support.forking import snakemake
from tests.support.sandbox import TINY, copy_with_tiny

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("real_starts")]

RUN = "results/tiny/runs/test/published.trec"
MEASURES = "results/tiny/measures/test/published.json"
STAGE = ["cort.import_run"]
# Seconds for which a controller is away.
AWAY = 60


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory):
    """A running sandbox."""
    sandbox = cluster.Sandbox(tmp_path_factory.mktemp("sandbox"))
    sandbox.start()
    yield sandbox
    sandbox.stop()


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A copy of the project in which all is built from which the published run is made."""
    tree = copy_with_tiny(tmp_path_factory.mktemp("begun"))
    status, output = snakemake(tree, "--cores", 2, "--configfile", TINY, "--until", "split", "--", RUN)
    assert status == 0, output[-5_000:]
    return tree


@pytest.fixture
def tree(begun, tmp_path):
    return shutil.copytree(begun, tmp_path / "tree", symlinks=True)


def ids(jobs):
    return [job["JobId"] for job in jobs]


def last_lines(output):
    """The lines of `onerror`, which name the failed jobs."""
    return re.findall(r"^\w+(?: and \w+)* failed: .*", output, re.MULTILINE)


def slurm_log(tree, job):
    (log,) = (tree / ".snakemake" / "slurm_logs").rglob(f"{job}.log")
    return log.read_text("utf-8")


def test_an_orphan_is_named_and_overwrites_nothing(sandbox, tree, tmp_path):
    profile = cluster.write_profile(tree, "orphan", retries=0)
    begun = sandbox.inject(STAGE, cluster.WAIT_IN_THE_END)
    before = len(sandbox.jobs())
    first = cluster.Run(sandbox, tree, profile, RUN)
    first.wait_until(begun.exists, "the first job")
    first.wait_until((tree / RUN).with_name(".published.trec.claim").exists, "its claim")
    first.kill()
    assert cluster.Run(sandbox, tree, profile, "--unlock").wait()[0] == 0
    (orphan,) = sandbox.jobs()[before:]
    # The build that comes next would write the same file.
    status, output = cluster.Run(sandbox, tree, profile, RUN, "--config", "depth=12").wait()
    found = f"SLURM: found jobs of an earlier build in this folder: {orphan['JobId']}, expected none; "
    assert (status, found in output) == (1, True), output
    (name,) = set(re.findall(r"scancel --name (\S+)`", output))
    assert (name, sandbox.jobs()[before:]) == (orphan["JobName"], [orphan | {"RunTime": sandbox.jobs()[-1]["RunTime"]}])
    # A build that cannot know of it, as that of another user.
    (tools := tmp_path / "tools").mkdir()
    real = shutil.which("squeue", path=sandbox.environment["PATH"])
    script = f'#!/bin/sh\ncase "$*" in *--name*) exec {real} "$@";; esac\n'
    (tools / "squeue").write_text(script, "utf-8")
    (tools / "squeue").chmod(0o755)
    blind = {"PATH": f"{tools}:{sandbox.environment['PATH']}"}
    second = cluster.Run(sandbox, tree, profile, RUN, "--config", "depth=12", environment=blind)
    status, output = second.wait()
    assert status == 0, output[-5_000:]
    right = (tree / RUN).read_bytes()
    assert max(int(line.split()[3]) for line in right.decode().splitlines()) <= 12
    (sandbox.faults / "go").touch()
    wait_until(lambda: sandbox.jobs()[before]["JobState"] != "RUNNING", "the orphan's end", 120)
    (sandbox.faults / "go").unlink()
    assert sandbox.jobs()[before]["JobState"] == "FAILED"
    log = slurm_log(tree, orphan["JobId"])
    assert f"{RUN}: found no claim any more, expected that of this stage, process " in log
    assert (tree / RUN).read_bytes() == right
    status, output = snakemake(tree, "--dry-run", "--configfile", TINY, "--config", "depth=12", "--", RUN)
    assert (status, "Nothing to be done" in output) == (0, True), output


@pytest.mark.parametrize(
    ("resources", "reason"),
    [
        ("import_run:slurm_partition=nope", "Invalid partition name specified"),
        pytest.param("import_run:gpu=7", "Requested node configuration is not available", marks=pytest.mark.exhaustive),
    ],
)
def test_a_job_that_slurm_refuses_has_one_attempt_and_is_named_in_the_end(sandbox, tree, resources, reason):
    profile = cluster.write_profile(tree, "refused")
    status, output = cluster.Run(sandbox, tree, profile, RUN, "--set-resources", resources).wait()
    (line,) = last_lines(output)
    assert (status, line.startswith("import_run failed: SLURM did not take the job: ")) == (1, True)
    assert reason in line
    assert output.count("Error in rule import_run") == 1
    assert len(output) < 6_000


def test_a_stage_that_fails_in_a_group_is_named_and_what_was_finished_stays(sandbox, tree):
    profile = cluster.write_profile(tree, "group")
    sandbox.inject(["cort.evaluate"], cluster.FAIL)
    before = len(sandbox.jobs())
    status, output = cluster.Run(sandbox, tree, profile, MEASURES, "--retries", "0").wait()
    (job,) = ids(sandbox.jobs()[before:])
    (line,) = last_lines(output)
    assert (status, line.startswith(f"evaluate failed: SLURM job {job} has the status FAILED")) == (1, True), output
    assert (tree / RUN).is_file()
    status, output = snakemake(tree, "--dry-run", "--configfile", TINY, "--", MEASURES)
    assert (status, "import_run" in output, "evaluate" in output) == (0, False, True), output


def test_a_job_that_ends_before_its_stage_begins_is_named_without_an_old_log(sandbox, tree):
    (log := tree / "logs" / "tiny" / "import_run" / "test.published.log").parent.mkdir(parents=True)
    log.write_text("of a success\n")
    profile = cluster.write_profile(tree, "held", retries=0)
    before = len(sandbox.jobs())
    extra = "import_run:slurm_extra='--begin=now+1hour'"
    run = cluster.Run(sandbox, tree, profile, RUN, "--set-resources", extra)
    run.wait_until(lambda: sandbox.jobs()[before:], "the job")
    (job,) = ids(sandbox.jobs()[before:])
    sandbox.command("scancel", job)
    status, output = run.wait()
    assert (status, last_lines(output)) == (1, [f"import_run failed: SLURM job {job} has the status CANCELLED"])
    assert "of a success" not in output


@pytest.mark.exhaustive
def test_a_controller_that_is_away_for_a_minute_delays_a_build(sandbox, tree):
    profile = cluster.write_profile(tree, "outage", retries=0)
    waiting = sandbox.inject(STAGE, cluster.WAIT_IN_THE_END)
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
