"""Measure the quickstart: build it twice from nothing in temporary copies, and print what the README claims.

Usage: python scripts/benchmark.py [--builds 2] [--configfile config/pydocs.yaml]
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tempfile
from pathlib import Path

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


def main() -> None:
    """Build, build again from nothing, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--builds", type=int, default=2)
    parser.add_argument("--configfile", default="config/pydocs.yaml")
    args = parser.parse_args()
    rows: list[tuple[str, str]] = []
    seen = set()
    call = ("--cores", "all", "--configfile", args.configfile)
    for number in range(1, args.builds + 1):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            copy_tree(folder)
            seconds, _ = timed(folder, *call)
            again, said = timed(folder, *call)
            memory, stage = peak_memory(folder)
            seen.add(tuple(sorted(digests(folder, "results/*/runs/*/*.trec").items())))
            nothing = "nothing to be done" if "Nothing to be done" in said else "SOMETHING WAS REDONE"
            rows.append((f"build {number}: wall", f"{seconds:.0f} s"))
            rows.append((f"build {number}: second call", f"{again:.1f} s, {nothing}"))
            rows.append((f"build {number}: largest job", f"{memory:.0f} MB ({stage})"))
            if number == args.builds:
                for path in sorted((folder / "results").glob("*/measures/*/*.json")):
                    measures = json.loads(path.read_text())
                    values = ", ".join(f"{measure} {value:.3f}" for measure, value in measures["mean"].items())
                    rows.append((f"{measures['split']}: {measures['system']}", values))
    rows.append(("run files of all builds", "byte-identical" if len(seen) == 1 else "DIFFERENT"))
    width = max(len(name) for name, _ in rows)
    sys.stdout.writelines(f"{name:<{width}}  {value}\n" for name, value in rows)


if __name__ == "__main__":
    main()
