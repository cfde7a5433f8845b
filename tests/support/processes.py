"""This Python in processes of its own, which tests wait for, signal and kill."""

import os
import select
import signal
import subprocess
import sys
import threading

from tests.support.common import ROOT
from tests.support.forkclient import begin, status_of


class Python(subprocess.Popen):
    """This Python with some words in the project's folder, or another `cwd`; a context manager kills it at its end."""

    def __init__(self, *words, cwd=ROOT, environment=None, **options):
        env = {**os.environ, **(environment or {})}
        super().__init__([sys.executable, *map(str, words)], cwd=cwd, env=env, text=True, **options)

    def __exit__(self, *reason):
        self.kill()
        super().__exit__(*reason)

    def end(self, number=signal.SIGTERM, seconds=60):
        """Send a signal, and wait; the exit status, and what it still wrote to a pipe of output or of errors."""
        self.send_signal(number)
        said = self.communicate(timeout=seconds)
        return self.returncode, "".join(filter(None, said))


class Copy:
    """A module in a process that starts at once, as `forking.py` has it; else like `Python`, with a pipe of errors."""

    def __init__(self, module, *words, environment):
        reading, writing = os.pipe()
        with open(os.devnull, "r+b") as nothing, open(writing, "wb") as errors:
            descriptors = (nothing.fileno(), nothing.fileno(), errors.fileno())
            named = [module, *map(str, words)]
            self._connection, self.pid = begin(named, str(ROOT), {**os.environ, **environment}, descriptors)
        self.stderr = open(reading, encoding="utf-8")  # noqa: SIM115 - until its end
        self._status, self._waiting = None, threading.Lock()

    def poll(self):
        """Return the exit status; None while it runs."""
        with self._waiting:
            if self._status is None and select.select([self._connection], [], [], 0)[0]:
                self._status = status_of(self._connection)
            return self._status

    def wait(self, seconds=None):
        """Wait for its end; the exit status."""
        if self._status is None and not select.select([self._connection], [], [], seconds)[0]:
            raise subprocess.TimeoutExpired("a copy", seconds)
        return self.poll()

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)
