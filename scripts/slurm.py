"""The SLURM of scripts/slurm-sandbox around a piece of work: variables and words with which Snakemake submits to it."""

import os
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cort.system.errors import input_error
from scripts.sandbox import ROOT

SCRIPT = ROOT / "scripts" / "slurm-sandbox"
# Jobs are looked at often, and as many at a time as two cores stand.
SUBMITTING = ("--workflow-profile", "profiles/slurm", "--jobs", "6", "--slurm-init-seconds-before-status-checks", "4")


def variables(folder: Path) -> dict[str, str]:
    """Give the variables with which commands use the SLURM of a folder."""
    shown = subprocess.run([SCRIPT, "env", folder], capture_output=True, text=True, check=True).stdout
    named = dict(word.split("=", maxsplit=1) for word in shlex.split(shown)[1:])
    path = named["PATH"].replace("$PATH", f"{os.environ['PATH']}:/usr/sbin:/sbin")
    return {"SLURM_CONF": named["SLURM_CONF"], "PATH": path}


@contextmanager
def slurm(folder: Path | None) -> Iterator[tuple[dict[str, str], Sequence[str]]]:
    """Start a SLURM in a folder; yield variables and words, neither without a folder.

    :raises InputError: this machine cannot run it.
    """
    if folder is None:
        yield {}, ()
        return
    started = subprocess.run([SCRIPT, "start", folder], capture_output=True, text=True, check=False)
    if started.returncode:
        raise input_error("--slurm", started.stderr.strip(), "SLURM on this machine", "see above")
    try:
        yield variables(folder), [*SUBMITTING, "--set-scatter", "encode=2"]
    finally:
        subprocess.run([SCRIPT, "stop", folder], capture_output=True, check=False)
