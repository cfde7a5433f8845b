"""Build an experiment as `make` does: name who else builds it, and end at Ctrl-C with a line that says how to go on.

Usage: python -m workflow.build [--configfile config/pydocs.yaml] [-- further options of snakemake]
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from cort.config.load import ConfigError, read
from cort.runtime.errors import InputError
from workflow.command_line import new_parser, part_arguments
from workflow.running import SUMMARY_FOLLOWS, check_lock


def main(argv: list[str] | None = None) -> None:
    """Become Snakemake; 1 if another build holds its lock."""
    own, further = part_arguments(argv)
    configfile = new_parser("build", __doc__).parse_args(own).configfile
    try:
        # Snakemake would wait for a pipe forever.
        check_lock(str(read(configfile).get("dataset")), configfile, Path.cwd())
    except (ConfigError, InputError) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)
    os.environ[SUMMARY_FOLLOWS] = "True"
    run(["--cores", "all", *further, "--configfile", configfile])


def run(words: Sequence[str]) -> None:
    """Run Snakemake; raise KeyboardInterrupt at its end if there was one, which it takes for a failure."""
    received = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        received.append(number)
        signal.default_int_handler(number, frame)

    # A background job of a shell ignores Ctrl-C.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupt)
    try:
        from snakemake.cli import main as snakemake

        sys.argv = ["snakemake", *words]
        snakemake()
    finally:
        if received:
            raise KeyboardInterrupt


if __name__ == "__main__":
    main()
