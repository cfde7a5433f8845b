"""Copies of the project, with the tests' tiny experiment."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from cort.runtime.checksums import checksum
from tests.support.common import ROOT

#: Config of the tiny experiment in a copy made by `copy_with_tiny`.
TINY = "tiny/tiny.yaml"


def copy_tree(target: Path) -> Path:
    """Copy the files that git does not ignore, without results, caches and environment; return `target`."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


def copy_with_tiny(target: Path) -> Path:
    """Copy the project, and write the tiny experiment into the copy's folder `tiny`, with the same bytes each time."""
    command = [sys.executable, "tests/tiny/generate.py", Path(TINY).parent.name]
    subprocess.run(command, cwd=copy_tree(target), check=True)
    return target


def hurry_latencies(tree: Path) -> None:
    """Have latencies measured in a copy without the thousands of searches after which those of Lucene are steady."""
    stage = tree / "cort" / "latency.py"
    old = "bm25_warm_up: int = Field(2000, ge=0)"
    text = stage.read_text("utf-8")
    assert old in text
    stage.write_text(text.replace(old, "bm25_warm_up: int = Field(20, ge=0)"), "utf-8")


def executable(program: str) -> str:
    """Path of a program in this Python's environment."""
    return str(Path(sys.executable).parent / program)


def digests(folder: Path, *patterns: str) -> dict[str, str]:
    """SHA-256 of the files that match any pattern, by their path in `folder`."""
    paths = sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})
    return {os.fspath(path.relative_to(folder)): checksum(path) for path in paths}
