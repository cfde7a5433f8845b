"""This Python in processes of its own, which tests wait for, signal and kill."""

import os
import signal
import subprocess
import sys

from tests.support.common import ROOT


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
