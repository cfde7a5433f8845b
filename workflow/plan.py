"""Show which jobs would run, what they fetch and take, and what they lack here.

Usage: python -m workflow.plan [--configfile config/pydocs.yaml] [-- further options of snakemake]
"""

from __future__ import annotations

import sys
import textwrap
from collections import Counter

from cort.config.experiment import Experiment
from cort.config.load import ConfigError, load
from workflow import estimates, preflight
from workflow.command_line import columns, new_parser, part_arguments
from workflow.forecast import forecast
from workflow.snakemake_api import Job, PlanError, plan


def main(argv: list[str] | None = None) -> int:
    """Print the plan; 1 if there are problems."""
    own, further = part_arguments(argv)
    configfile = new_parser("plan", __doc__).parse_args(own).configfile
    try:
        # Snakemake's errors name neither file nor row, and it would wait for a pipe forever.
        experiment = load(configfile)
        jobs, here = plan(["--cores", "all", *further, "--configfile", configfile])
        waiting = [job for job in jobs if job.planned]
        sys.stdout.write(describe(experiment, waiting) + forecast(experiment, waiting))
        sys.stdout.write(estimates.describe(estimates.estimate(experiment, waiting)))
        planned = {file for job in waiting for file in job.outputs}
        problems = preflight.check_machine(experiment, planned.__contains__, here)
    except (ConfigError, PlanError) as error:
        problems = [str(error)]
    sys.stderr.write("".join(f"{line}\n" for line in problems))
    return 1 if problems else 0


def describe(experiment: Experiment, jobs: list[Job]) -> str:
    """Write how many jobs of each rule would run, in an order in which they could begin."""
    if not jobs:
        return "Nothing would run: everything is up to date.\n"
    # No line ends between a rule and its number.
    counts = ", ".join(f"{rule}\xa0{count}" for rule, count in Counter(job.rule for job in jobs).items())
    text = textwrap.fill(counts, columns(100), initial_indent="  ", subsequent_indent="  ").replace("\xa0", " ")
    return f"{experiment.root.dataset}: {len(jobs)} job{'s' * (len(jobs) > 1)} would run.\n{text}\n"


if __name__ == "__main__":
    sys.exit(main())
