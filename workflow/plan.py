"""Show which jobs would run, and what they lack here; or run them with a lock, after a look at the input files.

Usage: python -m workflow.plan [--configfile config/pydocs.yaml] [--run | --force] [-- further options of snakemake]
"""

from __future__ import annotations

import fcntl
import os
import sys
import textwrap
from collections import Counter
from pathlib import Path

from cort.experiment.checks import ConfigError, load, read
from cort.experiment.experiment import Experiment
from cort.runtime.errors import InputError, input_error
from cort.settings import paths
from workflow import preflight
from workflow.command_line import columns, new_parser, part_arguments
from workflow.snakemake_api import Job, PlanError, plan

LOCK = Path(paths.ROOT, ".lock")


def main(argv: list[str] | None = None) -> int:
    """Print the plan, or run it; 1 if there are problems."""
    own, further = part_arguments(argv)
    parser = new_parser("plan", __doc__)
    parser.add_argument("--run", action="store_true", help="run it, if no file is missing")
    parser.add_argument("--force", action="store_true", help="run it without checks")
    args = parser.parse_args(own)
    arguments = ["--cores", "all", *further, "--configfile", args.configfile]
    try:
        # Snakemake would wait for a pipe forever, and its errors name neither file nor row.
        read(args.configfile)
        if args.force:
            run(arguments)
        experiment = load(args.configfile)
        problems = [*preflight.check_inputs(experiment, Path.cwd()), *preflight.check_writable(experiment, Path.cwd())]
        if args.run and not problems:
            run(arguments)
        if not problems:
            jobs, here = plan(arguments)
            waiting = [job for job in jobs if job.planned]
            sys.stdout.write(describe(experiment, waiting))
            problems = preflight.check_machine(waiting, experiment) if here else []
    except (ConfigError, InputError, PlanError) as error:
        problems = [str(error)]
    sys.stderr.write("".join(f"{line}\n" for line in problems))
    return 1 if problems else 0


def run(arguments: list[str]) -> None:
    """Replace this process by Snakemake, which then holds the lock until it ends, however it ends; its jobs do not.

    :raises InputError: if another build holds the lock.
    """
    options = []
    try:
        LOCK.parent.mkdir(exist_ok=True)
        descriptor = os.open(LOCK, os.O_CREAT | os.O_WRONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.set_inheritable(descriptor, True)
        # The kernel's lock replaces Snakemake's, which a killed build would leave behind.
        options = ["--nolock"]
    except BlockingIOError:
        raise input_error(str(LOCK), "a running build", "none", "wait for it or end it") from None
    except OSError:
        # Without locks, or a folder: Snakemake does what it does without this module.
        pass
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "workflow.interruptible", *options, *arguments])  # noqa: S606


def describe(experiment: Experiment, jobs: list[Job]) -> str:
    """Write how many jobs of each rule would run, in an order in which they could begin."""
    if not jobs:
        return "Nothing would run: everything is up to date.\n"
    # No line ends between a rule and its number.
    counts = ", ".join(f"{rule}\xa0{count}" for rule, count in Counter(job.rule for job in jobs).items())
    text = textwrap.fill(counts, columns(100), initial_indent="  ", subsequent_indent="  ").replace("\xa0", " ")
    return f"{experiment.config['dataset']}: {len(jobs)} job{'s' * (len(jobs) > 1)} would run.\n{text}\n"


if __name__ == "__main__":
    sys.exit(main())
