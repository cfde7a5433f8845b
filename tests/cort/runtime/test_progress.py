import logging
import os
import re
import subprocess
import sys
from contextlib import suppress

import pytest

from cort.runtime import progress
from tests.support.common import ROOT


def test_items_pass_unchanged_and_lines_are_logged_without_a_terminal(monkeypatch, caplog):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: False, raising=False)
    with caplog.at_level(logging.INFO, logger="cort.runtime.progress"):
        assert list(progress.track("abc", 3, "letters")) == ["a", "b", "c"]
    said = [record.getMessage().split(",")[0] for record in caplog.records]
    assert said == [f"{number} of 3 letters" for number in (1, 2, 3)]


def test_a_bar_is_shown_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert list(progress.track(range(5), None, "numbers")) == [0, 1, 2, 3, 4]
    assert "numbers" in capsys.readouterr().err


@pytest.fixture
def clock(monkeypatch):
    """A clock that advances only on demand, and no terminal."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("sys.stderr.isatty", lambda: False, raising=False)

    def pass_by(seconds):
        now[0] += seconds

    return pass_by


def test_a_line_comes_at_least_every_ten_seconds_but_not_in_a_short_stage(clock, caplog):
    caplog.set_level(logging.INFO)
    with progress.Counter(100, "texts") as counter:
        for _ in range(8):
            clock(0.5)
            counter.advance(1)
        assert caplog.messages == []
        for _ in range(40):
            clock(0.5)
            counter.advance(1)
    assert caplog.messages[0] == "10 of 100 texts, 2.00 texts/s, 00:45 left"
    assert len(caplog.messages) == 4
    assert progress.SECONDS_BETWEEN_LINES <= 10


def test_items_finished_earlier_do_not_affect_the_rate(clock, caplog):
    caplog.set_level(logging.INFO)
    with progress.Counter(100, "texts") as counter:
        counter.reach(50)
        clock(10)
        counter.advance(10)
        counter.reach(60)
    assert caplog.messages == ["60 of 100 texts, 1.00 texts/s, 00:40 left"]


STAGE = """
import sys, time
from pathlib import Path
from cort.runtime import cli, progress
from cort.runtime.sections import Section

ON_TERMINAL, ELSEWHERE = {intervals}
progress.SECONDS_ON_TERMINAL, progress.SECONDS_ELSEWHERE, progress.SECONDS_BETWEEN_LINES = ON_TERMINAL, ELSEWHERE, 0

class Options(Section):
    output: str

def stage(options):
    for _ in progress.track(range(100), 100, "texts"):
        time.sleep(0.01)
    Path(options.output).touch()

sys.exit(cli.main_of(Options, stage)())
"""
RULES = """
rule all:
    input:
        "a", "b",


rule stage:
    output:
        "{{name}}",
    log:
        "logs/{{name}}.log",
    shell:
        "exec {python} stage.py --output {{output}} --log {{log}}"
"""


def build_showing(folder, intervals, terminal):
    """What Snakemake shows of two jobs at once, on a terminal or in a pipe."""
    (folder / "stage.py").write_text(STAGE.format(intervals=intervals), "utf-8")
    (folder / "Snakefile").write_text(RULES.format(python=sys.executable), "utf-8")
    reading, writing = os.openpty() if terminal else os.pipe()
    command = [sys.executable, "-m", "snakemake", "--cores", "2", "--quiet", "reason", "host"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), progress.CONSOLE: "WARNING"}
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=writing, stderr=writing) as process:
        os.close(writing)
        shown = b""
        # A terminal that all have closed is an error.
        with open(reading, "rb", 0) as stream, suppress(OSError):
            while read := stream.read(65536):
                shown += read
    assert process.returncode == 0, shown
    return shown.decode()


@pytest.mark.parametrize("terminal", [True, False])
def test_jobs_at_once_show_whole_lines_of_their_logs_now_and_then(tmp_path, terminal):
    output = build_showing(tmp_path, (0.1, 1000) if terminal else (1000, 0.1), terminal)
    lines = [line for line in output.splitlines() if "texts" in line]
    line = r"logs/([ab])\.log, 0 min: (\d\d:\d\d:\d\d INFO \d+ of 100 texts, \S+ texts/s, \d\d:\d\d left)"
    shown = [re.fullmatch(line, text) for text in lines]
    assert all(shown), lines
    assert {match[1] for match in shown} == {"a", "b"}
    assert 60 <= progress.SECONDS_ON_TERMINAL < progress.SECONDS_ELSEWHERE
    for match in shown:
        assert match[2] in (tmp_path / "logs" / f"{match[1]}.log").read_text("utf-8").splitlines()
