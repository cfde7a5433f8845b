"""Measure the quickstart: build it twice from nothing in temporary copies, and print what the README claims.

Usage: python -m scripts.bench.quickstart [--builds 2] [--configfile config/pydocs.yaml]
"""

import csv
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scripts.bench.common import Row, parse, print_table
from scripts.sandbox import copy_tree, digests, timed


def build(folder: Path, name: str, configfile: str) -> Iterator[Row]:
    """Build in a copy, and once more; rows of the table."""
    call = ("--cores", "all", "--configfile", configfile)
    seconds, _ = timed(copy_tree(folder), *call)
    again, said = timed(folder, *call)
    nothing = "nothing to be done" if "Nothing to be done" in said else "SOMETHING WAS REDONE"
    yield f"{name}: wall", f"{seconds:.0f} s"
    yield f"{name}: second call", f"{again:.1f} s, {nothing}"
    found = [(0.0, "")]
    for path in (folder / "benchmarks").rglob("*.tsv"):
        with open(path, newline="") as lines:
            sizes = [row["max_rss"] for row in csv.DictReader(lines, delimiter="\t")]
        found += [(float(size), path.parent.name) for size in sizes if size not in ("-", "NA")]
    memory, stage = max(found)
    yield f"{name}: largest job", f"{memory:.0f} MB ({stage})"


def measures(folder: Path) -> Iterator[Row]:
    """Read all measures; rows of the table."""
    for path in sorted((folder / "results").glob("*/measures/*/*.json")):
        found = json.loads(path.read_text())
        values = ", ".join(f"{measure} {value:.3f}" for measure, value in found["mean"].items())
        yield f"{found['split']}: {found['system']}", values


def main() -> None:
    """Build, build again from nothing, compare, print."""
    args = parse(__doc__, builds=2, configfile="config/pydocs.yaml")
    rows: list[Row] = []
    seen = []
    for number in range(1, args.builds + 1):
        with tempfile.TemporaryDirectory() as name:
            rows += build(Path(name), f"build {number}", args.configfile)
            seen.append(digests(Path(name), "results/*/runs/*/*.trec"))
            last = list(measures(Path(name)))
    same = "byte-identical" if all(one == seen[0] for one in seen) else "DIFFERENT"
    print_table([*rows, *last, ("run files of all builds", same)])


if __name__ == "__main__":
    main()
