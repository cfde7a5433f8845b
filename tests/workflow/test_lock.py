"""Locks of dead workflows go, those of live ones hold; with real processes, killed for real."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from base64 import urlsafe_b64encode
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from snakemake.exceptions import WorkflowError

from tests.support.common import ROOT, wait_until
from tests.support.sandbox import executable, snakemake
from workflow import lock

# Two stages: the first waits until told to go on, the second needs it.
SNAKEFILE = f"""
import sys

sys.path.insert(0, {str(ROOT)!r})
from workflow.lock import guard

guard(workflow, config)


rule all:
    default_target: True
    input:
        f"results/{{config['dataset']}}/second.txt",


rule first:
    output:
        "results/{{dataset}}/first.txt",
    params:
        seed=config.get("seed", 1),
    shell:
        "echo $$ > {{wildcards.dataset}}.pid; until test -e go; do sleep 0.05; done; echo {{params.seed}} > {{output}}"


rule second:
    input:
        "results/{{dataset}}/first.txt",
    output:
        "results/{{dataset}}/second.txt",
    shell:
        "cp {{input}} {{output}}"
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    (tmp_path / "profiles" / "default").mkdir(parents=True)
    (tmp_path / "profiles" / "default" / "profile.yaml").write_text("rerun-incomplete: true\n")
    return tmp_path


def arguments(dataset, *more):
    return ["--cores", "1", *more, "--config", f"dataset={dataset}"]


@contextmanager
def at_work(folder, dataset="one"):
    """A workflow in the middle of its first job, in a process group of its own; killed at the end if it lives."""
    pid_file = folder / f"{dataset}.pid"
    pid_file.unlink(missing_ok=True)
    with open(folder / f"{dataset}.said", "w") as said:
        command = [executable("snakemake"), *arguments(dataset)]
        process = subprocess.Popen(command, cwd=folder, stdout=said, stderr=said, start_new_session=True)
    try:
        wait_until(lambda: pid_file.exists() and pid_file.read_text().strip())
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def locks(folder):
    return sorted(path.name for path in (folder / ".snakemake" / "locks").glob("*"))


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
def test_after_a_kill_the_same_call_goes_on_and_says_why(folder):
    with at_work(folder) as dead:
        pass
    assert len(locks(folder)) == 2
    (folder / "go").touch()
    status, output = snakemake(folder, *arguments("one"))
    assert status == 0, output
    assert output.count("Removed 2 locks of a workflow that was killed") == 1
    assert f"process {dead.pid} on " in output
    assert (folder / "results" / "one" / "second.txt").read_text() == "1\n"
    assert locks(folder) == []
    status, output = snakemake(folder, *arguments("one"))
    assert (status, "Nothing to be done" in output, "Removed" in output) == (0, True, False)


@pytest.mark.slow
def test_jobs_that_outlive_their_workflow_are_ended(folder):
    with at_work(folder) as process:
        job = int((folder / "one.pid").read_text())
        process.kill()
        process.wait()
        assert is_alive(job)
        with at_work(folder):
            assert not is_alive(job)
            assert "processes of a workflow that was killed" in (folder / "one.said").read_text()


@pytest.mark.slow
def test_a_live_workflow_keeps_others_out_and_is_not_disturbed(folder):
    with at_work(folder) as process:
        before = locks(folder)
        status, output = snakemake(folder, *arguments("one"))
        assert status == 1
        lines = [line for line in output.splitlines() if line.startswith("results/one: found a running workflow")]
        assert len(lines) == 1
        assert f"(process {process.pid} on " in lines[0]
        assert lines[0].endswith("expected none; wait for it, or end it")
        assert output.splitlines()[-1] == lines[0]
        assert locks(folder) == before
        (folder / "go").touch()
        assert process.wait(timeout=60) == 0
    assert (folder / "results" / "one" / "second.txt").exists()


@pytest.mark.slow
@pytest.mark.exhaustive
def test_another_dataset_is_nobodys_business(folder):
    with at_work(folder, "one"):
        pass
    assert len(locks(folder)) == 2
    with at_work(folder, "two") as other:
        assert len(locks(folder)) == 4
        # The dead one's go, the live one's stay.
        with at_work(folder, "one") as again:
            assert "Removed 2 locks" in (folder / "one.said").read_text()
            assert len(locks(folder)) == 4
            (folder / "go").touch()
            assert (again.wait(timeout=60), other.wait(timeout=60)) == (0, 0)
    assert all((folder / "results" / name / "second.txt").exists() for name in ("one", "two"))


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_second_workflow_is_kept_out_even_after_snakemake_lost_the_lock(folder):
    with at_work(folder):
        # As Snakemake does itself when another workflow in the folder ends.
        for path in (folder / ".snakemake" / "locks").iterdir():
            path.unlink()
        status, output = snakemake(folder, *arguments("one"))
    assert (status, "found a running workflow" in output) == (1, True)


@pytest.mark.slow
def test_questions_are_answered_while_a_workflow_is_at_work(folder):
    with at_work(folder):
        owner = (folder / ".snakemake" / "owners" / "one").read_bytes()
        before = locks(folder)
        for question in ("--dry-run", "--summary", "--lint", "--list-rules", "--dag", "--report=report.zip"):
            _, output = snakemake(folder, *arguments("one", question))
            assert "found a workflow at work" not in output
            assert (folder / ".snakemake" / "owners" / "one").read_bytes() == owner
            assert locks(folder) == before
        # Who asks for it still gets Snakemake's own way.
        status, output = snakemake(folder, *arguments("one", "--unlock"))
        assert (status, locks(folder)) == (0, [])


@pytest.mark.slow
@pytest.mark.exhaustive
def test_who_says_nolock_gets_it(folder):
    with at_work(folder):
        (folder / "go").touch()
        status, output = snakemake(folder, *arguments("one", "--nolock"))
    assert (status, "found a workflow at work" in output) == (0, False)


def record_of(folder, output, kind="metadata"):
    return folder / ".snakemake" / kind / urlsafe_b64encode(output.encode()).decode()


@pytest.mark.slow
@pytest.mark.parametrize("damage", [pytest.param(b"", marks=pytest.mark.exhaustive), b'{"rule": "first", "inp'])
def test_a_damaged_record_makes_its_job_run_again(folder, damage):
    (folder / "go").touch()
    assert snakemake(folder, *arguments("one"))[0] == 0
    record = record_of(folder, "results/one/first.txt")
    record.write_bytes(damage)
    # Without a record nobody would see that the seed is another.
    status, output = snakemake(folder, *arguments("one"), "seed=2")
    assert status == 0, output
    assert "The record of results/one/first.txt is damaged; it is rebuilt." in output
    assert "corrupted" not in output
    assert (folder / "results" / "one" / "second.txt").read_text() == "2\n"
    assert json.loads(record.read_bytes())["rule"] == "first"
    status, output = snakemake(folder, *arguments("one"), "seed=2")
    assert (status, "Nothing to be done" in output) == (0, True), output


@pytest.mark.slow
@pytest.mark.parametrize("damage", [pytest.param(b"", marks=pytest.mark.exhaustive), b"\0" * 30])
def test_a_damaged_mark_of_an_unfinished_job_still_marks_it(folder, damage):
    (folder / "go").touch()
    assert snakemake(folder, *arguments("one"))[0] == 0
    mark = record_of(folder, "results/one/first.txt", "incomplete")
    mark.write_bytes(damage)
    (folder / "results" / "one" / "first.txt").write_text("half")
    status, output = snakemake(folder, *arguments("one"))
    assert status == 0, output
    assert "Traceback" not in output
    assert (folder / "results" / "one" / "first.txt").read_text() == "1\n"
    assert not mark.exists()


HOLDER = """
import sys
from workflow import lock

lock.claim(sys.argv[1])
print("mine", flush=True)
sys.stdin.readline()
"""


def start_holder(dataset="one"):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, "-c", HOLDER, dataset], **pipes, text=True, env=environment)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Be in an empty folder, hold nothing, and give back what was claimed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lock, "_held", {})
    monkeypatch.setattr(lock, "PATIENCE", 0.3)
    monkeypatch.delenv(lock.VARIABLE, raising=False)
    (tmp_path / ".snakemake" / "locks").mkdir(parents=True)
    (tmp_path / ".snakemake" / "metadata").mkdir(parents=True)
    yield tmp_path
    os.environ.pop(lock.VARIABLE, None)
    lock._held.clear()


def write_lock(folder, name, *files):
    (folder / ".snakemake" / "locks" / name).write_text("".join(f"{file}\n" for file in files))


def test_one_of_many_gets_the_lock_and_the_next_one_when_it_is_killed(here):
    for _ in range(3):
        holders = [start_holder() for _ in range(5)]
        try:
            wait_until(lambda holders=holders: sum(one.poll() is not None for one in holders) > 3)
            alive = [one for one in holders if one.poll() is None]
            assert len(alive) == 1
            assert alive[0].stdout.readline() == "mine\n"
            errors = [one.communicate()[1] for one in holders if one is not alive[0]]
            assert all("found a running workflow (process" in error for error in errors)
        finally:
            for one in holders:
                one.kill()
                one.communicate()


def test_locks_of_this_dataset_alone_are_removed(here):
    write_lock(here, "0.input.lock", "cort/encode.py", "results/one/a.txt")
    write_lock(here, "0.output.lock", "results/one/b.txt")
    write_lock(here, "1.input.lock", "cort/encode.py", "results/two/a.txt")
    write_lock(here, "1.output.lock", "results/two/results/one/b.txt")
    write_lock(here, "2.input.lock", "data/results/one/a.txt")
    write_lock(here, "3.input.lock")
    lock.claim("one")
    assert locks(here) == ["1.input.lock", "1.output.lock", "2.input.lock", "3.input.lock"]


def test_a_lock_that_names_a_live_dataset_too_stays_until_that_is_dead(here):
    with start_holder("two") as other:
        assert other.stdout.readline() == "mine\n"
        write_lock(here, "0.input.lock", "results/one/runs/test/bm25.trec", "results/two/a.txt")
        lock.claim("one")
        assert locks(here) == ["0.input.lock"]
        other.kill()
    assert lock._remove_dead_locks("one") == 1
    assert locks(here) == []


def test_an_owner_says_who_it_is_and_marks_its_jobs(here):
    lock.claim("one")
    owner = json.loads((here / ".snakemake" / "owners" / "one").read_text())
    assert owner["pid"] == os.getpid()
    assert os.environ[lock.VARIABLE] == owner["token"]
    with subprocess.Popen(["sleep", "60"]) as child:
        assert lock.processes_with(lock.VARIABLE, owner["token"]) == [child.pid]
        child.kill()
    assert lock.processes_with(lock.VARIABLE, owner["token"][:-1]) == []


@pytest.mark.parametrize("own", [None, "6"])
def test_jobs_of_slurm_are_left_to_it(here, monkeypatch, own):
    """Whoever sits in one counts what it began there as its own."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    environments = [os.environ | {"SLURM_JOB_ID": number} for number in ("5", "6")]
    if own:
        monkeypatch.setenv("SLURM_JOB_ID", own)
    with ExitStack() as stack:
        for environment in environments:
            child = subprocess.Popen(["sleep", "60"], env=environment | {lock.VARIABLE: "abc"})
            stack.enter_context(child)
            stack.callback(child.kill)
        assert lock.processes_with(lock.VARIABLE, "abc") == ([child.pid] if own else [])


def test_jobs_that_do_not_end_when_asked_are_killed(here, monkeypatch):
    monkeypatch.setattr(lock, "GRACE", 0.5)
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
    environment = os.environ | {lock.VARIABLE: "abc"}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE) as stubborn:
        assert stubborn.stdout.readline()
        assert lock._end_jobs("abc") == 1
        assert stubborn.wait(timeout=60) == -signal.SIGKILL


def test_a_file_of_owners_deleted_while_it_is_locked_is_not_taken_for_the_lock(here, monkeypatch):
    flock, calls = fcntl.flock, []

    def delete_first(descriptor, operation):
        calls.append(descriptor)
        if len(calls) == 1:
            (here / ".snakemake" / "owners" / "one").unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", delete_first)
    lock.claim("one")
    assert len(calls) == 2
    monkeypatch.setattr(lock, "_held", {})
    with pytest.raises(WorkflowError, match=f"process {os.getpid()} on"):
        lock.claim("one")


def test_where_files_cannot_be_locked_all_stays_as_it_is(here, monkeypatch):
    write_lock(here, "0.output.lock", "results/one/b.txt")
    monkeypatch.setattr(lock, "acquire", lambda path, timeout=0: None)
    lock.claim("one")
    assert locks(here) == ["0.output.lock"]
    assert lock._held == {}


def test_records_of_other_datasets_and_names_in_pieces(here):
    long = f"results/one/{'x' * 300}"
    name = urlsafe_b64encode(long.encode()).decode()
    pieces = here / ".snakemake" / "metadata" / f"@{name[:254]}" / name[254:]
    pieces.parent.mkdir()
    pieces.write_text("{")
    record_of(here, "results/two/a.txt").write_text("{")
    record_of(here, "results/one/a.txt").write_text("{}")
    assert list(lock._mark_damaged("one")) == [long]
    assert (here / ".snakemake" / "incomplete" / pieces.parent.name / pieces.name).exists()
    assert record_of(here, "results/two/a.txt").read_text() == "{"
