"""Measure the overhead of the workflow: the dry run of a large finished experiment, and the time around a job.

The experiment is marked as built in a temporary copy, with empty result files. Numbers are medians of several runs.

Usage: python -m scripts.bench.workflow [--shards 64] [--systems 30] [--jobs 40] [--repeats 5]
"""

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from scripts.bench.common import parse, print_table
from scripts.sandbox import TINY, copy_with_tiny, mark_as_built, timed

# A stage without work, to measure Snakemake, the shell and the start of Python.
EMPTY_STAGE = 'import sys\n\nopen(sys.argv[sys.argv.index("--output") + 1], "w").close()\n'


def write_config(folder: Path, dataset: str, more: dict[str, Any]) -> Path:
    """Write the tiny experiment with more systems."""
    config, path = yaml.safe_load((folder / TINY).read_text("utf-8")), folder / f"more.{dataset}.yaml"
    systems = {"systems": config["systems"] | more, "dataset": dataset}
    path.write_text(yaml.safe_dump(config | systems, sort_keys=False), encoding="utf-8")
    return path


def main() -> None:
    """Measure and print."""
    args = parse(__doc__, shards=64, systems=30, jobs=40, repeats=5)
    with tempfile.TemporaryDirectory() as name:
        folder = copy_with_tiny(Path(name))
        graph = {"retrieve": "encoder", "onng": {"epsilon": 0.1}}
        large = write_config(folder, "large", {f"onng-{number}": graph for number in range(args.systems)})
        call = ("--configfile", large, "--set-scatter", f"encode={args.shards}")
        finished = mark_as_built(folder, *call[1:])
        runs = [timed(folder, "--dry-run", *call) for _ in range(args.repeats)]
        if any("Nothing to be done" not in output for _, output in runs):
            sys.exit(runs[0][1])
        names = [f"empty-{number}" for number in range(args.jobs)]
        path = write_config(folder, "tiny", {name: {"interleave": ["bm25", "cort"]} for name in names})
        mark_as_built(folder, path)
        (folder / "cort" / "fuse.py").write_text(EMPTY_STAGE, encoding="utf-8")
        targets, times = [f"results/tiny/runs/test/{name}.trec" for name in names], []
        for _ in range(args.repeats):
            for target in targets:
                (folder / target).unlink(missing_ok=True)
            busy, idle = (timed(folder, "--cores", 2, "--configfile", path, "--", *targets)[0] for _ in range(2))
            times.append((busy - idle) / args.jobs)
    dry = statistics.median(seconds for seconds, _ in runs)
    rows = [(f"dry run of {finished} finished jobs, {args.shards} shards, {args.systems} more systems", f"{dry:.2f} s")]
    rows += [(f"time per empty job, {args.jobs} jobs on 2 cores", f"{statistics.median(times):.2f} s")]
    print_table(rows)


if __name__ == "__main__":
    main()
