"""`make lock`: what pip installs, step by step, becomes three lock files."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.support.common import ROOT

PROJECT = """[project]
name = "some"
dependencies = ["torch", "ranker>=2"]
[project.optional-dependencies]
dev = ["tester", "ranker"]
docs = ["writer"]
"""
OLD = {
    "requirements.lock": "# old\ntorch==2.0\nranker==1.0\n",
    "requirements-dev.lock": "",
    "requirements-docs.lock": "",
}
# In place of Python: an index has version 7.0 of everything, and torch for CPUs.
FAKE = """#!/bin/bash
installed=$(dirname "$0")/installed
case "$*" in
*"$FAILS"*) exit 3 ;;
"-c "*) exec "$REAL" "$@" ;;
"-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
*" freeze") cat "$installed" ;;
*" install --requirement "*)
    sed -E '/^torch/d; s/[>=].*//; s/$/==7.0/' "${!#}" >> "$installed"
    sort -uo "$installed" "$installed" ;;
*" install "*) echo "${!#}+cpu" >> "$installed" ;;
esac
"""


@pytest.fixture
def lock(tmp_path, monkeypatch):
    """Call the script in a project; its status, and the lock files by name."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "temporary").mkdir()
    shutil.copy(ROOT / "scripts" / "lock", tmp_path / "scripts")
    for name, text in {**OLD, "pyproject.toml": PROJECT, "python": FAKE}.items():
        (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / "python").chmod(0o755)
    for name, value in {
        "PYTHON": tmp_path / "python",
        "REAL": sys.executable,
        "TMPDIR": tmp_path / "temporary",
    }.items():
        monkeypatch.setenv(name, str(value))

    def call(fails="nothing"):
        monkeypatch.setenv("FAILS", fails)
        status = subprocess.run([tmp_path / "scripts" / "lock"], check=False).returncode
        # Also where it fails.
        assert not os.listdir(tmp_path / "temporary")
        return status, {name: (tmp_path / name).read_text("utf-8") for name in OLD}

    return call


def test_each_package_is_in_the_lock_of_those_who_need_it(lock):
    status, found = lock()
    assert status == 0
    # torch stays as it is, without the name of its build.
    pins = {name: [line for line in text.splitlines() if not line.startswith("# ")] for name, text in found.items()}
    assert pins == {
        "requirements.lock": ["ranker==7.0", "torch==2.0"],
        "requirements-dev.lock": ["tester==7.0"],
        "requirements-docs.lock": ["writer==7.0"],
    }
    assert all("`make lock` rewrites it" in text.splitlines()[0] for text in found.values())


@pytest.mark.parametrize("step", ["venv", "torch==2.0", "run.txt", "dev.txt", "docs.txt", "freeze"])
def test_a_step_that_fails_leaves_all_lock_files_as_they_were(lock, step):
    status, found = lock(fails=step)
    assert status != 0
    assert found == OLD
