"""Show which jobs would run, and what they lack here; or run them, after a look at the input files.

Usage: python -m workflow.plan [--configfile config/pydocs.yaml] [--run | --force] [-- further options of snakemake]
"""

from __future__ import annotations

import os
import sys
import textwrap
from collections import Counter
from pathlib import Path

from cort.config.experiment import Experiment
from cort.config.load import ConfigError, load, read
from cort.runtime.errors import InputError
from workflow import preflight
from workflow.command_line import columns, new_parser, part_arguments
from workflow.forecast import forecast
from workflow.running import SUMMARY_FOLLOWS, check_lock
from workflow.snakemake_api import Job, PlanError, plan


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
        dataset = str(read(args.configfile).get("dataset"))
        if args.force:
            run(dataset, args.configfile, arguments)
        experiment = load(args.configfile)
        problems = [*preflight.check_inputs(experiment, Path.cwd()), *preflight.check_writable(experiment, Path.cwd())]
        if args.run and not problems:
            run(dataset, args.configfile, arguments)
        if not problems:
            jobs, here = plan(arguments)
            waiting = [job for job in jobs if job.planned]
            sys.stdout.write(describe(experiment, waiting) + forecast(experiment, waiting))
            planned = {file for job in waiting for file in job.outputs}
            problems = preflight.check_machine(experiment, planned.__contains__, here)
    except (ConfigError, InputError, PlanError) as error:
        problems = [str(error)]
    sys.stderr.write("".join(f"{line}\n" for line in problems))
    return 1 if problems else 0


def run(dataset: str, configfile: str, arguments: list[str]) -> None:
    """Replace this process by Snakemake.

    :raises InputError: if another build holds Snakemake's lock.
    """
    check_lock(dataset, configfile, Path.cwd())
    sys.stdout.flush()
    os.environ[SUMMARY_FOLLOWS] = "True"
    os.execv(sys.executable, [sys.executable, "-m", "workflow.interruptible", *arguments])  # noqa: S606


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
