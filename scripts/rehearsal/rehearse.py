"""Drive every stage on a collection of MS MARCO's size and measure it: time, memory, disk, and how they grow.

For each size a collection with MS MARCO's counts and lengths is made up, and the stages work on it one after the
other. What is too much for a machine without GPU works on a part, which the table names; what neural stages would make
is drawn at random for the stages after them. Finished steps are remembered in the folder, so that a call goes on where
the last one was ended.

Usage: python -m scripts.rehearsal.rehearse --folder FOLDER --sizes 1/64 1/16 1/4 1 --report docs/scale.md
"""

import json
import logging
import math
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path

import psutil

from cort.system import cli
from cort.system.options import optional, required
from scripts.bench.common import markdown, put_between, run_stage, timed, words
from scripts.rehearsal.steps import steps
from scripts.rehearsal.synthetic import generate
from scripts.sandbox import ROOT, size_of

log = logging.getLogger(__name__)

SMALL = {"model_type": "bert", "hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4}
ARCHITECTURE = SMALL | {"intermediate_size": 256}


@dataclass(frozen=True)
class Measurement:
    """One stage at one size: seconds, bytes of memory (`own`: without file pages), disk meanwhile, outputs."""

    name: str
    size: str
    n: float
    unit: str
    seconds: float
    own: float = 0
    resident: float = 0
    disk: float = 0
    kept: float = 0
    note: str = ""


def measure(command: Sequence[str], folder: Path) -> dict[str, float]:
    """Run a command; seconds, peak memory without file pages and with them, and growth of the folder, in bytes."""
    before = size_of(folder)
    started = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT)
    own, resident, disk = 0.0, 0.0, 0.0
    while process.poll() is None:
        own, resident = map(max, (own, resident), memory_of(process.pid))
        disk = max(disk, size_of(folder) - before)
        time.sleep(0.2)
    seconds = time.perf_counter() - started
    if process.returncode:
        sys.exit(f"{shlex.join(command)}: status {process.returncode}")
    return {"seconds": seconds, "own": own, "resident": resident, "disk": max(disk, size_of(folder) - before)}


def memory_of(pid: int) -> tuple[float, float]:
    """Memory of a process and all below it, in bytes: its own, and with pages of files that the system may drop."""
    own, resident = 0.0, 0.0
    with suppress(psutil.Error):
        parent = psutil.Process(pid)
        for process in (parent, *parent.children(recursive=True)):
            memory = process.memory_info()
            own, resident = own + memory.rss - memory.shared, resident + memory.rss
    return own, resident


def rehearse(folder: Path, size: Fraction, model: Path, threads: int) -> None:
    """Go through the steps of one size that were not done before."""
    place = folder / str(size).replace("/", "-of-")
    done = {measured.name for measured in read_measurements(folder) if measured.size == str(size)}
    if "generate" not in done:
        seconds = timed(lambda: generate(place / "raw", size, 42)).seconds
        remember(folder, Measurement("generate", str(size), 0, "", seconds, disk=size_of(place)))
    for step in steps(place, size, model, threads):
        if step.name in done:
            continue
        if step.prepare:
            step.prepare()
        found = measure([sys.executable, "-m", f"cort.{step.stage}", *words(step.options)], place)
        found["kept"] = sum(map(size_of, step.outputs))
        remember(folder, Measurement(step.name, str(size), step.n, step.unit, **found, note=step.note))
        log.info("%s at %s: %.1f s, %.0f MB", step.name, size, found["seconds"], found["own"] / 1e6)


def read_measurements(folder: Path) -> list[Measurement]:
    """Read what was measured so far."""
    path = folder / "measurements.jsonl"
    return [Measurement(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def remember(folder: Path, measurement: Measurement) -> None:
    """Append a measurement."""
    with open(folder / "measurements.jsonl", "a", encoding="utf-8") as handle:
        handle.write(json.dumps(asdict(measurement)) + "\n")


def growth(smaller: Measurement, larger: Measurement) -> float:
    """Exponent of the time between two sizes: 1 is proportional, n log n a little more."""
    ratio = larger.n / smaller.n
    return math.log(larger.seconds / smaller.seconds) / math.log(ratio) if ratio > 1 else 0.0


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.2f}" if size else ""


def write_report(path: Path, measurements: Sequence[Measurement]) -> None:
    """Put the table between the marks of a document: a row per stage, of its largest size."""
    rows = []
    for name in dict.fromkeys(one.name for one in measurements if one.name != "generate"):
        found = sorted((one for one in measurements if one.name == name), key=lambda one: Fraction(one.size))
        largest = found[-1]
        exponent = f"{growth(*found[-2:]):.2f}" if len(found) > 1 and largest.n > found[-2].n else ""
        times = [" / ".join(f"{one.seconds:.0f}" for one in found), exponent]
        own, resident, kept = map(_gigabytes, (largest.own, largest.resident, largest.kept))
        sizes = [own, resident, f"{largest.disk / 1e9:.2f}", kept]
        rows.append([f"`{name}`", f"{largest.n:,.0f} {largest.unit}", *times, *sizes, largest.note])
    measured = ", ".join(dict.fromkeys(one.size for one in measurements))
    header = ["stage", "n", f"seconds at {measured}", "growth", "memory", "with file pages", "disk", "kept", ""]
    put_between(path, "measured", markdown(header, rows, "---"))


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of this program."""

    folder: str = required("FOLDER", "gets everything; 60 GB for the full size")
    sizes: tuple[Fraction, ...] = optional(tuple(Fraction(1, 4**power) for power in (3, 2, 1, 0)))
    threads: int = optional(len(os.sched_getaffinity(0)))
    report: str | None = optional(None, "write the table here", "MD")


def stage(options: Options) -> None:
    """Rehearse, smallest first, with a base model from the passages of the smallest; write the report."""
    folder = Path(options.folder).resolve()
    model, raw, table = folder / "model", folder / "raw", folder / "passages.parquet"
    if not (model / "config.json").exists():
        generate(raw, min(*options.sizes, Fraction(1, 64)), 42)
        run_stage("collection", passages=raw / "collection.tsv", output=table)
        run_stage("base_model", architecture=json.dumps(ARCHITECTURE), passages=table, output=model)
    for size in sorted(options.sizes):
        rehearse(folder, size, model, options.threads)
    if options.report:
        write_report(Path(options.report), read_measurements(folder))


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
