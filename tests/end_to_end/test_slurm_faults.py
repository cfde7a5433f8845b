"""What becomes of a small build on SLURM when the build, the controller or the cluster's settings fail."""

import re
import shutil

import psutil
import pytest

from tests.support import slurm as cluster
from tests.support.common import wait_until
from tests.support.forking import snakemake
from tests.support.sandbox import TINY

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("real_starts")]

RUN = "results/tiny/runs/test/published.trec"
MEASURES = "results/tiny/measures/test/published.json"
STAGE = ["cort.import_run"]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory):
    """A running sandbox."""
    with cluster.Sandbox(tmp_path_factory.mktemp("sandbox")) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    return cluster.begin(tmp_path_factory.mktemp("begun"), RUN)


@pytest.fixture
def tree(begun, tmp_path):
    return shutil.copytree(begun, tmp_path / "tree", symlinks=True)


def step_of(sandbox):
    """The processes of Python that `srun` has started in jobs."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        words, variables = process.info["cmdline"] or [""], process.info["environ"] or {}
        if variables.get("FAULTS") == str(sandbox.faults) and "SLURM_STEP_ID" in variables and "python" in words[0]:
            found.append(process.pid)
    return found


def slurm_log(tree, job):
    (log,) = (tree / ".snakemake" / "slurm_logs").rglob(f"{job}.log")
    return log.read_text("utf-8")


def test_an_orphan_is_named_and_overwrites_nothing(sandbox, tree):
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
    (still,) = sandbox.jobs()[before:]
    assert (name, still | {"RunTime": ""}) == (orphan["JobName"], orphan | {"RunTime": ""})
    # A build that cannot know of it, as that of another user.
    blind = sandbox.program("squeue", 'case "$*" in *--name*) exec $REAL "$@";; esac')
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


def test_an_orphan_that_waits_in_the_queue_begins_nothing(sandbox, tree):
    profile = cluster.write_profile(tree, "waiting", retries=0)
    before = len(sandbox.jobs())
    sandbox.command("scontrol", "update", "nodename=n[1-3]", "state=drain", "reason=test")
    try:
        first = cluster.Run(sandbox, tree, profile, RUN)
        first.wait_until(lambda: sandbox.jobs()[before:], "the first job")
        first.kill()
        # A later build here, which has ended when the first one's job begins.
        words = ("--configfile", TINY, "--config", "depth=12")
        for action in (("--unlock",), ("--", RUN)):
            status, output = snakemake(tree, "--cores", 2, *words, *action)
            assert status == 0, output[-5_000:]
        right = (tree / RUN).read_bytes()
        assert [job["JobState"] for job in sandbox.jobs()[before:]] == ["PENDING"]
    finally:
        sandbox.command("scontrol", "update", "nodename=n[1-3]", "state=resume")
    wait_until(lambda: sandbox.jobs()[before]["JobState"] not in ("PENDING", "RUNNING"), "the orphan's end", 120)
    assert sandbox.jobs()[before]["JobState"] == "FAILED"
    found = f"{RUN}: found a later build that makes it, expected none; "
    assert found in slurm_log(tree, sandbox.jobs()[before]["JobId"])
    assert (tree / RUN).read_bytes() == right
    status, output = snakemake(tree, "--dry-run", *words, "--", RUN)
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
    (line,) = cluster.last_lines(output)
    assert (status, line.startswith("import_run failed: SLURM did not take the job: ")) == (1, True)
    assert reason in line
    assert output.count("Error in rule import_run") == 1
    assert len(output) < 6_000


def test_a_stage_that_fails_in_a_group_is_named_and_what_was_finished_stays(sandbox, tree):
    profile = cluster.write_profile(tree, "group")
    sandbox.inject(["cort.evaluate"], cluster.FAIL)
    before = len(sandbox.jobs())
    status, output = cluster.Run(sandbox, tree, profile, MEASURES, "--retries", "0").wait()
    (job,) = cluster.ids(sandbox.jobs()[before:])
    (line,) = cluster.last_lines(output)
    assert (status, line.startswith(f"evaluate failed: SLURM job {job} has the status FAILED")) == (1, True), output
    assert (tree / RUN).is_file()
    status, output = snakemake(tree, "--dry-run", "--configfile", TINY, "--", MEASURES)
    assert (status, "import_run" in output, "evaluate" in output) == (0, False, True), output


@pytest.mark.exhaustive
def test_a_job_that_ends_before_its_stage_begins_is_named_without_an_old_log(sandbox, tree):
    (log := tree / "logs" / "tiny" / "import_run" / "test.published.log").parent.mkdir(parents=True)
    log.write_text("of a success\n")
    profile = cluster.write_profile(tree, "held", retries=0)
    before = len(sandbox.jobs())
    extra = "import_run:slurm_extra='--begin=now+1hour'"
    run = cluster.Run(sandbox, tree, profile, RUN, "--set-resources", extra)
    run.wait_until(lambda: sandbox.jobs()[before:], "the job")
    (job,) = cluster.ids(sandbox.jobs()[before:])
    sandbox.command("scancel", job)
    status, output = run.wait()
    assert (status, cluster.last_lines(output)) == (1, [f"import_run failed: SLURM job {job} has the status CANCELLED"])
    assert "of a success" not in output


@pytest.mark.exhaustive
def test_an_account_that_slurm_does_not_know_has_one_attempt_and_is_named_in_the_end(sandbox, tree):
    profile = cluster.write_profile(tree, "account")
    # The sandbox has no accounts.
    known = sandbox.program("sacctmgr", "echo '    lab'")
    words = (RUN, "--default-resources", "slurm_account=nope")
    status, output = cluster.Run(sandbox, tree, profile, *words, environment=known).wait()
    expected = "import_run failed: SLURM did not take the job: The given account nope appears to be invalid. "
    assert (status, cluster.last_lines(output)) == (1, [f"{expected}Available accounts: lab"])
    assert output.count("Error in rule import_run") == 1


@pytest.mark.exhaustive
def test_time_that_no_partition_gives_is_named_before_the_first_job(sandbox, tree):
    profile = cluster.write_profile(tree, "short")
    file = tree / profile / "partitions.yaml"
    file.write_text("partitions:\n  cpu: {max_runtime: 4320}\n  gpu: {max_runtime: 600, max_gpu: 2}\n", "utf-8")
    before = len(sandbox.jobs())
    status, output = cluster.Run(sandbox, tree, profile, RUN).wait()
    assert (status, len(sandbox.jobs())) == (1, before)
    place = f"partitions with GPUs in {profile}/partitions.yaml"
    assert (
        f"resources: found runtime: 4320, expected at most 600 minutes, the longest max_runtime of {place}; " in output
    )
    status, output = cluster.Run(sandbox, tree, profile, RUN, "--resources", "runtime=600").wait()
    assert status == 0, output[-5_000:]


@pytest.mark.exhaustive
@pytest.mark.parametrize("hidden", ["results", "the project"])
def test_a_folder_that_a_node_cannot_write_is_named_with_the_node(sandbox, tree, hidden):
    # A folder of its own, so that the node keeps its own files.
    results = tree / "results"
    mounts = [("--bind", results, results), ("-o", "remount,bind,ro", results)]
    if hidden == "the project":
        mounts = [("-t", "tmpfs", "tmpfs", tree)]
    profile = cluster.write_profile(tree, "hidden")
    before = len(sandbox.jobs())
    sandbox.restart_node("n2", *mounts)
    try:
        words = (RUN, "--set-resources", "import_run:slurm_extra='--nodelist=n2'")
        status, output = cluster.Run(sandbox, tree, profile, *words).wait()
    finally:
        sandbox.restart_node("n2")
    (job,) = cluster.ids(sandbox.jobs()[before:])
    (line,) = cluster.last_lines(output)
    assert status == 1
    if hidden == "the project":
        assert line.startswith(f"import_run failed: SLURM job {job} could not write {tree}/.snakemake/slurm_logs/")
        assert line.endswith(f"/{job}.log on n2; is {tree} visible and writable there?")
    else:
        assert line.startswith(f"import_run failed: SLURM job {job} on n2: ")
        assert "Read-only file system" in line and "results/tiny/runs" in line


@pytest.mark.exhaustive
def test_warnings_of_the_time_limit_end_no_job_while_it_starts(sandbox, tree):
    profile = cluster.write_profile(tree, "warned", retries=0)
    before = len(sandbox.jobs())
    run = cluster.Run(sandbox, tree, profile, RUN)
    run.wait_until(lambda: step_of(sandbox), "the job's step")
    (job,) = cluster.ids(sandbox.jobs()[before:])

    def ends_though_it_is_warned():
        sandbox.command("sh", "-c", f"scancel --signal=USR1 {job} || true")
        return sandbox.jobs()[before]["JobState"] not in ("PENDING", "RUNNING")

    run.wait_until(ends_though_it_is_warned, "the job's end")
    status, output = run.wait()
    assert status == 0, output[-5_000:]
