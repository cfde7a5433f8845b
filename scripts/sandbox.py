"""Copies of the project for builds in benchmarks, drills and tests."""

import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from cort.system.checksums import checksum

ROOT = Path(__file__).parents[1]
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


def executable(program: str) -> str:
    """Path of a program in this Python's environment."""
    return str(Path(sys.executable).parent / program)


def snakemake(folder: Path, *arguments: object, program: str = "snakemake") -> tuple[int, str]:
    """Call snakemake (or snakefmt) of this environment; return its status and output."""
    command = [executable(program), *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def timed(folder: Path, *arguments: object) -> tuple[float, str]:
    """Call snakemake; return seconds and output, or end this program with the output if it fails."""
    started = time.perf_counter()
    status, output = snakemake(folder, *arguments)
    if status:
        sys.exit(output)
    return time.perf_counter() - started, output


def digests(folder: Path, *patterns: str) -> dict[str, str]:
    """SHA-256 of the files that match any pattern, by their path in `folder`."""
    paths = sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})
    return {os.fspath(path.relative_to(folder)): checksum(path) for path in paths}


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; files that vanish meanwhile are skipped."""
    inside = [Path(folder, name) for folder, _, names in os.walk(path) for name in names]
    total = 0
    for file in [path] if path.is_file() else inside:
        with suppress(OSError):
            total += file.lstat().st_size
    return total


def mark_as_built(folder: Path, configfile: Path, *options: object) -> int:
    """Replace all results by empty files that Snakemake records as up to date; return the number of jobs."""
    call = ("--configfile", configfile, *options)
    _, summary = timed(folder, "--summary", *call)
    for line in summary.splitlines():
        if line.startswith("results/"):
            result = folder / line.split("\t")[0]
            result.parent.mkdir(parents=True, exist_ok=True)
            result.touch()
    _, output = timed(folder, "--cores", 1, "--touch", "--forceall", *call)
    return int(re.findall(r" (\d+) of \1 done, ", output, re.MULTILINE)[-1])
