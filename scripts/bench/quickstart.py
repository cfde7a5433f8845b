"""Measure the quickstart: build it twice from nothing in temporary copies, and print what the README claims.

Usage: python -m scripts.bench.quickstart [--builds 2] [--configfile config/pydocs.yaml]
"""

from __future__ import annotations

import csv
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scripts.bench.common import make_parser, print_rows
from scripts.sandbox import copy_tree, digests, timed


def peak_memory(folder: Path) -> tuple[float, str]:
    """Largest resident set of any job in MB, and the stage it belongs to."""
    found = [(0.0, "")]
    for path in sorted((folder / "benchmarks").rglob("*.tsv")):
        with open(path, newline="") as handle:
            for row in csv.DictReader(handle, delimiter="\t"):
                if row["max_rss"] not in ("-", "NA"):
                    found.append((float(row["max_rss"]), path.parent.name))
    return max(found)


def build(folder: Path, name: str, configfile: str) -> Iterator[tuple[str, str]]:
    """Build in a copy, and once more; rows of the table."""
    call = ("--cores", "all", "--configfile", configfile)
    seconds, _ = timed(copy_tree(folder), *call)
    again, said = timed(folder, *call)
    nothing = "nothing to be done" if "Nothing to be done" in said else "SOMETHING WAS REDONE"
    memory, stage = peak_memory(folder)
    yield f"{name}: wall", f"{seconds:.0f} s"
    yield f"{name}: second call", f"{again:.1f} s, {nothing}"
    yield f"{name}: largest job", f"{memory:.0f} MB ({stage})"


def measures(folder: Path) -> Iterator[tuple[str, str]]:
    """Read all measures; rows of the table."""
    for path in sorted((folder / "results").glob("*/measures/*/*.json")):
        found = json.loads(path.read_text())
        values = ", ".join(f"{measure} {value:.3f}" for measure, value in found["mean"].items())
        yield f"{found['split']}: {found['system']}", values


def main() -> None:
    """Build, build again from nothing, compare, print."""
    parser = make_parser(__doc__)
    parser.add_argument("--builds", type=int, default=2)
    parser.add_argument("--configfile", default="config/pydocs.yaml")
    args = parser.parse_args()
    rows: list[tuple[str, str]] = []
    seen = set()
    for number in range(1, args.builds + 1):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            rows += build(folder, f"build {number}", args.configfile)
            seen.add(tuple(sorted(digests(folder, "results/*/runs/*/*.trec").items())))
            if number == args.builds:
                rows += measures(folder)
    print_rows([*rows, ("run files of all builds", "byte-identical" if len(seen) == 1 else "DIFFERENT")])


if __name__ == "__main__":
    main()
