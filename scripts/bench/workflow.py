"""Measure what the workflow itself costs: the dry run of a large finished experiment, and the time around a job.

The experiment is marked as built in a temporary copy, with empty files for results. Medians of several runs.

Usage: python -m scripts.bench.workflow [--shards 64] [--systems 30] [--jobs 40] [--repeats 5]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from scripts.bench.common import make_parser, print_rows
from scripts.sandbox import TINY, copy_with_tiny, mark_as_built, timed

# A stage without work: what remains is Snakemake, a shell and the start of Python.
EMPTY_STAGE = 'import sys\n\nopen(sys.argv[sys.argv.index("--output") + 1], "w").close()\n'


def enlarge(config: dict[str, Any], systems: int) -> dict[str, Any]:
    """Add systems until there are so many."""
    for number in range(len(config["systems"]), systems):
        config["systems"][f"onng-{number}"] = {"retrieve": "encoder", "onng": {"epsilon": number / 100}}
    return config


def measure_dry_run(folder: Path, shards: int, systems: int, repeats: int) -> tuple[float, int]:
    """Median seconds of the dry run of a finished experiment, and its number of jobs."""
    config = enlarge(yaml.safe_load((folder / TINY).read_text(encoding="utf-8")) | {"dataset": "large"}, systems)
    path = folder / "large.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    scatter = ("--set-scatter", f"encode={shards}")
    jobs = mark_as_built(folder, path, *scatter)
    runs = [timed(folder, "--dry-run", "--configfile", path, *scatter) for _ in range(repeats)]
    if any("Nothing to be done" not in said for _, said in runs):
        sys.exit(runs[0][1])
    return statistics.median(seconds for seconds, _ in runs), jobs


def measure_job(folder: Path, jobs: int, repeats: int) -> float:
    """Median seconds per job without work on two cores, above a call that has nothing to do."""
    config = yaml.safe_load((folder / TINY).read_text(encoding="utf-8"))
    mark_as_built(folder, folder / TINY)
    names = [f"empty-{number}" for number in range(jobs)]
    config["systems"] |= {name: {"interleave": ["bm25", "cort"]} for name in names}
    path = folder / "jobs.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    (folder / "cort" / "fuse.py").write_text(EMPTY_STAGE, encoding="utf-8")
    targets = [f"results/tiny/runs/test/{name}.trec" for name in names]
    found = []
    for _ in range(repeats):
        for target in targets:
            (folder / target).unlink(missing_ok=True)
        call = ("--cores", 2, "--configfile", path, "--", *targets)
        busy, _ = timed(folder, *call)
        idle, _ = timed(folder, *call)
        found.append((busy - idle) / jobs)
    return statistics.median(found)


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__)
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument("--systems", type=int, default=30)
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = copy_with_tiny(Path(name))
        dry, planned = measure_dry_run(folder, args.shards, args.systems, args.repeats)
        job = measure_job(folder, args.jobs, args.repeats)
    print_rows(
        [
            (f"dry run of {planned} finished jobs, {args.shards} shards, {args.systems} systems", f"{dry:.2f} s"),
            (f"time per job without work, {args.jobs} jobs on 2 cores", f"{job:.2f} s"),
        ]
    )


if __name__ == "__main__":
    main()
