"""What can be said of the machine and of the software on it, in as far as it says so itself."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import distributions
from typing import Any

from cort.system.errors import InputError
from cort.system.java import java_home

# What a program that asks for a fact may take before the fact is given up.
SECONDS = 20


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
    cards = output_of("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
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
    return first_line(str(home / "bin" / "java"), "--version")


def first_line(*command: str) -> str | None:
    """Return the first line of what a program says; None as of `output_of`, or if it says nothing."""
    lines = (output_of(*command) or "").splitlines()
    return lines[0].strip() if lines else None


def output_of(*command: str) -> str | None:
    """Return what a program says; None if it is not there, fails or hangs, as no result depends on it."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
