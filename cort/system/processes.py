"""Commands that end with the process that runs them."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from cort.system.interruption import Requests


@contextmanager
def running(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a command while the block lasts, and kill it if the block is left by an exception.

    A signal that arrives while it is being started is held back until then: raised inside `Popen`, it would leave the
    command running, with nobody to end it.

    :param options: those of `subprocess.Popen`.
    """
    with ExitStack() as stack:
        with Requests(patient=True) as requests:
            process: subprocess.Popen[str] = stack.enter_context(subprocess.Popen(command, **options))
            stack.push(lambda raised, *_: process.kill() if raised else None)
        if requests.received is not None:
            signal.raise_signal(requests.received)
        yield process
