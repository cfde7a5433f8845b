"""`make matrix`: every experiment is checked before one is built, and a failure ends it before the table."""

import subprocess

import pytest

from tests.support.common import ROOT

# In place of Python: notes its words, and fails on those that the test says.
FAKE = """#!/bin/sh
echo "$@" >> "$CALLS"
case "$*" in *"$FAILS"*) exit 3 ;; esac
"""


@pytest.fixture
def make(tmp_path, monkeypatch):
    program, calls = tmp_path / "python", tmp_path / "calls"
    program.write_text(FAKE)
    program.chmod(0o755)
    monkeypatch.setenv("CALLS", str(calls))

    def call(*words, fails="nothing"):
        monkeypatch.setenv("FAILS", fails)
        calls.write_text("")
        command = ["make", "--silent", "--assume-old=.venv/.installed", f"BIN={tmp_path}", "matrix", *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        return done.returncode, [line.removeprefix("-m ") for line in calls.read_text().splitlines()], done.stdout

    return call


TWO = "CONFIGS=a.yaml b.yaml"
CHECKS = [f"workflow.plan --configfile {name}.yaml" for name in "ab"]
BUILDS = [f"workflow.build --configfile {name}.yaml" for name in "ab"]
TABLE = "cort.matrix --experiments a.yaml b.yaml --output-folder results/matrix"


def test_experiments_are_checked_then_built_then_tabulated(make):
    status, calls, output = make(TWO)
    assert (status, calls) == (0, [*CHECKS, *BUILDS, TABLE])
    assert output == f"file://{ROOT}/results/matrix/index.html\n"


def test_table_and_place_are_chosen(make):
    _, calls, _ = make("CONFIGS=a.yaml", "OPTIONS=--measures RR@10 R@50", "OUTPUT=/x/y")
    table = "cort.matrix --experiments a.yaml --output-folder /x/y --measures RR@10 R@50"
    assert calls == [CHECKS[0], BUILDS[0], table]


def test_the_shipped_experiments_are_the_default(make):
    _, calls, _ = make()
    shipped = {f"config/matrix/{path.name}" for path in (ROOT / "config" / "matrix").glob("*.yaml")}
    assert set(calls[-1].split()[2:-2]) == shipped - {"config/matrix/base.yaml"}


@pytest.mark.parametrize(
    ("fails", "calls"),
    [
        ("plan --configfile a", CHECKS),
        ("build --configfile a", [*CHECKS, BUILDS[0]]),
        ("cort", [*CHECKS, *BUILDS, TABLE]),
    ],
)
def test_a_failure_ends_it(make, fails, calls):
    assert make(TWO, fails=fails) == (2, calls, "")
