"""Orderly interruption: signals become requests, which long work honours at its next safe point."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import Any

#: environment variable of processes that must end with the one that starts them
ATTACHED = "CORT_ATTACHED"
PR_SET_PDEATHSIG = 1
#: SLURM can send SIGUSR1 before a time limit (``--signal``)
REQUESTS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class Interrupted(Exception):
    """A stage ended early but in order, with this exit status; the message is one line for the log, or empty."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def exit_status(number: int) -> int:
    """Return the exit status of resumable work that a signal ended: "try again", or that of Ctrl-C."""
    return 128 + signal.SIGINT if number == signal.SIGINT else os.EX_TEMPFAIL


def end_with_parent() -> None:
    """End this process by SIGTERM when the one that started it ends, if that asks for it (`ATTACHED`).

    A job that outlives a killed workflow could replace the results of a later one with other settings.
    """
    if os.environ.get(ATTACHED):
        # Only Linux has it.
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def unwind_on_signals() -> None:
    """Let SIGTERM and SIGUSR1 end the process with an exception, so that temporary files are deleted.

    A SIGUSR1 that is ignored stays so: a warning before a time limit, when nothing can be saved yet, must not cost the
    attempt.
    """
    if _is_main_thread():
        for number in (signal.SIGTERM, signal.SIGUSR1):
            if number == signal.SIGTERM or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, lambda number, _: sys.exit(128 + number))


class Requests:
    """While entered, SIGTERM, SIGUSR1 and SIGINT only set `received`; a second SIGINT raises KeyboardInterrupt.

    If `patient`, further SIGINTs are ignored: the process that forwards them decides when to give up.
    """

    def __init__(self, patient: bool = False) -> None:
        self.received: int | None = None
        self._patient, self._interrupts = patient, 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Requests:
        if _is_main_thread():
            for number in REQUESTS:
                before = signal.getsignal(number)
                # Background jobs of a shell ignore Ctrl-C; None is a handler that Python cannot restore.
                if before is not None and not (number == signal.SIGINT and before is signal.SIG_IGN):
                    self._before[number] = before
                    signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before.clear()

    def deliver(self) -> None:
        """Let what was received meanwhile have its usual effect."""
        if self.received is not None:
            signal.raise_signal(self.received)

    def _take(self, number: int, frame: FrameType | None) -> None:
        self._interrupts += number == signal.SIGINT
        if self._interrupts > 1 and number == signal.SIGINT and not self._patient:
            raise KeyboardInterrupt
        self.received = self.received or number


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
