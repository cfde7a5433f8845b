"""Measure the quickstart: build it twice from nothing in temporary copies, and print what the README claims.

Usage: python -m scripts.bench.quickstart [--builds 2] [--configfile config/pydocs.yaml]
"""

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
    yield f"{name}: wall", f"{seconds:.0f} s"
    nothing = "nothing to be done" if "Nothing to be done" in said else "SOMETHING WAS REDONE"
    yield f"{name}: second call", f"{again:.1f} s, {nothing}"


def main() -> None:
    """Build, build again from nothing, compare, print."""
    args = parse(__doc__, builds=2, configfile="config/pydocs.yaml")
    rows, seen = list[Row](), list[dict[str, str]]()
    for number in range(1, args.builds + 1):
        with tempfile.TemporaryDirectory() as name:
            rows += build(Path(name), f"build {number}", args.configfile)
            seen.append(digests(Path(name), "results/*/runs/*/*.trec"))
            paths = sorted(Path(name).glob("results/*/measures/*/*.json"))
            found = [json.loads(path.read_text("utf-8")) for path in paths]
    for one in found:
        means = ", ".join(f"{measure} {value:.3f}" for measure, value in one["mean"].items())
        rows.append((f"{one['split']}: {one['system']}", means))
    same = "byte-identical" if all(one == seen[0] for one in seen) else "DIFFERENT"
    print_table([*rows, ("run files of all builds", same)])


if __name__ == "__main__":
    main()
