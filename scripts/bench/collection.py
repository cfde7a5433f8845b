"""Measure `cort.collection` against copying the file and summing it up, the least that a download check would do.

A collection of MS MARCO's shape is made up, of `--size` (1 is MS MARCO's), unless one is named. Medians of several
rounds, both in each round.

Usage: python -m scripts.bench.collection [--size 1] [--collection FILE] [--repeats 5]
"""

import os
import sys
import tempfile
from fractions import Fraction
from pathlib import Path

from scripts.bench.common import Cost, compare, parse, print_table, run, run_stage


def main() -> None:
    """Make the collection, measure, print."""
    args = parse(__doc__, size=Fraction(1), collection=None, repeats=5)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.collection is None:
            # In a process of its own: what it takes of memory would count for those started after it.
            run(sys.executable, "-m", "scripts.rehearsal.synthetic", "--size", args.size, "--output", folder)
        collection = (args.collection or folder / "collection.tsv").resolve()
        copy, output = folder / "copy.tsv", folder / "passages.parquet"

        def copy_and_sum() -> Cost:
            # Nobody shall pay for what another has written.
            os.sync()
            copied, _ = run("cp", collection, copy)
            os.sync()
            summed, _ = run("md5sum", copy)
            return Cost(copied.seconds + summed.seconds, copied.cpu + summed.cpu)

        def make_table() -> Cost:
            output.unlink(missing_ok=True)
            os.sync()
            return run_stage("collection", passages=collection, output=output)

        sides = {"cp and md5sum": copy_and_sum, "cort.collection": make_table}
        rows = list(compare("collection", args.repeats, sides))
        sizes = (f"{path.stat().st_size / 1e9:.2f} GB" for path in (collection, output))
        print_table([*zip(("collection", "its table"), sizes, strict=True), *rows])


if __name__ == "__main__":
    main()
