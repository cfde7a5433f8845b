import logging
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cort import __version__
from cort.system import cli
from cort.system.errors import InputError, input_error, shorten

ROOT = Path(__file__).parents[3]
FOUND = input_error("run.trec", "5 fields", "6 fields", "fix\nthe   line", row=7)


def parser():
    parser = cli.make_parser("cort.example", "Do something.\n\nUsage: python -m cort.example --number 1")
    parser.add_argument("--number", type=int, default=1)
    return parser


def run(stage, *argv):
    return cli.run(parser(), stage, list(argv))


def raising(error):
    def stage(args):
        raise error

    return stage


def without_time(text):
    return [line.split(" ", 1)[1] for line in text.splitlines()]


def test_success_is_0_and_logs_what_was_done(capsys, tmp_path):
    seen = []
    assert run(lambda args: seen.append(args.number), "--number", "3", "--log", str(tmp_path / "a.log")) == 0
    assert seen == [3]
    captured = capsys.readouterr()
    assert captured.out == ""
    first, last = without_time(captured.err)
    assert first == f"INFO cort {__version__}: python -m cort.example --number 3 --log {tmp_path}/a.log"
    assert last.startswith("INFO done in 0.0 s, peak memory ")
    assert (tmp_path / "a.log").read_text() == captured.err


def test_bad_input_is_1_and_one_line_without_traceback(capsys, tmp_path):
    assert run(raising(FOUND), "--log", str(tmp_path / "a.log")) == 1
    err = capsys.readouterr().err
    assert without_time(err)[1:] == ["ERROR run.trec: row 7: found 5 fields, expected 6 fields; fix the line"]
    assert (tmp_path / "a.log").read_text() == err


def test_a_missing_file_is_1_and_named(capsys, tmp_path):
    assert run(lambda args: (tmp_path / "none.txt").read_text()) == 1
    assert without_time(capsys.readouterr().err)[1:] == [f"ERROR {tmp_path}/none.txt: No such file or directory"]


def test_an_error_of_the_system_without_file_name(capsys):
    assert run(raising(OSError("the disk is on fire"))) == 1
    assert without_time(capsys.readouterr().err)[1:] == ["ERROR python -m cort.example: the disk is on fire"]


@pytest.mark.parametrize("error", [ValueError("surprise"), RuntimeError("surprise"), KeyError("surprise")])
def test_a_defect_is_2_with_its_traceback_also_in_the_log(capsys, tmp_path, error):
    assert run(raising(error), "--log", str(tmp_path / "a.log")) == 2
    log = (tmp_path / "a.log").read_text()
    assert "ERROR python -m cort.example failed; this is a defect of the program, not of its input" in log
    assert "Traceback (most recent call last):" in log
    assert "in stage" in log
    assert "surprise" in log
    assert capsys.readouterr().err == log


def test_an_interrupted_stage_says_so_in_one_line(capsys):
    assert run(raising(KeyboardInterrupt())) == 128 + signal.SIGINT
    assert without_time(capsys.readouterr().err)[1:] == ["ERROR python -m cort.example interrupted; call it again"]


def test_the_log_is_written_anew_and_its_folder_made(tmp_path):
    path = tmp_path / "logs" / "deep" / "a.log"
    for number in "12":
        assert run(lambda args: None, "--number", number, "--log", str(path)) == 0
    assert path.read_text().count("INFO cort") == 1
    assert "--number 2" in path.read_text()


def test_a_log_that_cannot_be_written_is_no_defect(tmp_path, capsys):
    assert run(lambda args: None, "--log", str(tmp_path)) == 1
    assert "Traceback" not in capsys.readouterr().err


def test_arguments_with_spaces_can_be_pasted_back(capsys):
    assert cli.run(parser(), lambda args: None, ["--log", "/dev/null", "--number=1"]) == 0
    cli.make_parser("cort.example", None)
    assert run(lambda args: logging.getLogger("x").info("inside"), "--number", " 4") == 0
    assert "--number ' 4'" in capsys.readouterr().err


def test_wrong_options_are_2_before_anything_runs(capsys):
    with pytest.raises(SystemExit) as status:
        run(raising(FOUND), "--number", "x")
    assert status.value.code == 2
    assert "argument --number: invalid int value: 'x'" in capsys.readouterr().err


def test_help_shows_the_docstring(capsys):
    with pytest.raises(SystemExit) as status:
        run(raising(FOUND), "--help")
    assert status.value.code == 0
    out = capsys.readouterr().out
    assert "Do something.\n\nUsage: python -m cort.example --number 1" in out
    assert "--log FILE" in out


def test_peak_memory_grows_with_what_is_held_and_stays():
    code = """
from cort.system.cli import peak_memory_mb
before = peak_memory_mb()
held = bytes(b"x") * (before + 100 << 20)
del held
print(before, peak_memory_mb())
"""
    # Through a shell of its own: a process starts with the peak of the one it was split off from.
    command = ["sh", "-c", '"$0" -c "$1"; exit $?', sys.executable, code]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    before, after = map(int, result.stdout.split())
    assert before < 100
    assert before + 100 <= after <= before + 200


def test_a_terminated_stage_cleans_up(tmp_path):
    code = """
import sys, time
from cort.system import cli
from cort.system.files import atomic_file

def stage(args):
    with atomic_file(sys.argv[1]) as temporary:
        temporary.write_text("half")
        print("ready", flush=True)
        time.sleep(60)

sys.exit(cli.run(cli.make_parser("cort.example", ""), stage, []))
"""
    command = [sys.executable, "-c", code, str(tmp_path / "out.txt")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        assert len(list(tmp_path.iterdir())) == 1
        process.terminate()
        assert process.wait(timeout=30) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


def test_input_error_is_one_line():
    assert isinstance(FOUND, InputError)
    assert str(FOUND) == "run.trec: row 7: found 5 fields, expected 6 fields; fix the line"
    assert str(input_error("x", "a", "b", "c")) == "x: found a, expected b; c"


def test_quoted_text_is_short_and_printable():
    assert shorten("a\nb\x00") == r"'a\nb\x00'"
    assert shorten("x" * 60) == "'" + "x" * 60 + "'"
    assert shorten("x" * 61) == "'" + "x" * 59 + "…'"
