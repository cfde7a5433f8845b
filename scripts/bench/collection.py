"""Measure `cort.collection` against copying the file and summing it up, the least that a download check would do.

A collection of MS MARCO's shape is made up, unless one is named. Medians of several rounds, both in each round.

Usage: python scripts/benchmark_collection.py [--size 1] [--collection FILE] [--repeats 5]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

ROOT = Path(__file__).parents[2]


def timed(*command: object) -> tuple[float, float]:
    """Run a command; seconds, and its largest resident set in MB."""
    # Nobody shall pay for what another has written.
    os.sync()
    started = time.perf_counter()
    process = subprocess.Popen([*map(str, command)], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(process.stderr.read().decode() if process.stderr else str(status))
    return time.perf_counter() - started, usage.ru_maxrss / 1024


def compare(collection: Path, folder: Path, repeats: int) -> list[tuple[str, str]]:
    """Measure both; rows of the table."""
    plain, table, memory = [], [], []
    for _ in range(repeats):
        copied, _ = timed("cp", collection, folder / "copy.tsv")
        summed, _ = timed("md5sum", folder / "copy.tsv")
        plain.append(copied + summed)
        output = folder / "passages.parquet"
        output.unlink(missing_ok=True)
        seconds, peak = timed(sys.executable, "-m", "cort.collection", "--passages", collection, "--output", output)
        table.append(seconds)
        memory.append(peak)
    ratios = [ours / theirs for ours, theirs in zip(table, plain, strict=True)]
    size = (folder / "passages.parquet").stat().st_size
    return [
        ("collection", f"{collection.stat().st_size / 1e9:.2f} GB"),
        ("cp and md5sum", f"{statistics.median(plain):.1f} s"),
        ("cort.collection", f"{statistics.median(table):.1f} s, {size / 1e9:.2f} GB of parquet"),
        ("ratio", f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"),
        ("largest memory", f"{max(memory):.0f} MB"),
    ]


def main(argv: Sequence[str] | None = None) -> None:
    """Make the collection, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=Fraction, default=Fraction(1), metavar="FRACTION", help="1 is MS MARCO's")
    parser.add_argument("--collection", type=Path, metavar="FILE")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        collection = args.collection
        if collection is None:
            # In a process of its own: what it takes of memory would count for those started after it.
            timed(sys.executable, ROOT / "scripts" / "synthetic.py", "--size", args.size, "--output", name)
            collection = Path(name) / "collection.tsv"
        rows = compare(collection.resolve(), Path(name), args.repeats)
    width = max(len(row) for row, _ in rows)
    sys.stdout.writelines(f"{row:<{width}}  {value}\n" for row, value in rows)


if __name__ == "__main__":
    main()
