"""Output on the terminal during a run: a line when a job begins and one when it ends; errors come last.

Details are in the logs of the jobs, and Snakemake's own output in its log file. With ``--verbose``, ``--quiet``,
``--printshellcmds`` or a logger plugin, Snakemake's output is unchanged.
"""

from __future__ import annotations

import atexit
import logging
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cort.reporting.labels import duration
from workflow import snakemake_api

# The target rule, which has no command.
TARGET = "all"
HOLD = "\N{NO-BREAK SPACE}"


class JobLines(logging.Handler):
    """Write a line for each job that begins, fails or ends, and Snakemake's warnings and errors."""

    def __init__(self, failures: Failures) -> None:
        super().__init__()
        self._failures = failures
        self._begun: dict[int, tuple[str, float]] = {}
        self._ended: list[tuple[str, float]] = []
        self._targets = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write the lines of a record."""
        lines = self.lines(record)
        sys.stderr.write("".join(f"{line}\n" for line in lines))
        sys.stderr.flush()

    def lines(self, record: Any) -> list[str]:
        """Return the lines of a record, if any."""
        event = str(getattr(record, "event", ""))
        if event == snakemake_api.BEGUN and record.rule_name != TARGET:
            self._begun[record.jobid] = record.rule_msg or record.rule_name, time.monotonic()
            return [_now(self._begun[record.jobid][0])]
        if event == snakemake_api.PLANNED:
            return self._planned(record.stats)
        if event == snakemake_api.FAILED:
            if self._failures.interrupted:
                return []
            now = time.monotonic()
            title, begun = self._begun.pop(record.jobid, (f"rule {record.rule_name}", now))
            return [_now(f"failed, {duration(now - begun)}: {title}")]
        if event == snakemake_api.FINISHED:
            self._ended += [self._begun.pop(record.job_id)] if record.job_id in self._begun else []
            return []
        if event == snakemake_api.PROGRESS:
            return self._done(f"{record.done} of {record.total - self._targets}")
        return self._message(record)

    def _planned(self, stats: Mapping[str, int]) -> list[str]:
        """List the rules of the jobs to run, wrapped to the width of a terminal."""
        rules = {rule: count for rule, count in stats.items() if rule not in (TARGET, "total")}
        self._targets = stats.get(TARGET, 0)
        number = sum(rules.values())
        # No line break between a rule and its count.
        names = ", ".join(f"{rule}{HOLD}{count}" for rule, count in rules.items())
        line = f"{number} {'job' if number == 1 else 'jobs'}: {names}"
        width = shutil.get_terminal_size().columns if sys.stderr.isatty() else len(line)
        wrapped = textwrap.wrap(line, width, subsequent_indent="  ", break_on_hyphens=False)
        return [part.replace(HOLD, " ") for part in wrapped]

    def _done(self, count: str) -> list[str]:
        """List the jobs that ended since the last progress, with their durations."""
        ended, self._ended = self._ended, []
        now = time.monotonic()
        return [_now(f"{count} done, {duration(now - begun)}: {title}") for title, begun in ended]

    def _message(self, record: logging.LogRecord) -> list[str]:
        """Return a warning or an error, except about failed jobs: lines of their logs follow at the end."""
        text = str(record.getMessage())
        if text.startswith(snakemake_api.INTERRUPTED):
            self._failures.interrupted = True
            return ["Interrupted: running jobs are ended; run the same command to continue."]
        if text == snakemake_api.SOME_FAILED:
            return [] if self._failures.interrupted else ["Some jobs failed:"]
        if text.startswith(snakemake_api.ABOUT_FAILURES):
            return []
        return [text] if record.levelno >= logging.WARNING or text.startswith("Nothing to be done") else []


def _now(text: str) -> str:
    """Put the time before a line."""
    return f"{time.strftime('%H:%M:%S')} {text}"


class Failures:
    """Failed jobs that did not succeed later; the errors in their logs are the last lines of this program."""

    def __init__(self) -> None:
        self._logs: dict[int, str] = {}
        #: jobs that fail from now on were cancelled by the user
        self.interrupted = False
        atexit.register(self._show)

    def add(self, record: Any) -> None:
        """Note a failed job, unless it was interrupted."""
        if not self.interrupted:
            self._logs[record.jobid] = next(iter(record.log or []), f"rule {record.rule_name}")

    def remove(self, record: Any) -> None:
        """Forget a job that succeeded at another attempt."""
        self._logs.pop(record.job_id, None)

    def _show(self) -> None:
        lines = [f"{log}: {line}" for log in self._logs.values() for line in _errors_in(Path(log))]
        sys.stderr.write("".join(f"{line}\n" for line in lines))


def _errors_in(path: Path) -> list[str]:
    """Lines of a log at the level ERROR, without tracebacks."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    errors = re.findall(r"^\d\d:\d\d:\d\d ERROR (.*(?:\n(?!\d\d:\d\d:\d\d |Traceback ).+)*)", text, re.MULTILINE)
    lines = [line for error in errors for line in error.splitlines()]
    return lines or ["found no error in the log; the job may have been killed for lack of memory"]
