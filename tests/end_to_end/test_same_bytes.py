"""Stages of a build, called again by the command lines that it logged."""

import importlib
import shlex
import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def command_lines(tree):
    """Words of every stage's command line, its module first, from the first lines of the logs."""
    for path in sorted((tree / "logs").rglob("*.log")):
        _, found, words = path.read_text("utf-8").partition("\n")[0].partition(": python -m ")
        if found:
            yield shlex.split(words)


def test_the_same_bytes_come_out_of_every_fast_stage_again(built, tmp_path, monkeypatch):
    tree = shutil.copytree(built, tmp_path / "tree", symlinks=True)
    monkeypatch.chdir(tree)
    again = {"cort.fuse", "cort.rerank", "cort.evaluate", "cort.analyze", "cort.compare"}
    commands = {words[0]: words for words in command_lines(tree) if words[0] in again}
    assert commands.keys() == again
    for words in commands.values():
        output = Path(words[words.index("--output") + 1])
        before = output.read_bytes()
        assert importlib.import_module(words[0]).main(words[1:]) == 0
        assert output.read_bytes() == before
