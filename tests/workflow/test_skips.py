"""With CI=true, no test is skipped in silence."""

import os
import subprocess
import sys

import pytest

from tests.support.common import ROOT

LISTED = """
import pytest

def test_on_a_gpu():
    pytest.skip("no CUDA device")

def test_anywhere():
    pass
"""
OTHER = """
import pytest

def test_in_a_browser():
    pytest.skip("no browser")
"""
WHOLE = """
import pytest

pytest.importorskip("no_such_module")
"""
ERROR = "error: CI=true, and tests were skipped: "


@pytest.mark.parametrize(
    ("ci", "files", "status"), [("true", [LISTED], 0), ("true", [LISTED, OTHER, WHOLE], 1), ("", [LISTED, OTHER], 0)]
)
def test_with_ci_a_skipped_test_fails_the_run_unless_its_reason_is_listed(tmp_path, ci, files, status):
    for number, text in enumerate(files):
        (tmp_path / f"test_{number}.py").write_text(text, "utf-8")
    # As `make test` runs them.
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-n", "1", tmp_path]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(command, cwd=ROOT, env=environment | {"CI": ci}, capture_output=True, text=True)
    assert done.returncode == status, done.stdout
    reasons = [line.removeprefix(ERROR).split(":")[0] for line in done.stdout.splitlines() if line.startswith(ERROR)]
    assert sorted(reasons) == (["could not import 'no_such_module'", "no browser"] if status else [])
