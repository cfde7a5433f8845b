"""Measure the quickstart: build it twice from scratch in temporary copies, and print the numbers of the README.

Usage: python -m scripts.bench.quickstart [--builds 2] [--configfile config/pydocs.yaml]
"""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scripts.bench.common import Row, parse, print_table
from scripts.sandbox import copy_tree, digests, timed


def build(folder: Path, name: str, configfile: str) -> Iterator[Row]:
    """Build in a copy, and call again; yield rows of the table."""
    call = ("--cores", "all", "--configfile", configfile)
    seconds, _ = timed(copy_tree(folder), *call)
    again, output = timed(folder, *call)
    yield f"{name}: wall", f"{seconds:.0f} s"
    nothing = "nothing to be done" if "Nothing to be done" in output else "SOMETHING WAS REDONE"
    yield f"{name}: second call", f"{again:.1f} s, {nothing}"


def main() -> None:
    """Build repeatedly, compare, print."""
    args = parse(__doc__, builds=2, configfile="config/pydocs.yaml")
    rows, runs = list[Row](), list[dict[str, str]]()
    for number in range(1, args.builds + 1):
        with tempfile.TemporaryDirectory() as name:
            rows += build(Path(name), f"build {number}", args.configfile)
            runs.append(digests(Path(name), "results/*/runs/*/*.trec"))
            paths = sorted(Path(name).glob("results/*/measures/*/*.json"))
            measured = [json.loads(path.read_text("utf-8")) for path in paths]
    for system in measured:
        means = ", ".join(f"{measure} {value:.3f}" for measure, value in system["mean"].items())
        rows.append((f"{system['split']}: {system['system']}", means))
    same = "byte-identical" if all(checksums == runs[0] for checksums in runs) else "DIFFERENT"
    print_table([*rows, ("run files of all builds", same)])


if __name__ == "__main__":
    main()
