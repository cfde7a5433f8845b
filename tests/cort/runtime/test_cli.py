"""A stage's command line.

Usage: python -m cort.example --number 1
"""

import logging
import os
import signal
import threading
from pathlib import Path
from typing import Annotated

import pytest

from cort import __version__
from cort.runtime import cli
from cort.runtime.errors import input_error, shorten
from cort.runtime.interruption import Interrupted
from cort.runtime.sections import AnyFile, Contents, CsvFile, FolderPath, JsonFile, Section, Several
from tests.support.errors import line_of

PROG = f"python -m {__name__}"
FOUND = input_error("run.trec", "5 fields", "6 fields", "fix\nthe   line", row=7)


class Options(Section):
    number: int = 1


def run(stage, *argv):
    return cli.main_of(Options, stage)(argv)


def raising(error):
    def stage(options):
        raise error

    return stage


def without_time(text):
    return [line.split(" ", 1)[1] for line in text.splitlines()]


def test_success_is_0_and_logs_what_was_done_in_words_for_a_shell(capsys, tmp_path):
    numbers, path = [], tmp_path / "logs" / "deep" / "a b.log"
    for number in "23":
        capsys.readouterr()
        assert run(lambda options: numbers.append(options.number), "--number", number, "--log", str(path)) == 0
    assert numbers == [2, 3]
    captured = capsys.readouterr()
    assert captured.out == ""
    first, last = without_time(captured.err)
    assert first == f"INFO cort {__version__}: {PROG} --number 3 --log '{path}'"
    assert last.startswith("INFO done in 0.0 s, peak memory ")
    # It replaces the old one.
    assert path.read_text() == captured.err


@pytest.mark.parametrize(
    ("error", "status", "lines"),
    [
        (FOUND, 1, ["ERROR run.trec: row 7: found 5 fields, expected 6 fields; fix the line"]),
        (FileNotFoundError(2, "No such file or directory", "a.txt"), 1, ["ERROR a.txt: No such file or directory"]),
        (OSError("the disk is on fire"), 1, [f"ERROR {PROG}: the disk is on fire"]),
        (KeyboardInterrupt(), 130, [f"ERROR {PROG} interrupted; call it again"]),
        (Interrupted("it ended", 75), 75, ["WARNING it ended"]),
        (Interrupted("", 75), 75, []),
    ],
)
def test_each_error_has_its_status_and_one_line_without_traceback(capsys, tmp_path, error, status, lines):
    assert run(raising(error), "--log", str(tmp_path / "a.log")) == status
    err = capsys.readouterr().err
    assert without_time(err)[1:] == lines
    assert (tmp_path / "a.log").read_text() == err


@pytest.mark.parametrize("error", [ValueError("surprise"), KeyError("surprise")])
def test_a_bug_is_2_with_its_traceback_also_in_the_log(capsys, tmp_path, error):
    assert run(raising(error), "--log", str(tmp_path / "a.log")) == 2
    log = (tmp_path / "a.log").read_text()
    assert capsys.readouterr().err == log
    said = (f"ERROR {PROG} failed; this is a bug", "Traceback (most recent call last):", "in stage", "surprise")
    assert all(words in log for words in said)


def test_a_log_that_cannot_be_written_is_not_a_bug(tmp_path, capsys):
    # As in a new process; otherwise the handlers of another test write to what it has closed.
    logging.basicConfig(handlers=[], force=True)
    assert run(lambda options: None, "--log", str(tmp_path)) == 1
    assert capsys.readouterr().err == f"{tmp_path}: Is a directory\n"


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--numbre", "2"], 2, ["unrecognized arguments: --numbre 2"]),
        (["--help"], 0, ["A stage's command line.\n\nUsage: python -m cort.example --number 1", "--log FILE"]),
    ],
)
def test_wrong_options_and_the_help_with_the_docstring_come_before_anything_runs(capsys, words, status, said):
    with pytest.raises(SystemExit) as end:
        run(raising(FOUND), *words)
    assert end.value.code == status
    output = "".join(capsys.readouterr())
    assert all(text in output for text in said)


def test_a_stage_outside_the_main_thread_installs_no_signal_handlers():
    before, statuses = signal.getsignal(signal.SIGTERM), []
    thread = threading.Thread(target=lambda: statuses.append(run(lambda options: None)))
    thread.start()
    thread.join()
    assert statuses == [0]
    assert signal.getsignal(signal.SIGTERM) == before


def test_quoted_text_is_short_and_printable():
    assert shorten("a\nb\x00") == r"'a\nb\x00'"
    assert shorten("x" * 60) == "'" + "x" * 60 + "'"
    assert shorten("x" * 61) == "'" + "x" * 59 + "…'"


class Places(Section):
    source: AnyFile = "source.txt"
    named: Several[Annotated[str, Contents("NAME=FILE")]] = ()
    output: JsonFile
    output_table: CsvFile | None = None
    output_folder: FolderPath | None = None


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("source.txt").write_text("x")
    Path("folder").mkdir()
    os.mkfifo("pipe")
    Path("loop").symlink_to("loop")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"source": "pipe"}, "pipe: found a pipe or device"),
        ({"named": ("a=/dev/zero",)}, "/dev/zero: found a pipe or device"),
        ({"output": "/dev/null"}, "/dev/null: found a pipe or device"),
        ({"output": "folder"}, "folder: found a folder"),
        ({"output_folder": "source.txt"}, "source.txt: found a file"),
        ({"output": "source.txt"}, "source.txt: found an input or another output"),
        ({"output": "./new", "output_table": "new"}, "new: found an input or another output"),
    ],
)
def test_a_wrong_place_is_refused(changes, complaint):
    assert line_of(cli.check_places, Places(**{"output": "new/a.json"} | changes)).startswith(complaint)


@pytest.mark.usefixtures("folder")
def test_new_and_existing_outputs_are_accepted():
    Path("old.csv").touch()
    named = ("a=source.txt", "no file", "loop")
    cli.check_places(Places(named=named, output="a/b/c.json", output_table="old.csv", output_folder="folder"))
