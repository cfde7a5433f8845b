"""Set-up on a machine without a compiler: everything but hnswlib is installed, and everything but hnsw works."""

import shutil
import subprocess

import pytest

from tests.support import forkclient
from tests.support.common import ROOT
from tests.support.forking import snakemake
from tests.support.sandbox import TINY

PINS = [line for line in (ROOT / "requirements.lock").read_text("utf-8").splitlines() if not line.startswith("#")]
HNSWLIB = next(line for line in PINS if line.startswith("hnswlib=="))
COMPILER = "fatal error: Python.h: No such file or directory"
# In place of Python: notes what pip is to install, and fails on what the test says.
FAKE = f"""#!/bin/sh
case "$*" in
*"$FAILS"*) echo "{COMPILER}"; exit 3 ;;
"-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
*/dev/stdin) grep -v '^#' >> installed ;;
*" install "*) for word in "$@"; do case "$word" in *==*) echo "$word" >> installed ;; esac; done ;;
esac
"""


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Call make in a folder with the project's Makefile; its status, its errors, and what is installed."""
    for name in ("Makefile", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path)
    program = tmp_path / "python"
    program.write_text(FAKE, "utf-8")
    program.chmod(0o755)

    def call(target, fails):
        monkeypatch.setenv("FAILS", fails)
        (tmp_path / "installed").write_text("", "utf-8")
        command = ["make", "--silent", target, "PYTHON=./python"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr, (tmp_path / "installed").read_text("utf-8").splitlines()

    return call


def test_without_a_compiler_a_warning_says_what_to_do_and_set_up_goes_on(make, tmp_path):
    status, errors, installed = make("environment", HNSWLIB)
    assert status == 0
    [line] = errors.splitlines()
    assert line.startswith(f"warning: {HNSWLIB} could not be compiled (see .venv/hnswlib.log); only systems with hnsw ")
    assert line.endswith(", then run make hnswlib")
    assert (tmp_path / ".venv" / "hnswlib.log").read_text("utf-8") == f"{COMPILER}\n"
    assert installed[0].startswith("torch==")
    assert sorted(installed[1:]) == sorted({*PINS} - {HNSWLIB})
    # The warning is not repeated by each call.
    assert make("environment", HNSWLIB) == (0, "", [])
    assert make("hnswlib", HNSWLIB)[0] == 2
    assert make("hnswlib", "nothing") == (0, "", [HNSWLIB])


@pytest.mark.parametrize("package", ["install torch==", "/dev/stdin"])
def test_no_other_package_may_be_missing(make, tmp_path, package):
    assert make("environment", package)[0] == 2
    assert not (tmp_path / ".venv" / ".installed").exists()


@pytest.fixture
def without_hnswlib(tmp_path, monkeypatch):
    """Start stages as copies of a process that cannot import hnswlib."""
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "hnswlib.py").write_text("raise ImportError\n", "utf-8")
    with subprocess.Popen(["sleep", "infinity"]) as owner:
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "hidden"))
        monkeypatch.setenv(forkclient.OWNER, str(owner.pid))
        monkeypatch.setenv(forkclient.PLACE, str(tmp_path / "server"))
        yield
        owner.kill()


@pytest.mark.slow
def test_only_systems_with_hnsw_need_it(built, tmp_path, without_hnswlib):
    tree = shutil.copytree(built, tmp_path / "tree", symlinks=True)
    words = ("--cores", 2, "--configfile", TINY, "--force")
    runs = [f"results/tiny/runs/test/{name}.trec" for name in ("bm25", "cort", "cort-onng", "cort-hnsw")]
    status, output = snakemake(tree, *words, *runs[:3], "results/tiny/report/index.html")
    assert status == 0, output[-5000:]
    status, output = snakemake(tree, *words, runs[3])
    assert status == 1
    assert "hnswlib: found no such package, expected hnswlib 0.8.0" in output
