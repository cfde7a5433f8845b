"""Builds that are killed, and what Snakemake said of their jobs."""

import contextlib
import itertools
import os
import re
import secrets
import signal
import subprocess
import time

from scripts.sandbox import digests, executable
from workflow.lock import processes_with

VARIABLE = "CORT_KILLED"
STARTED = re.compile(r"^Job (\d+): (.+)$", re.MULTILINE)
FINISHED = re.compile(r"^Finished jobid: (\d+) \(Rule: (\w+)\)", re.MULTILINE)
# What tells times, or how Lucene's threads were scheduled, and checksums; all else is the same in every build.
VARIABLE_FILES = re.compile(
    r"/(audit|lexical/[^/]+/index)/|/(curve\.csv|provenance\.json|report/index\.html)$|/report/(tables/stages|\w+/audits)\.|\.sum$"
)


def parse_log(text):
    """Messages of the jobs that started, and message -> rule of those that finished."""
    started = STARTED.findall(text)
    names = dict(started)
    return [name for _, name in started], {names[at]: rule for at, rule in FINISHED.findall(text) if at in names}


def results(folder):
    """Digests of all results that are the same in every build."""
    return {name: digest for name, digest in digests(folder, "results/**/*").items() if not VARIABLE_FILES.search(name)}


def differences(folder, expected):
    """Files that differ, miss or are too many in a finished build, and all that is temporary."""
    found = results(folder)
    different = [name for name in sorted(expected.keys() | found.keys()) if expected.get(name) != found.get(name)]
    return different + [f"{path.relative_to(folder)} is left" for path in sorted(folder.rglob("*.tmp"))]


class Tree:
    """A copy of the project, and the variables of its processes."""

    def __init__(self, folder, environment=os.environ):
        self.folder, self.said = folder, folder.parent / f"{folder.name}.said"
        self.environment = {**environment, VARIABLE: secrets.token_hex(8)}

    def call(self, *words, enough=lambda said: False, main_only=False):
        """Call a module, and kill it, with all it began or alone, once enough is said; status or None, and output."""
        command = [executable("python"), "-m", *map(str, words)]
        with open(self.said, "wb") as said:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=said, stderr=said, start_new_session=True
            )
        try:
            while (status := process.poll()) is None and not enough(self.said.read_text("utf-8", "replace")):
                time.sleep(0.1)
        finally:
            if process.poll() is None:
                process.kill() if main_only else self.kill()
                process.wait()
        return status, self.said.read_text("utf-8", "replace")

    def kill(self):
        """Kill what calls began, in whatever process group it is."""
        while pids := processes_with(VARIABLE, self.environment[VARIABLE]):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def build(self, *words, kills=()):
        """Call until it is not killed, `kills` being options of calls; status, output, and how often it was killed."""
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
