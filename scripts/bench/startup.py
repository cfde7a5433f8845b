"""Measure what starts cost: imports, a search that answers one query, and the share of imports in the jobs of a build.

With --other, a folder with another version of the project, both take turns, and ratios are this version's to the other.
The build of --build is one in a temporary copy, of a config of the project or of the tests' tiny experiment.

Usage: python -m scripts.bench.startup [--rounds 3] [--other FOLDER] [--build config/pydocs.yaml | tiny/tiny.yaml]
           [--manifest results/pydocs/manifest.json --systems bm25 cort]
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from scripts.bench import import_clock
from scripts.bench.common import Cost, Row, in_turns, parse, print_table, ratios
from scripts.sandbox import ROOT, copy_with_tiny, snakemake

#: programs that import what jobs of a kind do
PROGRAMS = {
    "Python alone": "pass",
    "a stage that reads tables (`split`)": "import cort.split, pyarrow; pyarrow.array(['a'])",
    "a stage that multiplies (`retrieve`)": "import cort.retrieve, cort.retrieval.exact",
    "a stage with a model (`encode`)": "import cort.encode, cort.models.encoder, transformers; transformers.BertModel",
}


def call(folder: Path, *words: object) -> tuple[Cost, float]:
    """Run Python in a version of the project; what it cost, and the seconds until its first line of output."""
    started = time.perf_counter()
    command = [sys.executable, *map(str, words)]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=quiet) as process:
        said = cast(IO[bytes], process.stdout)
        said.readline()
        first = time.perf_counter() - started
        said.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)}: status {process.returncode}")
    return Cost(time.perf_counter() - started, used.ru_utime + used.ru_stime), first


def measure_imports(folders: dict[str, Path], rounds: int) -> Iterator[Row]:
    """Yield medians of CPU seconds, and the ratio to the other version."""
    for name, program in PROGRAMS.items():
        found = in_turns(rounds, {side: partial(call, folder, "-c", program) for side, folder in folders.items()})
        cpu = {side: [cost.cpu for cost, _ in costs] for side, costs in found.items()}
        yield name, _beside(cpu)


def measure_search(folders: dict[str, Path], manifest: Path, systems: list[str], rounds: int) -> Iterator[Row]:
    """Yield medians of a search for one query: seconds until the first answer, until all, CPU seconds of all."""
    options = ["-m", "cort.search", "--manifest", manifest.resolve(), "--query", "list of files"]
    for names in dict.fromkeys([*((name,) for name in systems), tuple(systems)]):
        sides = {side: partial(call, folder, *options, "--systems", *names) for side, folder in folders.items()}
        found = in_turns(rounds, sides, warm_up=True)
        for what, values in {
            "seconds until the first answer": {side: [one for _, one in some] for side, some in found.items()},
            "seconds until all": {side: [one.seconds for one, _ in some] for side, some in found.items()},
            "CPU seconds": {side: [one.cpu for one, _ in some] for side, some in found.items()},
        }.items():
            yield f"search, {', '.join(names)}: {what}", _beside(values)


def _beside(values: dict[str, list[float]]) -> str:
    medians = " / ".join(f"{statistics.median(some):.2f}" for some in values.values())
    first, *others = values.values()
    return " ".join([medians, *(f"ratio {ratios(first, other)}" for other in others)])


def clocked_build(folder: Path, *options: object) -> list[dict[str, Any]]:
    """Build an experiment; a record of each Python process (see `import_clock`)."""
    with tempfile.TemporaryDirectory() as clock:
        shutil.copyfile(import_clock.__file__, Path(clock) / "sitecustomize.py")
        record = Path(clock) / "record"
        before = os.environ.copy()
        os.environ |= {"PYTHONPATH": os.pathsep.join([clock, str(folder)]), import_clock.FILE: str(record)}
        try:
            status, said = snakemake(folder, *options)
        finally:
            os.environ.clear()
            os.environ.update(before)
        if status:
            sys.exit(said)
        return [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]


def shares(records: list[dict[str, Any]]) -> Iterator[tuple[object, ...]]:
    """Rows of stages: jobs, CPU seconds, of which on imports; the last one is of all."""
    stages = {one["pid"]: stage for one in records if (stage := stage_of(one["command"]))}
    sums: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for one in records:
        # A process that another one of the same job started is in the time of that one.
        stage = stages.get(one["pid"]) or stages.get(one["parent"])
        for name in (stage, "all") if stage else ():
            whole = one["parent"] not in stages
            for place, value in enumerate((whole, one["cpu"] * whole, one["imports"])):
                sums[name][place] += value
    for name, (jobs, cpu, imports) in sorted(sums.items(), key=lambda found: found[1][2]):
        yield name, f"{jobs:.0f}", f"{cpu:.1f}", f"{imports:.1f}", f"{imports / cpu:.2f}"


def stage_of(command: list[str]) -> str | None:
    """Name the stage that a command of Python runs."""
    package, _, name = (command[command.index("-m") + 1] if "-m" in command[:-1] else "").partition(".")
    return name if package == "cort" and name.isidentifier() else None


def main() -> None:
    """Measure and print."""
    args = parse(__doc__, rounds=3, other=None, manifest=None, systems=["bm25", "cort"], build="")
    folders = {"this": ROOT} | ({"other": args.other.resolve()} if args.other else {})
    rows = list(measure_imports(folders, args.rounds))
    if args.manifest:
        rows += measure_search(folders, args.manifest, args.systems, args.rounds)
    print_table(rows, ("", " / ".join(folders)))
    if args.build:
        with tempfile.TemporaryDirectory() as name:
            folder = copy_with_tiny(Path(name))
            records = clocked_build(folder, "--cores", 2, "--configfile", args.build)
        print_table(shares(records), ("stage", "jobs", "CPU s", "on imports", "share"))


if __name__ == "__main__":
    main()
