"""Set-up of the environment: a package that cannot be installed ends it."""

import shutil
import subprocess

import pytest

from tests.support.common import ROOT

# In place of Python: fails on what the test says.
FAKE = """#!/bin/sh
case "$*" in
*"$FAILS"*) echo "no such package" >&2; exit 3 ;;
"-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
esac
"""


@pytest.mark.parametrize("step", [" torch==", "--requirement requirements.lock", "compileall", None])
def test_no_package_may_be_missing(tmp_path, monkeypatch, step):
    for name in ("Makefile", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path)
    program = tmp_path / "python"
    program.write_text(FAKE, "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("FAILS", step or "nothing fails")
    command = ["make", "--silent", "environment", "PYTHON=./python"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    # Some files are for other versions of Python.
    complete = step in ("compileall", None)
    assert (done.returncode == 0) == complete
    assert (tmp_path / ".venv" / ".installed").exists() == complete
