"""With CI=true, no test is skipped in silence."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.conftest import pytest_sessionfinish
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


def test_a_skipped_test_or_file_that_should_run_fails_the_run_and_is_named(tmp_path):
    for number, text in enumerate((LISTED, OTHER, WHOLE)):
        (tmp_path / f"test_{number}.py").write_text(text, "utf-8")
    # As `make test` runs them.
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-n", "1", tmp_path]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(command, cwd=ROOT, env=environment | {"CI": "true"}, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout
    reasons = [line.removeprefix(ERROR).split(":")[0] for line in done.stdout.splitlines() if line.startswith(ERROR)]
    assert sorted(reasons) == ["could not import 'no_such_module'", "no browser"]


@pytest.mark.parametrize(
    ("ci", "reason", "status"), [("true", "no CUDA device", 0), ("true", "no browser", 1), ("", "no browser", 0)]
)
def test_only_with_ci_and_a_reason_that_is_not_listed_a_run_fails(monkeypatch, ci, reason, status):
    monkeypatch.setenv("CI", ci)
    reporter = SimpleNamespace(stats={"skipped": [SimpleNamespace(longrepr=("test.py", 1, f"Skipped: {reason}"))]})
    plugins = SimpleNamespace(get_plugin=lambda name: reporter)
    session = SimpleNamespace(config=SimpleNamespace(pluginmanager=plugins), exitstatus=pytest.ExitCode.OK)
    pytest_sessionfinish(session)
    assert session.exitstatus == status
