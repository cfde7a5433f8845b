"""What a build asks SLURM, and what it says of failed jobs; tests/end_to_end has those on a real one."""

import asyncio
import os
from types import SimpleNamespace

import pytest

from workflow import slurm
from workflow.slurm import Failures, Forgotten, check_earlier_jobs, check_runtime, why

PARTITIONS = "partitions:\n  cpu: {max_runtime: 1440}\n  gpu: {max_runtime: 600, max_gpu: 2}\n"


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Put a program with a name and an output first on PATH."""

    def write(name, output, status=0):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\nexit {status}\n", "utf-8")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")

    # Restored afterwards.
    for name in (slurm.NODE_GPUS, slurm.CPUS_PER_GPU):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return write


def partitions(folder, text):
    (folder / "partitions.yaml").write_text(text, "utf-8")
    return folder / "partitions.yaml"


@pytest.mark.parametrize(
    ("nodes", "gpus", "cpus"),
    [
        ("16 gpu:2\n64 (null)", True, 8),
        ("64 gpu:a100:4(S:0-1)\n96+ gpu:h100:8\n8 (null)", True, 12),
        ("48 gpu:a100:2,gpu:h100:2,lustre:1\n", True, 12),
        ("16 (null)\n16 lustre:1", False, None),
    ],
)
def test_gpus_of_the_nodes_are_those_of_sinfo(program, nodes, gpus, cpus):
    program("sinfo", nodes)
    slurm.ask_for_gpus()
    assert (slurm.has_gpus(None), slurm.cpus_per_gpu()) == (gpus, cpus)


@pytest.mark.parametrize("status", [0, 1])
def test_a_cluster_that_says_nothing_has_gpus_unless_its_partitions_have_none(program, tmp_path, status):
    program("sinfo", "", status)
    slurm.ask_for_gpus()
    assert (slurm.has_gpus(None), slurm.cpus_per_gpu()) == (True, None)
    assert slurm.has_gpus(partitions(tmp_path, PARTITIONS))
    (other := tmp_path / "other").mkdir()
    assert not slurm.has_gpus(partitions(other, "partitions: {cpu: {max_runtime: 1440}}"))
    # Processes in jobs know of the variable only.
    assert not slurm.has_gpus(None)


@pytest.mark.parametrize(
    ("limit", "text", "most"),
    [
        (600, PARTITIONS, None),
        (60, PARTITIONS, None),
        # Jobs without GPUs may go to partitions that have some.
        (1440, PARTITIONS, 600),
        (None, PARTITIONS, 600),
        (600, "partitions: {cpu: {max_runtime: 60}, gpu: {max_runtime: 600, max_gpu: 2}}", None),
        (61, "partitions: {cpu: {max_runtime: 60}, debug: {max_runtime: 10}}", 60),
        (4320, "partitions: {cpu: {max_runtime: 60}, long: }", None),
        (4320, "partitions: [", None),
    ],
)
def test_the_longest_job_fits_into_a_partition(tmp_path, limit, text, most):
    file = partitions(tmp_path, text)
    found = f"runtime: {limit}" if limit else f"no runtime of at most {most}"
    where = f"partitions with GPUs in {file}" if "gpu" in text else file
    expected = f"resources: found {found}, expected at most {most} minutes, the longest max_runtime of {where}; "
    assert check_runtime(limit, file) == ([f"{expected}change it in profile.yaml, or max_runtime"] if most else [])
    assert check_runtime(limit, None) == []


def test_jobs_of_earlier_builds_of_an_experiment_are_named(program, tmp_path):
    places = [("7", "tiny_1"), ("8", "tiny_1"), ("9", "tiny_2"), ("10", "other_3"), ("11", "tiny-2_4")]
    program("squeue", "\n".join([*(f"{job}|{name}|{tmp_path}" for job, name in places), "12|tiny_5|/another"]))
    (line,) = check_earlier_jobs("tiny", tmp_path)
    assert line == (
        "SLURM: found jobs of an earlier build in this folder: 7, 8, 9, expected none; wait for their end, or call "
        "`scancel --name tiny_1` and `scancel --name tiny_2`, then build again"
    )
    assert "11" in check_earlier_jobs("tiny.2", tmp_path)[0]
    assert check_earlier_jobs("another", tmp_path) == []


CALL = ".\n    sbatch call:\n        sbatch --wrap 'a whole config'\n"
NO_PARTITION = "sbatch: error: invalid partition specified: nope\nsbatch: error: Invalid partition name specified"
AWAY = "sbatch: error: Unable to contact slurm controller (connect failure)"
FAILED = "SLURM-job '3' failed, SLURM status is: 'FAILED'."
FORGOTTEN = FAILED.replace("'FAILED'", "'ERROR'")
NODE_FAILED = "SLURM-job '3' failed due to a node failure, SLURM status is: 'NODE_FAIL'. Failed nodes will be excluded"


@pytest.mark.parametrize(
    ("message", "log", "reason", "final"),
    [
        (
            f"SLURM sbatch failed. The error message was '{NO_PARTITION}'{CALL}",
            "",
            f"SLURM did not take the job: {' '.join(NO_PARTITION.split())}",
            True,
        ),
        (
            f"SLURM sbatch failed. The error message was '{AWAY}'{CALL}",
            "",
            f"SLURM did not take the job: {AWAY}",
            False,
        ),
        ("Job submission failed with exception: no account", "", "SLURM did not take the job: no account", True),
        ("SLURM-job '3' failed, SLURM status is: 'TIMEOUT'. Deta", "", "SLURM job 3 has the status TIMEOUT", False),
        (NODE_FAILED, "", "SLURM job 3 has the status NODE_FAIL", False),
        (FORGOTTEN, "", "SLURM has forgotten the job 3, which did not make all of its outputs", False),
        (FAILED, "killed", "SLURM job 3 on n2 has the status FAILED", False),
        (
            FAILED,
            "first\nPermissionError: [Errno 13] Permission denied: 'results/x'\nlast",
            "SLURM job 3 on n2: PermissionError: [Errno 13] Permission denied: 'results/x'",
            True,
        ),
    ],
)
def test_a_message_of_the_plugin_is_shortened_to_the_reason(program, tmp_path, message, log, reason, final):
    program("squeue", "n2")
    if log:
        (tmp_path / "3.log").write_text(log)
    job = SimpleNamespace(log=[tmp_path / "stage.log"])
    assert why(message, [job], str(tmp_path / "3.log"), 0) == (reason, final)


def test_a_folder_that_is_not_there_on_a_node_is_suspected(program, tmp_path):
    program("squeue", "n2")
    reason, final = why(FAILED, [SimpleNamespace(log=[])], str(tmp_path / "3.log"), 0)
    assert reason.startswith(f"SLURM job 3 could not write {tmp_path}/3.log on n2; is ")
    assert final
    # The stage itself tells what is wrong.
    (tmp_path / "stage.log").write_text("ERROR")
    job = SimpleNamespace(log=[tmp_path / "stage.log"])
    assert why(FAILED, [job], str(tmp_path / "3.log"), 0) == ("SLURM job 3 has the status FAILED", False)


def job(number, *logs, outputs=()):
    return SimpleNamespace(
        jobid=number, log=logs, output=outputs, rule=SimpleNamespace(name=f"rule{number}"), is_group=lambda: False
    )


def test_failed_jobs_are_named_with_the_logs_of_this_build(tmp_path):
    old, new, of_slurm = (tmp_path / name for name in ("old.log", "new.log", "7.log"))
    for log in (old, new, of_slurm):
        log.write_text("text")
    os.utime(old, (0, 0))
    known = Failures()
    missing = [tmp_path / "missing"]
    group = SimpleNamespace(
        jobs=[job(4, old, outputs=missing), job(5, new, outputs=missing), job(6, new, outputs=[new])],
        is_group=lambda: True,
    )
    waiting = SimpleNamespace(jobs=[job(7, old), job(8, old), job(9, old)], is_group=lambda: True)
    known.note(job(1, old), "refused", "", 1, final=True)
    known.note(job(2, old), "cancelled", str(of_slurm), 1, final=False)
    known.note(job(3, new), "too late", str(of_slurm), 1, final=False)
    # The one of a group that began and made nothing; all, if none began.
    known.note(group, "too large", str(of_slurm), 1, final=False)
    known.note(waiting, "lost", str(of_slurm), 1, final=False)
    assert known.lines(since=1) == [
        "rule1 failed: refused",
        f"rule2 failed: cancelled; its log is {of_slurm}",
        f"rule3 failed: too late; its log is {new}",
        f"rule5 failed: too large; its log is {new}",
        f"rule7 and rule8 and rule9 failed: lost; its log is {of_slurm}",
    ]
    assert (known.refused, known.ids) == ({1}, {*range(1, 10)})
    known.drop(job(3))
    known.drop(group)
    known.drop(waiting)
    assert known.ids == {1, 2}


def test_a_look_at_jobs_before_the_build_has_its_name_goes_well():
    """The plugin's thread looks some seconds after its start, which may be before the executor is ready."""

    class Executor:
        async def check_active_jobs(self, active_jobs):
            for each in active_jobs:
                yield each

    async def look():
        return [each async for each in Executor().check_active_jobs([])]

    slurm._mend_status(SimpleNamespace(Executor=Executor, query_job_status=None), Forgotten())
    assert asyncio.run(look()) == []


def test_a_forgotten_job_ended_well_if_all_of_its_outputs_are_new(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("of an earlier build")
    forgotten, jobs = Forgotten(), {"7": job(1, outputs=[old, new]), "8": job(2, outputs=[new]), "9_1": job(3)}
    for each in jobs.values():
        forgotten.begin(each)
    forgotten.active = [SimpleNamespace(external_jobid=number, job=each) for number, each in jobs.items()]
    assert forgotten.ends(jobs) == {}
    assert forgotten.ends({}) == {"7": "ERROR", "8": "ERROR"}
    new.write_text("whole")
    assert forgotten.ends({}) == {"7": "ERROR", "8": "COMPLETED"}
    (tmp_path / "other").write_text("also new")
    (tmp_path / "other").rename(old)
    assert forgotten.ends({"8"}) == {"7": "COMPLETED"}
    # Files of nodes may come late.
    forgotten.patience = 60
    assert forgotten.ends({"8"}) == {}
