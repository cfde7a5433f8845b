"""Show what would run, with time, memory and disk; refuse what this machine cannot run, with remedies.

If an experiment names papers, also show how many of their numbers it computes.

Usage: python -m workflow.plan [--configfile config/pydocs.yaml] [--cores N] [--run | --force]
       [-- further options of snakemake]
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from cort.formats.yaml_files import read_yaml
from cort.system.errors import InputError
from workflow.command_line import new_parser
from workflow.planning.dryrun import DryRun, DryRunError, dry_run, part_arguments


def main(argv: list[str] | None = None) -> int:
    """Print the forecast, or with --run one line before it runs; 1 if there are problems."""
    own, further = part_arguments(sys.argv[1:] if argv is None else argv)
    parser = new_parser("plan", __doc__)
    parser.add_argument("--cores", type=int, help="default: all")
    parser.add_argument("--run", action="store_true", help="run it if there are no problems")
    parser.add_argument("--force", action="store_true", help="run it without checks")
    args = parser.parse_args(own)
    if args.cores is not None and args.cores < 1:
        parser.error(f"argument --cores: found {args.cores}, expected 1 or more")
    args.cores = args.cores or len(os.sched_getaffinity(0))
    arguments = [*further, "--configfile", args.configfile, "--cores", str(args.cores)]
    try:
        # Snakemake would wait for a pipe forever, and its errors name neither file nor row.
        read_yaml(args.configfile, "an experiment")
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if args.force:
        _run(arguments)
        return 0
    try:
        planned = dry_run(arguments, Path.cwd())
    except DryRunError as error:
        planned = DryRun(error=str(error))
    if not planned.jobs and not planned.error:
        sys.stdout.write("Nothing would run: everything is up to date.\n")
        return 0
    problems, text = _report(args, planned)
    sys.stderr.write("".join(f"{line}\n" for line in dict.fromkeys(problems)))
    sys.stdout.write(text)
    if problems:
        return 1
    if args.run:
        _run(arguments)
    return 0


def _run(arguments: list[str]) -> None:
    """Replace this process by Snakemake."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "snakemake", *arguments])  # noqa: S606


def _report(args: argparse.Namespace, planned: DryRun) -> tuple[list[str], str]:
    """Return all problems, and the text of the forecast."""
    # These take half a second to load, and a finished experiment does not need them.
    from cort.experiment.checks import ConfigError, extended, load, read
    from workflow.planning import coverage, forecast, preflight

    folder = Path.cwd()
    try:
        _, notes = extended(read(args.configfile), args.configfile)
        sys.stderr.write("".join(f"note: {note}\n" for note in notes))
        config = load(args.configfile)
    except ConfigError as error:
        return str(error).splitlines(), ""
    if planned.error:
        # Snakemake names only the first missing file.
        problems = preflight.check_inputs(config, folder) or planned.error.splitlines()
        return [*problems, *preflight.check_writable(folder)], ""
    outcome = forecast.make_forecast(planned, config, args.cores, folder)
    if args.run:
        return outcome.problems, "" if outcome.problems else outcome.line
    published = coverage.lines(coverage.of_experiment(args.configfile, config), args.configfile)
    return outcome.problems, outcome.table + "".join(f"{line}\n" for line in ("", *published) if config["papers"])


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
