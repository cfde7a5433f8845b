"""All that this workflow uses of Snakemake beyond what it documents: its state on disk, its settings, its log.

Another release may change any of it: pyproject.toml bounds the releases, and tests/workflow/test_snakemake_api.py fails
where something is gone.
"""

from __future__ import annotations

import binascii
import json
import logging
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from snakemake.logging import logger

FOLDER = Path(".snakemake")
LOCKS = FOLDER / "locks"
RECORDS = FOLDER / "metadata"
INCOMPLETE = FOLDER / "incomplete"
#: logged when a workflow begins to execute, and before it looks for locks; not by a dry run or a question
STARTED = "workflow_started"
#: how the error begins that refuses to make files again that are write-protected
PROTECTED = "Write-protected output files"


def is_main(workflow: Any) -> bool:
    """Tell whether this process is the one a person called, not one that runs a job for it."""
    return bool(workflow.is_main_process)


def is_dry_run(workflow: Any) -> bool:
    """Tell whether nothing will be executed."""
    return bool(workflow.output_settings.dryrun)


def uses_locks(workflow: Any) -> bool:
    """Tell whether locks are wanted: not with ``--nolock``."""
    return bool(workflow.execution_settings.lock)


def is_on_cluster(workflow: Any) -> bool:
    """Tell whether an executor runs the jobs that is not local: those need ``--jobs``."""
    return workflow.nodes is not None


def limit_of(workflow: Any, resource: str) -> int | None:
    """Return how much of a resource all jobs together may use, None for no limit; "_cores" are the cores."""
    limit: int | None = workflow.global_resources.get(resource).value
    return limit


def set_limit(workflow: Any, resource: str, amount: int) -> None:
    """Limit what all jobs together may use of a resource."""
    workflow.register_resource(resource, amount)


def scattered(workflow: Any, process: str) -> int | None:
    """Return the number of parts that ``--set-scatter`` asks for."""
    parts: int | None = workflow.resource_settings.overwrite_scatter.get(process)
    return parts


def set_scattered(workflow: Any, process: str, parts: int) -> None:
    """Set the number of parts, also for every call of Snakemake that this one makes."""
    settings = workflow.resource_settings
    settings.overwrite_scatter = {**settings.overwrite_scatter, process: parts}


class LogFilter(logging.Filter):
    """Lets every message of Snakemake pass, and tells of the start of a workflow and of refusals of protected files."""

    def __init__(self, at_start: Callable[[], None], hint: str) -> None:
        super().__init__()
        self.at_start, self.hint = at_start, hint

    def filter(self, record: logging.LogRecord) -> bool:
        """Let a message pass."""
        if getattr(record, "event", None) == STARTED:
            self.at_start()
        elif record.levelno >= logging.ERROR and PROTECTED in str(record.msg):
            record.msg = f"{record.msg}\n{self.hint}"
        return True


def listen(at_start: Callable[[], None], hint: str) -> None:
    """Call `at_start` when this workflow begins to execute; say `hint` when it would make protected files again."""
    for other in [filter_ for filter_ in logger.filters if isinstance(filter_, LogFilter)]:
        logger.removeFilter(other)
    logger.addFilter(LogFilter(at_start, hint))


def say(line: str) -> None:
    """Log a line among those of Snakemake."""
    logger.info(line)


def lock_files() -> list[Path]:
    """List Snakemake's locks: files with a path of a locked file in each line."""
    return sorted(LOCKS.glob("*.lock"))


def records() -> Iterator[tuple[Path, str, dict[str, Any] | None]]:
    """Yield the file, the output and the content of every record of a job's output; None if it is unreadable."""
    for path in [path for path in RECORDS.rglob("*") if path.is_file()]:
        try:
            # Its name is the output's in base64, in pieces that a file system takes.
            pieces = (part.removeprefix("@") for part in path.relative_to(RECORDS).parts)
            output = urlsafe_b64decode("".join(pieces)).decode()
        except (binascii.Error, UnicodeDecodeError):
            continue
        try:
            found = json.loads(path.read_bytes())
        except ValueError:
            found = None
        yield path, output, found if isinstance(found, dict) else None


def mark_incomplete(record: Path) -> None:
    """Turn the record of an output into the mark of a job that did not end, so that it runs again."""
    mark = INCOMPLETE / record.relative_to(RECORDS)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_text('{"external_jobid": null}', encoding="utf-8")
    record.unlink()
