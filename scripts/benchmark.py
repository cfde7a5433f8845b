"""Measure the quickstart: build it twice from nothing in temporary copies, and print what the README claims.

Usage: python scripts/benchmark.py [--builds 2] [--configfile config/pydocs.yaml]
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]


def copy_tree(target: Path) -> None:
    """Copy what git tracks or would track."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def snakemake(folder: Path, configfile: str) -> tuple[float, str]:
    """Run the workflow; seconds and what it said."""
    command = [sys.executable, "-m", "snakemake", "--cores", "all", "--configfile", configfile]
    started = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return time.perf_counter() - started, done.stdout + done.stderr


def peak_memory(folder: Path) -> tuple[float, str]:
    """Largest resident set of any job in MB, and the stage it belongs to."""
    found = [(0.0, "")]
    for path in sorted((folder / "benchmarks").rglob("*.tsv")):
        with open(path, newline="") as handle:
            for row in csv.DictReader(handle, delimiter="\t"):
                if row["max_rss"] not in ("-", "NA"):
                    found.append((float(row["max_rss"]), path.parent.name))
    return max(found)


def runs_digest(folder: Path) -> str:
    """Identify all run files by their bytes."""
    digest = hashlib.sha256()
    for path in sorted((folder / "results").glob("*/runs/*/*.trec")):
        digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()


def main() -> None:
    """Build, build again from nothing, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--builds", type=int, default=2)
    parser.add_argument("--configfile", default="config/pydocs.yaml")
    args = parser.parse_args()
    rows: list[tuple[str, str]] = []
    digests = set()
    for build in range(1, args.builds + 1):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            copy_tree(folder)
            seconds, _ = snakemake(folder, args.configfile)
            again, said = snakemake(folder, args.configfile)
            memory, stage = peak_memory(folder)
            digests.add(runs_digest(folder))
            nothing = "nothing to be done" if "Nothing to be done" in said else "SOMETHING WAS REDONE"
            rows.append((f"build {build}: wall", f"{seconds:.0f} s"))
            rows.append((f"build {build}: second call", f"{again:.1f} s, {nothing}"))
            rows.append((f"build {build}: largest job", f"{memory:.0f} MB ({stage})"))
            if build == args.builds:
                for path in sorted((folder / "results").glob("*/measures/*/*.json")):
                    measures = json.loads(path.read_text())
                    values = ", ".join(f"{measure} {value:.3f}" for measure, value in measures["mean"].items())
                    rows.append((f"{measures['split']}: {measures['system']}", values))
    rows.append(("run files of all builds", "byte-identical" if len(digests) == 1 else "DIFFERENT"))
    width = max(len(name) for name, _ in rows)
    sys.stdout.writelines(f"{name:<{width}}  {value}\n" for name, value in rows)


if __name__ == "__main__":
    main()
