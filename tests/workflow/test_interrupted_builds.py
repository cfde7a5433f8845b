"""What is said of builds that end early, or begin beside others.

Ctrl-C, which comes to all processes of a terminal: no traceback, and one line that the same command goes on. A lock:
a line that says whose it is, and what to do.
"""

import os
import signal
import subprocess
import sys

import pytest
import yaml

from cort.runtime.interruption import ATTACHED
from tests.support.common import ROOT
from tests.support.processes import Python
from workflow import running

LINE = "interrupted; the same command goes on\n"
WAIT = "import time\nprint('ready', flush=True)\ntime.sleep(60)\n"
IN_MAIN = "def main():\n    import sys, time\n"
CALL = ("-m", "workflow.build", "--configfile", "tiny.yaml")
BUILD = "from pathlib import Path\nfrom workflow import verdict\nverdict.build(Path('tiny.yaml'))"

# Modules that wait when they are imported, or a program that does when it is called.
IMPORTS = {"yaml.py": WAIT}
SNAKEMAKE_IMPORTS = {"snakemake/cli.py": WAIT}
RAISES = {"snakemake/cli.py": IN_MAIN + "    print('ready', flush=True); time.sleep(60)\n"}
# As Snakemake does between its jobs.
FAILS = {
    "snakemake/cli.py": IN_MAIN
    + "    try: print('ready', flush=True); time.sleep(60)\n    except KeyboardInterrupt: sys.exit(1)\n"
}


@pytest.fixture
def folder(tmp_path):
    """A folder with an experiment."""
    config = {"dataset": "d", "collection": {"passages": "c.tsv"}, "systems": {"bm25": {"retrieve": "bm25"}}}
    config["splits"] = {"test": {"queries": "q.tsv", "qrels": "j.tsv"}}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(config))
    for name, line in (("c.tsv", "d1\ta text"), ("q.tsv", "q1\ta query"), ("j.tsv", "q1\t0\td1\t1")):
        (tmp_path / name).write_text(f"{line}\n")
    return tmp_path


@pytest.fixture
def interrupted(folder, tmp_path):
    """Run Python with other modules until something waits, send Ctrl-C; status, and what it writes then."""
    (tmp_path / "snakemake").mkdir()
    (tmp_path / "snakemake" / "__init__.py").touch()

    def run(modules, *words, **environment):
        for name, code in modules.items():
            (tmp_path / name).write_text(code)
        environment = {ATTACHED: "", **environment, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "start_new_session": True}
        with Python(*words, cwd=tmp_path, environment=environment, **options) as process:
            seen = ""
            while not seen.endswith("ready\n") and (line := process.stdout.readline()):
                seen += line
            assert seen.endswith("ready\n"), seen
            os.killpg(process.pid, signal.SIGINT)
            output = process.communicate(timeout=60)[0]
        return process.returncode, output

    return run


@pytest.mark.parametrize("modules", [IMPORTS, SNAKEMAKE_IMPORTS, RAISES, FAILS])
def test_a_build_ends_with_a_line(interrupted, modules):
    assert interrupted(modules, *CALL) == (-signal.SIGINT, LINE)


@pytest.mark.parametrize("module", ["verdict", "summary", "why"])
def test_so_do_other_commands(interrupted, module):
    assert interrupted(IMPORTS, "-m", f"workflow.{module}") == (-signal.SIGINT, LINE)


def test_a_verdict_waits_for_its_build_and_repeats_no_line(interrupted):
    slow = FAILS["snakemake/cli.py"].replace("sys.exit(1)", "time.sleep(1); print('end', flush=True); sys.exit(1)")
    assert interrupted({"snakemake/cli.py": slow}, "-c", BUILD) == (130, f"end\n{LINE}")


def test_a_job_leaves_the_word_to_its_workflow(interrupted):
    modules = {"numpy.py": WAIT}
    assert interrupted(modules, "-m", "cort.fuse", **{ATTACHED: "1"}) == (-signal.SIGINT, "")
    # Alone, it says where it was.
    assert "Traceback" in interrupted(modules, "-m", "cort.fuse")[1]


@pytest.fixture
def locked(folder, monkeypatch):
    """A folder with the lock of a build."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (folder / ".snakemake" / "locks").mkdir(parents=True)
    (folder / ".snakemake" / "locks" / "0.output.lock").write_text("results/d/runs/test/bm25.trec\n")
    return folder


KILLED = "found the lock of a build of d that no process here runs, expected none; if it was killed, call `"


def test_after_a_kill_a_line_says_how_to_unlock(locked):
    """It is no lock of the very build that asks."""
    done = subprocess.run([sys.executable, *CALL], cwd=locked, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f".snakemake/locks: {KILLED}")
    assert done.stderr.endswith("snakemake --unlock --configfile tiny.yaml`, then build again\n")


def test_snakemake_itself_says_so_too(locked):
    words = ["-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--cores", "1", "--configfile", "tiny.yaml"]
    done = subprocess.run([sys.executable, *words], cwd=locked, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    [line] = [line for line in done.stderr.splitlines() if ".snakemake/locks" in line]
    assert KILLED in line
    assert "cannot be locked" not in done.stderr


def test_a_build_that_runs_is_named(locked):
    wait = "import time; print('ready', flush=True); time.sleep(60)"
    (locked / "snakemake").write_text(wait)
    with Python("snakemake", "--configfile", "tiny.yaml", cwd=locked, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == "ready\n"
        error = str(running.explain_lock("d", "tiny.yaml", locked))
        process.kill()
    assert f"a build that runs: process {process.pid} (tiny.yaml), expected none; wait for its end, or end it" in error
