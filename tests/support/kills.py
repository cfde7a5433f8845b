"""Builds that are killed, and what Snakemake logged about their jobs."""

import contextlib
import itertools
import os
import re
import secrets
import shutil
import signal
import subprocess
import time

import psutil

from tests.support.sandbox import digests, executable
from workflow.running import LOCKS

VARIABLE = "CORT_KILLED"
STARTED = re.compile(r"^Job (\d+): (.+)$", re.MULTILINE)
FINISHED = re.compile(r"^Finished jobid: (\d+) \(Rule: (\w+)\)", re.MULTILINE)
# Files that contain times, depend on how Lucene's threads were scheduled, or were left by killed writers.
VARIABLE_FILES = re.compile(
    r"/(audit|lexical/[^/]+/index)/|/(curve\.csv|provenance\.json|report/index\.html)$|/report/(tables/stages|\w+/audits)\.|\.tmp/|\.claim$"
)


def processes_with(variable, value):
    """Ids of readable processes with a variable in their environment."""
    # Unreadable environments are None.
    processes = [(process.pid, process.info["environ"] or {}) for process in psutil.process_iter(["environ"])]
    return [pid for pid, words in processes if words.get(variable) == value]


def parse_log(text):
    """Messages of the jobs that started, and message -> rule of those that finished."""
    started = STARTED.findall(text)
    names = dict(started)
    return [name for _, name in started], {names[at]: rule for at, rule in FINISHED.findall(text) if at in names}


def results(folder):
    """Digests of all results that are identical in every build."""
    found = digests(folder, "results/**/*").items()
    return {name: digest for name, digest in found if not VARIABLE_FILES.search(name)}


def differences(folder, expected):
    """Files of a finished build that differ, are missing or unexpected, without those of killed writers."""
    digests = results(folder)
    return [name for name in sorted(expected.keys() | digests.keys()) if expected.get(name) != digests.get(name)]


class Tree:
    """A copy of the project, and the environment of its processes."""

    def __init__(self, folder, environment=os.environ):
        self.folder, self.said = folder, folder.parent / f"{folder.name}.said"
        self.environment = {**environment, VARIABLE: secrets.token_hex(8)}

    def call(self, *words, enough=lambda output: False, main_only=False):
        """Run a module, and kill it, with its processes or alone, once the output is `enough`; status and output."""
        command = [executable("python"), "-m", *map(str, words)]
        with open(self.said, "wb") as said:
            options = {"cwd": self.folder, "env": self.environment, "start_new_session": True}
            process = subprocess.Popen(command, stdout=said, stderr=said, **options)
        try:
            while (status := process.poll()) is None and not enough(self.said.read_text("utf-8", "replace")):
                time.sleep(0.1)
        finally:
            if process.poll() is None:
                process.kill() if main_only else self.kill()
                process.wait()
        return status, self.said.read_text("utf-8", "replace")

    def kill(self):
        """Kill all processes of this tree, whatever their process group."""
        while pids := processes_with(VARIABLE, self.environment[VARIABLE]):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def build(self, *words, kills=()):
        """Run until it is not killed; `kills` are options of `call`. Return status, output and the number of kills."""
        done = {}
        for number, how in enumerate(itertools.chain(kills, [{}])):
            status, said = self.call(*words, **how)
            started, finished = parse_log(said)
            again = sorted(done.keys() & set(started))
            assert not again, f"finished, and begun again: {again}"
            done |= finished
            running = ", ".join(name for name in started if name not in finished)
            print(f"call {number + 1}: {len(done)} jobs finished; at its end: {running or 'nothing'}")  # noqa: T201
            if status is not None:
                return status, said, number
            # As `snakemake --unlock` does.
            shutil.rmtree(self.folder / LOCKS, ignore_errors=True)
