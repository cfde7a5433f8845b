"""The table of a rehearsal: what each stage took at full size, and how it grew."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

BEGIN, END = "<!-- measured -->", "<!-- end of measured -->"
GB = 1e9


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


def growth(smaller: Measurement, larger: Measurement) -> float:
    """Exponent of the time between two sizes: 1 is proportional, n log n a little more."""
    ratio = larger.n / smaller.n
    return math.log(larger.seconds / smaller.seconds) / math.log(ratio) if ratio > 1 else 0.0


def rows(measurements: Sequence[Measurement]) -> list[list[str]]:
    """One row per stage, of its largest size; making up the data is none."""
    names = dict.fromkeys(measured.name for measured in measurements if measured.name != "generate")
    found = []
    for name in names:
        sizes = sorted((m for m in measurements if m.name == name), key=lambda measured: Fraction(measured.size))
        largest = sizes[-1]
        exponents = [growth(*pair) for pair in itertools.pairwise(sizes)]
        found.append(
            [
                f"`{name}`",
                f"{largest.n:,.0f} {largest.unit}",
                " / ".join(f"{measured.seconds:.0f}" for measured in sizes),
                f"{exponents[-1]:.2f}" if exponents and largest.n > sizes[-2].n else "",
                f"{largest.own / GB:.2f}" if largest.own else "",
                f"{largest.resident / GB:.2f}" if largest.resident else "",
                f"{largest.disk / GB:.2f}",
                f"{largest.kept / GB:.2f}" if largest.kept else "",
                largest.note,
            ]
        )
    return found


def write_report(path: Path, measurements: Sequence[Measurement]) -> None:
    """Put the table between the marks of a document."""
    sizes = ", ".join(dict.fromkeys(measured.size for measured in measurements))
    header = ["stage", "n", f"seconds at {sizes}", "growth", "memory", "with file pages", "disk", "kept", ""]
    lines = [header, ["---"] * len(header), *rows(measurements)]
    put_between(path, BEGIN, END, [f"| {' | '.join(line)} |" for line in lines])


def put_between(path: Path, begin: str, end: str, lines: Sequence[str]) -> None:
    """Replace what is between two marks of a document; a document that is not there gets nothing but these."""
    text = path.read_text(encoding="utf-8") if path.exists() else f"# Scale\n\n{begin}\n{end}\n"
    head, rest = text.split(begin)
    table = "\n".join(lines)
    path.write_text(f"{head}{begin}\n{table}\n{end}{rest.split(end)[1]}", encoding="utf-8")
