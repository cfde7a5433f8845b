"""Compare two builds on the queries that both have: differences per measure, queries that moved, settings that differ.

Each is a folder of results, or a config whose results are there. Nothing is built.

Usage: python -m workflow.versus --a results/old --b results/new --split test [--system fused]
"""

from __future__ import annotations

import argparse
import sys

from cort.config.load import ConfigError
from cort.online.options import read_results
from cort.reporting.builds import compare_builds, lines, name_of, systems_of
from cort.runtime.errors import InputError, input_error


def main(argv: list[str] | None = None) -> int:
    """Print what differs; 1 if the builds cannot be compared."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m workflow.versus", description=__doc__, formatter_class=form)
    parser.add_argument("--a", required=True, help="the older one, from which differences are taken")
    parser.add_argument("--b", required=True, help="the newer one")
    parser.add_argument("--split", required=True, help="with judgements, in both")
    parser.add_argument("--system", help="a name, or OLD=NEW if they differ (default: all systems that both have)")
    args = parser.parse_args(argv)
    try:
        builds = [read_results(args.a), read_results(args.b)]
        if name_of(builds[0]) == name_of(builds[1]):
            raise input_error("A, B", f"{args.a} twice", "two builds", "copy the older results before a new build")
        systems = systems_of(builds, args.split, args.system)
        paired = compare_builds(builds, args.split, systems)
    except (ConfigError, InputError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except FileNotFoundError as error:
        sys.stderr.write(f"{error.filename}: found no such file, expected a finished build; run `snakemake` first\n")
        return 1
    sys.stdout.write("".join(f"{line}\n" for line in lines(builds, args.split, systems, paired)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
