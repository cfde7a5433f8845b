"""Read what Snakemake measured of a job: benchmarks/<dataset>/<rule>/<wildcards>.tsv."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple


class Record(NamedTuple):
    """Wall time in seconds and memory in MB of a job; memory 0 where the job was too short for it."""

    seconds: float
    memory: float


def read_benchmark(path: Path) -> Record | None:
    """Read the last run's measurement; None if there is none."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            row = list(csv.DictReader(file, delimiter="\t"))[-1]
        memory = row["max_rss"]
        return Record(float(row["s"]), float(memory) if memory not in ("-", "NA", "") else 0.0)
    except (OSError, ValueError, KeyError, IndexError):
        return None
