"""Say in plain words why something would be made again: what changed first, then what follows from it.

Usage: python -m workflow.why [TARGET ...] [--configfile config/pydocs.yaml] [-- further options of snakemake]
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from workflow.experiment.checks import ConfigError, load
from workflow.planning.dryrun import DryRunError, dry_run, part_arguments
from workflow.planning.reasons import render


def main(argv: Sequence[str] | None = None) -> int:
    """Explain the targets, or the whole experiment; the exit status."""
    own, further = part_arguments(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="python -m workflow.why", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="files or rules; nothing for the whole experiment")
    parser.add_argument("--configfile", default="config/pydocs.yaml")
    args = parser.parse_args(own)
    try:
        load(args.configfile)
        run = dry_run([*args.targets, "--configfile", args.configfile, *further], Path.cwd())
    except (ConfigError, DryRunError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(render(run, args.targets, Path.cwd()))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
