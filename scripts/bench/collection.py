"""Measure `cort.collection` against copying the file and summing it up, the least that a download check would do.

A collection of MS MARCO's shape is made up, unless one is named. Medians of several rounds, both in each round.

Usage: python -m scripts.bench.collection [--size 1] [--collection FILE] [--repeats 5]
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from scripts.bench.common import Cost, in_turns, make_parser, median_cost, print_rows, ratios, run, run_stage


def compare(collection: Path, folder: Path, repeats: int) -> list[tuple[str, object]]:
    """Measure both; rows of the table."""
    output = folder / "passages.parquet"

    def copy_and_sum() -> Cost:
        # Nobody shall pay for what another has written.
        os.sync()
        copied, _ = run("cp", collection, folder / "copy.tsv")
        os.sync()
        summed, _ = run("md5sum", folder / "copy.tsv")
        return Cost(copied.seconds + summed.seconds)

    def make_table() -> Cost:
        output.unlink(missing_ok=True)
        os.sync()
        return run_stage("collection", "--passages", collection, "--output", output)

    plain, table = in_turns(repeats, {"plain": copy_and_sum, "table": make_table}).values()
    ours = median_cost(table)
    return [
        ("collection", f"{collection.stat().st_size / 1e9:.2f} GB"),
        ("cp and md5sum", f"{median_cost(plain).seconds:.1f} s"),
        ("cort.collection", f"{ours.seconds:.1f} s, {output.stat().st_size / 1e9:.2f} GB of parquet"),
        ("ratio", ratios([cost.seconds for cost in table], [cost.seconds for cost in plain])),
        ("largest memory", f"{ours.memory:.0f} MB"),
    ]


def main(argv: Sequence[str] | None = None) -> None:
    """Make the collection, measure, print."""
    parser = make_parser(__doc__)
    parser.add_argument("--size", type=Fraction, default=Fraction(1), metavar="FRACTION", help="1 is MS MARCO's")
    parser.add_argument("--collection", type=Path, metavar="FILE")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        collection = args.collection
        if collection is None:
            # In a process of its own: what it takes of memory would count for those started after it.
            run(sys.executable, "-m", "scripts.rehearsal.synthetic", "--size", args.size, "--output", name)
            collection = Path(name) / "collection.tsv"
        print_rows(compare(collection.resolve(), Path(name), args.repeats))


if __name__ == "__main__":
    main()
