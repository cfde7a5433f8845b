"""Memory in bytes: of the machine, usable by this process, free, and the peak so far."""

import itertools
import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PROC_CGROUP, CGROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def total_memory() -> int:
    """Return the memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def memory_limit() -> int:
    """Return the memory that this process may use: the machine's, or less if a control group limits it."""
    return min([total_memory(), *_limits()])


def free_memory() -> int:
    """Return the memory that this process can still get without swapping."""
    import psutil

    return min(int(psutil.virtual_memory().available), memory_limit())


def peak_memory() -> int:
    """Return the largest resident set of this process or of any child that it waited for."""
    return max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) * 1024


def _limits() -> Iterator[int]:
    """Yield the limits of this process's control groups, of version 1 or 2, and of all groups above them."""
    for line in _read(PROC_CGROUP).splitlines():
        _, controllers, group = line.split(":", 2)
        folder, name = (CGROUPS / "memory", "memory.limit_in_bytes") if controllers else (CGROUPS, "memory.max")
        if not controllers or "memory" in controllers.split(","):
            parents = itertools.accumulate((part for part in group.split("/") if part != ".."), Path, initial=folder)
            # "max" and missing files set no limit.
            yield from (int(text) for text in map(_read, (parent / name for parent in parents)) if text.isdigit())


def _read(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="utf-8").strip()
    return ""
