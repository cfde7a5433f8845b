"""What a rehearsal measures: time, memory and disk of its steps, kept in a file, and the table made of them."""

import json
import math
import resource
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path

import psutil

from scripts.bench.common import markdown, put_between
from scripts.sandbox import ROOT, size_of

SECONDS, NOTHING = "seconds at ", "-"
HEADER = ("stage", "n", SECONDS, "growth", "CPU seconds", "memory", "with file pages", "disk", "kept", "")


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
    cpu: float = 0


def measure(command: Sequence[str], folder: Path) -> dict[str, float]:
    """Run a command; wall and CPU time, peak memory without file pages and with them, growth of the folder in bytes."""
    before = size_of(folder)
    started, worked = time.perf_counter(), _cpu_of_children()
    process = subprocess.Popen(command, cwd=ROOT)
    own, resident, disk = 0.0, 0.0, 0.0
    while process.poll() is None:
        own, resident = map(max, (own, resident), memory_of(process.pid))
        disk = max(disk, size_of(folder) - before)
        time.sleep(0.2)
    seconds = time.perf_counter() - started
    if process.returncode:
        sys.exit(f"{shlex.join(command)}: status {process.returncode}")
    disk, cpu = max(disk, size_of(folder) - before), _cpu_of_children() - worked
    return {"seconds": seconds, "own": own, "resident": resident, "disk": disk, "cpu": cpu}


def _cpu_of_children() -> float:
    """CPU time of all ended processes that this one has started, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def memory_of(pid: int) -> tuple[float, float]:
    """Memory of a process and all below it, in bytes: its own, and with pages of files that the system may drop."""
    own, resident = 0.0, 0.0
    with suppress(psutil.Error):
        parent = psutil.Process(pid)
        for process in (parent, *parent.children(recursive=True)):
            memory = process.memory_info()
            own, resident = own + memory.rss - memory.shared, resident + memory.rss
    return own, resident


def read_measurements(folder: Path) -> list[Measurement]:
    """Read what was measured so far."""
    path = folder / "measurements.jsonl"
    return [Measurement(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def remember(folder: Path, measurement: Measurement) -> None:
    """Append a measurement."""
    with open(folder / "measurements.jsonl", "a", encoding="utf-8") as handle:
        handle.write(json.dumps(asdict(measurement)) + "\n")


def growth(smaller: Measurement, larger: Measurement) -> float:
    """Exponent of the time between two sizes, of CPUs if known: 1 is proportional, n log n a little more."""
    ratio = larger.n / smaller.n
    spent = larger.cpu / smaller.cpu if smaller.cpu and larger.cpu else larger.seconds / smaller.seconds
    return math.log(spent) / math.log(ratio) if ratio > 1 else 0.0


@dataclass(frozen=True)
class Row:
    """What the table says of a stage: `n` and its unit, seconds by size, and the other cells."""

    name: str
    n: str
    seconds: Mapping[str, str]
    others: Sequence[str]

    @property
    def number(self) -> int:
        """How many of its unit were there at the largest size."""
        return int(self.n.split()[0].replace(",", ""))


def row_of(name: str, measurements: Sequence[Measurement]) -> Row:
    """Put a stage's measurements into words; all but the seconds are of the largest size."""
    found = sorted((one for one in measurements if one.name == name), key=lambda one: Fraction(one.size))
    largest = found[-1]
    exponent = f"{growth(*found[-2:]):.2f}" if len(found) > 1 and largest.n > found[-2].n else ""
    cpu = f"{largest.cpu:.0f}" if largest.cpu else ""
    sizes = [*map(_gigabytes, (largest.own, largest.resident)), f"{largest.disk / 1e9:.2f}", _gigabytes(largest.kept)]
    seconds = {one.size: f"{one.seconds:.0f}" for one in found}
    return Row(f"`{name}`", f"{largest.n:,.0f} {largest.unit}", seconds, [exponent, cpu, *sizes, largest.note])


def read_rows(path: Path) -> list[Row]:
    """Read the table that a document has, if any."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    header = next((row for row in cells if row[0] == HEADER[0] and row[2].startswith(SECONDS)), None)
    if header is None:
        return []
    first, sizes = cells.index(header) + 2, header[2].removeprefix(SECONDS).split(", ")
    own = [row for row in cells[first:] if row[0].startswith("`") and len(row) == len(header)]
    return [Row(row[0], row[1], dict(zip(sizes, row[2].split(" / "), strict=True)), row[3:]) for row in own]


def write_report(path: Path, measurements: Sequence[Measurement]) -> None:
    """Put the table between the marks of a document: a row per stage, of its largest size.

    What it says of a stage that was not measured, or at smaller sizes only, stays.
    """
    rows = {row.name: row for row in read_rows(path)}
    for name in dict.fromkeys(one.name for one in measurements if one.name != "generate"):
        row = row_of(name, measurements)
        if row.name not in rows or rows[row.name].number <= row.number:
            rows[row.name] = row
    sizes = sorted({size for row in rows.values() for size in row.seconds}, key=Fraction)
    cells = [
        [row.name, row.n, " / ".join(row.seconds.get(size, NOTHING) for size in sizes), *row.others]
        for row in rows.values()
    ]
    put_between(path, "measured", markdown([*HEADER[:2], SECONDS + ", ".join(sizes), *HEADER[3:]], cells, "---"))


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.2f}" if size else ""
