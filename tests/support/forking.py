"""Processes that start at once, as copies of one that has imported libraries (forkserver.py).

What Snakemake runs starts this way unless a test takes the fixture `real_starts`, as those of signals and of SLURM do.
"""

import os
import sys
import tempfile
from pathlib import Path

from tests.support.forkclient import OWNER, PLACE, call

FORKED = Path(__file__).with_name("forked")
#: Read by each bash, so that its `python` is the client of the server.
HOOK = "BASH_ENV"
# There are more processes than cores, and threads that wait for each other's products would take them all, in turns.
# OpenMP reads it when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def begin():
    """Have all processes below this one start stages by one server, which ends with this one."""
    # Otherwise each stage of each build would compile the project anew, and each session all tests.
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if OWNER not in os.environ:
        folder = tempfile.mkdtemp(prefix="cort-tests-")
        os.environ |= {OWNER: str(os.getpid()), PLACE: f"{folder}/server"}
        os.environ |= {"CORT_FORKED": str(FORKED), "CORT_PYTHON": sys.executable}
        os.environ[HOOK] = str(FORKED / "bash_env")


def run_module(folder, module, *arguments):
    """Run `python -m module arguments` in a folder; return its status and output."""
    with tempfile.TemporaryFile() as output, open(os.devnull, "rb") as nothing:
        descriptors = (nothing.fileno(), output.fileno(), output.fileno())
        status = call([module, *map(str, arguments)], str(folder), dict(os.environ), descriptors)
        output.seek(0)
        return status, output.read().decode()


def succeed(folder, module, *arguments):
    """Run a module as `run_module` does; it must succeed. Its output."""
    status, output = run_module(folder, module, *arguments)
    assert status == 0, output[-10_000:]
    return output


def snakemake(folder, *arguments):
    """Call snakemake in a folder; return its status and output."""
    return run_module(folder, "snakemake", *arguments)
