"""The command that searches: JSON lines, the prompt in a terminal, one-line errors."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cort import search
from cort.online.options import folder_of
from cort.online.searcher import LiveAnswer, Result
from cort.runtime.errors import InputError
from cort.search import show
from tests.support.forking import succeed
from tests.support.online import Parts, results_with, write_results
from tests.support.processes import Python

ROOT = Path(__file__).parents[2]
PATIENCE = 180  # seconds


def answer(system, *scores):
    results = [Result(f"d{rank}", score, rank) for rank, score in enumerate(scores, start=1)]
    return LiveAnswer(system, results, {"bm25": 1.25, "total": 1.26})


def test_an_answer_is_as_wide_as_the_terminal():
    """Wide characters take two columns, and none moves the cursor."""
    long = "a text that is much longer than its line can be, by far"
    shown = show(answer("bm25", 2.5, 1.25, 1), [long, "漢字\t\x1b[2J e\N{COMBINING ACUTE ACCENT}", "漢" * 30], 44)
    assert shown.split("\n") == [
        "bm25: 1.3 ms (bm25 1.2)",
        "   1  2.5         a text that is much longer",
        "   2  1.25        漢字  [2J e\N{COMBINING ACUTE ACCENT}",
        "   3  1           " + "漢" * 13,
        "",
    ]
    assert show(answer("bm25"), [], 44).split("\n")[1] == "(no results)"


# Input.


def test_only_the_dataset_of_an_experiment_is_read(tmp_path):
    (tmp_path / "a.yaml").write_text("dataset: toy\nsystems: [what, ever]\n")
    assert folder_of(tmp_path / "a.yaml") == Path("results/toy")


@pytest.mark.parametrize("text", ["", "a: [", "- list", "title: only", "\x00", "[" * 2_000])
def test_another_file_is_not_an_experiment(tmp_path, text):
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(InputError, match="expected the file of an experiment"):
        folder_of(tmp_path / "a.yaml")


def typed(monkeypatch, *lines):
    left = iter(lines)

    def read(_):
        line = next(left, EOFError)
        if isinstance(line, type):
            raise line
        return line

    monkeypatch.setattr("builtins.input", read)


@pytest.mark.parametrize("end", [EOFError, KeyboardInterrupt])
def test_an_error_of_one_query_does_not_end_the_prompt(tmp_path, monkeypatch, capsys, caplog, end):
    typed(monkeypatch, "", "\udcff wrong", "right", end)
    searcher, closed = Parts().searcher(results_with(tmp_path), ["dense"]), []
    monkeypatch.setattr(searcher, "close", lambda: closed.append(True))
    search.interact(lambda: searcher, 3)
    assert any("query: found '\\udcff' in it" in message for message in caplog.messages)
    assert capsys.readouterr().out.count("   3  -2          e2") == 1
    assert closed


def refuse():
    raise InputError("model: found 0 bytes")


@pytest.mark.parametrize("lines", [[], ["a query"]])
def test_an_error_while_opening_ends_the_prompt(monkeypatch, lines):
    typed(monkeypatch, *lines)
    with pytest.raises(InputError, match="found 0 bytes"):
        search.interact(refuse, 10)


def test_bm25_answers_before_models_are_opened(tmp_path, capsys):
    searcher = Parts().searcher(results_with(tmp_path), ["bm25", "dense"], refuse)
    with pytest.raises(InputError, match="model: found 0 bytes"):
        search.print_lines(searcher, ["a query"], 3, "--query")
    [line] = map(json.loads, capsys.readouterr().out.splitlines())
    assert (line["system"], len(line["results"])) == ("bm25", 3)
    searcher.close()


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ({"depth": 9999999999}, "--depth: found 9999999999, expected at most "),
        ({"experiment": "y"}, "--experiment, --results: found both"),
        ({"systems": "nope", "query": "a"}, "--systems: found 'nope', expected one of bm25, dense, both, reranked"),
        ({"results": "x"}, "x/experiment.yaml: found no such file"),
    ],
)
def test_wrong_options_are_refused(tmp_path, refused, named, words):
    write_results(tmp_path)
    assert words in refused("search", **{"results": tmp_path, **named})


# The tiny experiment.


def run(tree, *options, **changes):
    command = [sys.executable, "-m", "cort.search", *options]
    return subprocess.run(command, cwd=tree, capture_output=True, timeout=PATIENCE, check=False, **changes)


def answers_of(done):
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


@pytest.mark.slow
def test_a_query_is_answered_in_json_lines(built):
    words = ("--experiment", "tiny/tiny.yaml", "--query", "neriga balune", "--depth", 4)
    output = succeed(built, "cort.search", *words)
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert [line["system"] for line in lines] == ["bm25", "cort", "cort+bm25"]
    passages = dict(row.split("\t") for row in (built / "tiny" / "data" / "collection.tsv").read_text().splitlines())
    for line in lines:
        assert line.keys() == {"query", "system", "results", "milliseconds"}
        assert (line["query"], [result["rank"] for result in line["results"]]) == ("neriga balune", [1, 2, 3, 4])
        assert all(result.keys() == {"doc_id", "score", "rank", "text"} for result in line["results"])
        assert all(result["text"] == passages[result["doc_id"]] for result in line["results"])
    assert lines[2]["milliseconds"].keys() == {"bm25", "tokenize", "encode", "search", "merge", "total"}


# A million letters, invalid UTF-8, half a character, control characters, very many words, Lucene's own syntax.
ODD = {
    "empty": b"",
    "blank": b" \t ",
    "stop words": b"the of",
    "nul": b"a\0neriga",
    "control": b"\x1b[2J\x07 neriga",
    "bytes": b"\xff\xfe neriga",
    "surrogate": b"\xed\xa0\x80",
    "long": b"word " * 100_000,
    "different": b" ".join(b"w%d" % number for number in range(100_000)),
    "letters": b"a" * 1_000_000,
    "syntax": b'"} OR * : ~ \\ ^ [ AND (((',
    "invisible": "\u200b\u2028\u202e".encode(),
    "emoji": "\U0001f642\u200d".encode(),
    "last": b"neriga",
}
WRONG = {"empty", "blank", "bytes", "surrogate"}


@pytest.mark.slow
def test_each_line_is_answered_or_gets_its_error(built):
    options = ["--results", "results/tiny", "--depth", "2", "--systems", "bm25", "cort", "cort+bm25-cross"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = run(built, *options, input=b"\n".join(ODD.values()), env=environment)
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    assert b"standard input: row 1: found 4 that cannot be answered (query: found no word, " in done.stderr
    answers = answers_of(done)
    assert len(answers) == 3 * len(ODD)
    assert answers[0] == {"query": "", "system": "bm25", "error": "query: found no word, expected a query; write one"}
    assert {list(ODD)[place // 3] for place, answer in enumerate(answers) if "error" in answer} == WRONG
    assert [answer["query"] for answer in answers[6:9]] == ["the of"] * 3
    assert all(answer["results"] for answer in answers[-3:])
    assert set(re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e]", done.stdout.decode())) == set()


@pytest.mark.slow
def test_a_query_on_the_command_line_that_is_not_text_gets_its_error(built):
    done = run(built, "--results", "results/tiny", "--systems", "bm25", "--query", b"\xff neriga")
    assert (done.returncode, b"Traceback" in done.stderr) == (1, False)
    assert answers_of(done)[0]["error"].startswith("query: found '\\udcff' in it, no character")
    assert b"--query: row 1: found 1 that cannot be answered" in done.stderr


def run_and_list_imports(tree, *options, **more):
    """The lines of JSON, and the names of the modules that were imported."""
    done = run(tree, *options, env=os.environ | {"PYTHONPROFILEIMPORTTIME": "1"}, **more)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.decode().splitlines()
    return answers_of(done), {line.rpartition("|")[2].strip() for line in lines if "import time:" in line}


@pytest.mark.slow
def test_bm25_alone_imports_no_torch(built):
    options = ["--experiment", "tiny/tiny.yaml", "--systems", "bm25"]
    lines, imported = run_and_list_imports(built, *options, input=b"balune\nbaluko\n")
    assert [line["query"] for line in lines] == ["balune", "baluko"]
    assert "pyarrow" in imported
    # A blocked import is listed, too: pyarrow would import pandas where it is installed.
    assert not imported & {"torch", "transformers", "tokenizers", "pandas.core", "scipy"}


class Terminal:
    """The command in a pseudo-terminal of 100 columns."""

    def __init__(self, tree):
        self.master, slave = pty.openpty()
        options = {"environment": {"COLUMNS": "100", "TERM": "dumb"}, "start_new_session": True}
        options |= dict.fromkeys(("stdin", "stdout", "stderr"), slave)
        self.process = Python("-m", "cort.search", "--experiment", "tiny/tiny.yaml", cwd=tree, **options)
        os.close(slave)
        self.output = ""

    def read_until(self, words, times=1):
        deadline = time.monotonic() + PATIENCE
        while self.output.count(words) < times:
            assert time.monotonic() < deadline, self.output
            if select.select([self.master], [], [], 1)[0]:
                try:
                    self.output += os.read(self.master, 65_536).decode(errors="replace")
                except OSError:
                    break
        return self.output

    def write(self, text):
        os.write(self.master, text.encode())

    def end(self):
        self.read_until("peak memory")
        status = self.process.wait(PATIENCE)
        os.close(self.master)
        return status


@pytest.mark.slow
def test_the_prompt_answers_until_it_ends(built):
    terminal = Terminal(built)
    for number, line in enumerate(["\n", "neriga balune\n", "\x04"], start=1):
        output = terminal.read_until(search.PROMPT, number)
        terminal.write(line)
    lines = output.splitlines()
    assert [line.partition(":")[0] for line in lines if " ms (" in line] == ["bm25", "cort", "cort+bm25"]
    first = [line for line in lines if line.startswith("   1  ")]
    assert len(first) == 3
    assert all(len(line) <= 100 and re.search("[A-Z]", line) for line in first)
    assert terminal.end() == 0
    assert "Traceback" not in terminal.output
    assert " ERROR " not in terminal.output
