"""Time and memory of the stages, summed up from the benchmark files of their jobs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cort.formats.lines import iter_lines
from cort.system.errors import input_error, shorten

UNKNOWN = frozenset({"-", "NA", "nan", "NaN", ""})


@dataclass(frozen=True)
class Stage:
    """All jobs of one rule; `peak_mb` is None where no job lived long enough to be measured."""

    rule: str
    jobs: int
    seconds: float
    longest: float
    peak_mb: float | None


def read_stages(folder: str | Path) -> list[Stage]:
    """Sum up ``folder/<rule>/**/*.tsv`` per rule, longest total first; nothing when there is no such folder."""
    root = Path(folder)
    jobs: dict[str, list[tuple[float, float | None]]] = {}
    for path in sorted(root.rglob("*.tsv")):
        rule = path.relative_to(root).parts[0].removesuffix(".tsv")
        jobs.setdefault(rule, []).extend(_jobs(path))
    stages = [_stage(rule, found) for rule, found in jobs.items() if found]
    return sorted(stages, key=lambda one: (-one.seconds, one.rule))


def _stage(rule: str, jobs: list[tuple[float, float | None]]) -> Stage:
    seconds = [time for time, _ in jobs]
    peaks = [peak for _, peak in jobs if peak is not None]
    return Stage(rule, len(jobs), math.fsum(seconds), max(seconds), max(peaks, default=None))


def _jobs(path: Path) -> Iterator[tuple[float, float | None]]:
    """Yield the wall time in seconds and the peak resident memory in MB of each row."""
    lines = iter_lines(path)
    header = next(lines, (1, ""))[1].split("\t")
    if not {"s", "max_rss"} <= set(header):
        raise input_error(
            path, f"the header {shorten(' '.join(header))}", "a benchmark file with columns s and max_rss",
            "delete the file", 1,
        )  # fmt: skip
    for row, line in lines:
        cells = line.split("\t")
        if len(cells) != len(header):
            raise input_error(path, f"{len(cells)} cells", f"{len(header)} as in the header", "delete the file", row)
        fields = dict(zip(header, cells, strict=True))
        seconds = _number(path, row, fields["s"])
        # A job whose time is unknown cannot be counted into a sum of times.
        if seconds is not None:
            yield seconds, _number(path, row, fields["max_rss"])


def _number(path: Path, row: int, cell: str) -> float | None:
    if cell in UNKNOWN:
        return None
    try:
        return float(cell)
    except ValueError:
        raise input_error(path, shorten(cell), "a number, `-` or `NA`", "delete the file", row) from None
