"""Record what a result came from: settings, inputs with checksums, program, packages, Java, hardware, git commit.

Reads:  the input files (every byte, for their checksums), this environment, this machine
Writes: provenance.json
Usage:  python -m cort.provenance --dataset squad --config '{"seed": 42}' --inputs collection.tsv qrels.tsv
            --output provenance.json
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from cort import __version__
from cort.retrieval.anserini import java_home
from cort.system import cli
from cort.system.errors import InputError
from cort.system.files import checksum, write_text

log = logging.getLogger(__name__)

# What a program that asks for a fact may take before the fact is given up.
SECONDS = 20


def describe_inputs(paths: Sequence[str]) -> list[dict[str, Any]]:
    """Name, size in bytes and SHA-256 of every file, each once, in the order given."""
    return [
        {"path": path, "bytes": Path(path).stat().st_size, "sha256": checksum(path)} for path in dict.fromkeys(paths)
    ]


def describe_code(folder: str | Path) -> dict[str, Any]:
    """Version, git commit of `folder` and whether files differ from it; both None outside of a repository."""
    commit = _first_line("git", "-C", str(folder), "rev-parse", "HEAD")
    changes = _output("git", "-C", str(folder), "status", "--porcelain", "--untracked-files=no") if commit else None
    return {"version": __version__, "commit": commit, "modified": None if changes is None else bool(changes.strip())}


def describe_software() -> dict[str, Any]:
    """Python, Java, operating system and every installed package."""
    packages = {one.metadata["Name"]: one.version for one in distributions() if one.metadata["Name"]}
    return {
        "python": platform.python_version(),
        "java": _java_version(),
        "system": platform.platform(),
        "packages": dict(sorted(packages.items(), key=lambda item: item[0].lower())),
    }


def describe_hardware() -> dict[str, Any]:
    """Host, processor, cores this process may use, memory in MB, graphics cards."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    cards = _output("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
    return {
        "host": platform.node(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_mb": memory,
        "gpus": [line.strip() for line in (cards or "").splitlines() if line.strip()],
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as handle:
            names = [line.partition(":")[2].strip() for line in handle if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def _java_version() -> str | None:
    try:
        home = java_home()
    except InputError:
        return None
    return _first_line(str(home / "bin" / "java"), "--version")


def _first_line(*command: str) -> str | None:
    lines = (_output(*command) or "").splitlines()
    return lines[0].strip() if lines else None


def _output(*command: str) -> str | None:
    """Return what a program says; None if it is not there, fails or hangs, as no result depends on it."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = cli.make_parser("cort.provenance", __doc__)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--config", required=True, metavar="JSON", help="every setting that decides the results")
    parser.add_argument("--inputs", nargs="*", default=[], metavar="FILE")
    parser.add_argument("--accepted", nargs="?", metavar="JSON", help="code that results were accepted under, by rule")
    parser.add_argument("--output", required=True, metavar="JSON")
    return parser


def stage(args: argparse.Namespace) -> None:
    """Collect and write."""
    found = {
        "dataset": args.dataset,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "code": describe_code(Path(__file__).parent),
        "accepted": json.loads(Path(args.accepted).read_text(encoding="utf-8")) if args.accepted else {},
        "config": cli.json_object("--config", args.config),
        "inputs": describe_inputs(args.inputs),
        "software": describe_software(),
        "hardware": describe_hardware(),
    }
    write_text(args.output, json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    log.info("%d inputs, commit %s", len(found["inputs"]), found["code"]["commit"] or "unknown")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())
