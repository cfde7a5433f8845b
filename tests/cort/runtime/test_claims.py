"""Two stages that write one place: which file is there in the end, and what is said."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cort.runtime.claims import CLAIMED, claiming
from cort.runtime.errors import InputError
from cort.runtime.files import write_text
from scripts.clean import clean
from tests.support.processes import Python

# A stage that says when it has started and when it has written, and goes on when it gets a line.
STAGE = '''
"""Writes a text."""

import sys
from cort.runtime import cli, files
from cort.runtime.sections import AnyFile, FolderPath, Maybe, Section

class Options(Section):
    text: str
    output: Maybe[AnyFile] = None
    output_folder: Maybe[FolderPath] = None
    output_first: Maybe[AnyFile] = None

def wait(said):
    print(said, flush=True)
    sys.stdin.readline()

def stage(options):
    wait("started")
    for path in filter(None, (options.output_first, options.output)):
        files.write_text(path, options.text)
    if options.output_folder:
        files.write_text(options.output_folder + "/tables/all.csv", options.text)
        with files.atomic_folder(options.output_folder + "/best") as folder:
            (folder / "weights").write_text(options.text)
    wait("written")

if __name__ == "__main__":
    sys.exit(cli.main_of(Options, stage, "python -m cort.text")())
'''


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Start a stage in a process of its own, in a folder for all files; return it when it has started."""
    (folder := tmp_path / "results").mkdir()
    (tmp_path / "stage.py").write_text(STAGE, "utf-8")
    monkeypatch.delenv(CLAIMED, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    started = []

    def start(*words, text):
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        process = Python(tmp_path / "stage.py", "--text", text, *words, cwd=folder, **pipes)
        started.append(process)
        assert process.stdout.readline() == "started\n"
        return process

    yield start
    for process in started:
        with process:
            pass


def finish(process):
    """Let a stage go on to its end: exit status, and its errors."""
    _, errors = process.communicate("\n\n", timeout=60)
    return process.returncode, re.findall(r"^\S+ ERROR (.*)", errors, re.MULTILINE)


def tree(folder):
    """All files, with the text in those that are not claims."""
    return {
        str(path.relative_to(folder)): None if path.suffix == ".claim" else path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


FILE, FOLDER = ("--output", "deep/run.trec"), ("--output-folder", "report/")
MADE = {FILE: ["deep/run.trec"], FOLDER: ["report/tables/all.csv", "report/best/weights"]}
PLACE = {FILE: "deep/run.trec", FOLDER: "report/tables/all.csv"}


@pytest.mark.parametrize("words", [FILE, FOLDER])
@pytest.mark.parametrize("newer_is_done", [True, False])
def test_an_older_stage_overwrites_nothing(start, tmp_path, words, newer_is_done):
    older, newer = start(*words, text="depth 50"), start(*words, text="depth 12")
    me = f"process {older.pid} on {socket.gethostname()}"
    found = f"the claim of {me.replace(str(older.pid), str(newer.pid))}"
    if newer_is_done:
        found = "no claim any more"
        assert finish(newer) == (0, [])
    line = f"{PLACE[words]}: found {found}, expected that of this stage, {me}; "
    line += "a stage that started later writes it, so nothing was overwritten"
    assert finish(older) == (1, [line])
    if not newer_is_done:
        assert finish(newer) == (0, [])
    assert tree(tmp_path / "results") == dict.fromkeys(MADE[words], "depth 12")


def test_a_newer_stage_replaces_what_an_older_one_wrote_meanwhile(start, tmp_path):
    older, newer = (start("--output", "same.txt", "--output-first", f"{text}.txt", text=text) for text in ("a", "b"))
    assert finish(older)[0] == 1
    assert finish(newer) == (0, [])
    assert tree(tmp_path / "results") == {"a.txt": "a", "b.txt": "b", "same.txt": "b"}


def test_a_claim_of_a_killed_stage_harms_nobody_and_goes(start, tmp_path, monkeypatch):
    start(*FILE, text="old").kill()
    monkeypatch.chdir(tmp_path)
    results = tmp_path / "results"
    assert tree(results) == {"deep/.run.trec.claim": None}
    assert finish(start(*FILE, text="new")) == (0, [])
    assert tree(results) == {"deep/run.trec": "new"}
    start(*FILE, text="killed").kill()
    (claim,) = results.glob("*/.*")
    size = claim.stat().st_size
    assert list(clean(Path())) == [(claim.relative_to(tmp_path), size)]
    assert tree(results) == {"deep/run.trec": "new"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stage_that_is_ended_takes_its_claims_and_empty_folders_along(start, tmp_path, number):
    start(*FILE, *FOLDER, text="ended").end(number)
    assert list((tmp_path / "results").iterdir()) == []


def test_processes_of_a_stage_share_its_claims(tmp_path, monkeypatch):
    monkeypatch.delenv(CLAIMED, raising=False)
    target = tmp_path / "run.trec"
    write = "import sys; from cort.runtime.files import write_text; write_text(sys.argv[1], 'new')"
    with claiming([str(target)]):
        (claim,) = tmp_path.iterdir()
        text = claim.read_text()
        # As one process of a training, which has the options of all.
        with claiming([str(target)]):
            assert claim.read_text() == text
        assert claim.exists()
        assert Python("-c", write, target).wait() == 0
        claim.write_text("another process 1 on n1")
        with pytest.raises(InputError, match=r"found the claim of process 1 on n1, expected"):
            write_text(target, "newer")
        assert subprocess.run([sys.executable, "-c", write, target], capture_output=True).returncode != 0
    assert (target.read_text(), claim.read_text()) == ("new", "another process 1 on n1")
    assert CLAIMED not in os.environ
