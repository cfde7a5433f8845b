"""Where options say that files are: pipes, devices, and outputs where something else is, are refused first."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from cort.system.cli import check_places
from cort.system.errors import InputError
from cort.system.options import optional, required


@dataclass(frozen=True, kw_only=True)
class Options:
    source: str = "source.txt"
    named: tuple[str, ...] = ()
    output: str = required("JSON")
    output_table: str | None = optional(None, metavar="CSV")
    output_folder: str | None = optional(None, metavar="FOLDER")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("source.txt").write_text("x")
    Path("folder").mkdir()
    os.mkfifo("pipe")
    Path("loop").symlink_to("loop")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"source": "pipe"}, "pipe: found a pipe or device, expected a file; write what it gives"),
        ({"named": ("a=/dev/zero",)}, "/dev/zero: found a pipe or device"),
        ({"output": "/dev/null"}, "/dev/null: found a pipe or device"),
        ({"output": "folder"}, "folder: found a folder, expected a file, to be written"),
        ({"output": ""}, "--output: found nothing, expected a file; name one"),
        ({"output_folder": "source.txt"}, "source.txt: found a file, expected a folder, to be written"),
        ({"output": "source.txt"}, "source.txt: found an input or another output, expected a place of its own"),
        ({"output": "./new", "output_table": "new"}, "new: found an input or another output"),
        ({"output": "source.txt/deep/new"}, "source.txt/deep/new: found no folder at 'source.txt', expected one"),
        ({"output": "loop/new"}, "loop/new: found no folder at 'loop'"),
    ],
)
def test_a_wrong_place_is_refused(changes, complaint):
    with pytest.raises(InputError) as error:
        check_places(Options(**{"output": "new/a.json"} | changes))
    assert str(error.value).startswith(complaint)


def test_new_and_old_outputs_are_taken(tmp_path):
    Path("old.csv").touch()
    named = ("a=source.txt", "no file", "loop")
    check_places(Options(named=named, output="a/b/c.json", output_table="old.csv", output_folder="folder"))
