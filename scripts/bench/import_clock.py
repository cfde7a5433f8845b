"""CPU seconds that a Python process spends on imports, in a line of JSON that it appends to a file in the end.

`startup` copies this as ``sitecustomize.py`` to a folder on PYTHONPATH, and names the file in CORT_IMPORT_CLOCK. It
counts the time of the thread that imports, from the beginning of an outermost import to its end.
"""

import atexit
import builtins
import importlib
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

FILE = "CORT_IMPORT_CLOCK"
inside = threading.local()
spent: list[float] = []


def clocked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Count what a function that imports takes, unless another one has called it."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if getattr(inside, "now", False):
            return function(*args, **kwargs)
        inside.now, started = True, time.thread_time()
        try:
            return function(*args, **kwargs)
        finally:
            inside.now = False
            spent.append(time.thread_time() - started)

    return call


def tell() -> None:
    """Append what was counted, and the CPU time of the process and of those it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    total = sum(one.ru_utime + one.ru_stime for one in used)
    line = {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "command": sys.orig_argv[1:],
        "cpu": total,
        "imports": sum(spent),
    }
    with open(os.environ[FILE], "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


if FILE in os.environ:
    builtins.__import__ = clocked(builtins.__import__)
    importlib.import_module = clocked(importlib.import_module)
    atexit.register(tell)
