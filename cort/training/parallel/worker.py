"""A worker, one of several processes that run a stage together: how it starts, speaks and ends.

Run as ``python -m cort.training.parallel.worker STAGE OPTIONS`` by the launcher only. Nothing is imported from torch
before a worker has tied its life to that of its launcher.
"""

from __future__ import annotations

import ctypes
import importlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

from cort.system.errors import InputError
from cort.system.interruption import Interrupted

Options = TypeVar("Options")

PR_SET_PDEATHSIG = 1
#: set for workers: process id of the launcher, and the file its log goes to
LAUNCHER, LOG = "CORT_LAUNCHER", "CORT_LOG"
# When one worker fails the others are ended: one that still runs this many seconds after its failure was the first.
GRACE = 4.0


def main(argv: Sequence[str]) -> int:
    """Run a stage as a worker, which speaks less than its launcher."""
    die_with(int(os.environ[LAUNCHER]))
    logging.disable(_silent())
    stage: Any = importlib.import_module(argv[0])
    status: int = stage.main(argv[1:])
    return status


def die_with(parent: int) -> None:
    """Have the kernel kill this process when `parent` ends, however it ends."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:  # it ended before the kernel was told
        sys.exit(128 + signal.SIGKILL)


def is_worker() -> bool:
    """Whether this process is one of several, also if other software started it."""
    return "LOCAL_RANK" in os.environ


def work_together(options: Options, work: Callable[[Options], None]) -> None:
    """Work as one of several; only the first says what all know."""
    if LAUNCHER in os.environ and _is_first():
        _append_to_log(os.environ[LOG])
        logging.disable(logging.NOTSET)
    try:
        work(options)
    except Interrupted:
        raise
    except KeyboardInterrupt:
        if _is_first():
            raise
        sys.exit(128 + signal.SIGINT)
    except Exception as error:
        # What all run into, the first one says; what follows from the end of another, nobody need say.
        if not (_is_first() and isinstance(error, InputError | OSError)):
            time.sleep(GRACE)
        raise
    finally:
        if LAUNCHER in os.environ:
            logging.disable(_silent())


def _is_first() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _silent() -> int:
    """Highest level of messages that are not of this process to say: the launcher tells start and end."""
    return logging.INFO if _is_first() else logging.WARNING


def _append_to_log(path: str) -> None:
    if path:
        handler = logging.FileHandler(path, mode="a", encoding="utf-8")
        handler.setFormatter(logging.getLogger().handlers[0].formatter)
        logging.getLogger().addHandler(handler)


def end_now(status: int) -> NoReturn:
    """End without Python's finalization, which Gloo's threads do not survive if they let go of a tensor meanwhile."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    try:
        end_now(main(sys.argv[1:]))
    except SystemExit as end:
        end_now(end.code if isinstance(end.code, int) else 1)
