"""Take in a public file of the catalogue: from a folder, or from the first mirror that gives it whole and right.

Partial files and finished downloads are kept in the folder `--downloads`; what was killed goes on from where it was.

Reads:  cort/catalog.yaml, the network or a folder
Writes: the file, checked
Usage:  python -m cort.download --name msmarco/qrels.train.tsv --downloads results/.downloads --output qrels.train.tsv
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from cort.downloads.options import add_options, sources_from
from cort.downloads.sources import place
from cort.system import cli
from cort.system.errors import input_error

log = logging.getLogger(__name__)


def build_parser() -> argparse.ArgumentParser:
    """Command line of the stage."""
    parser = cli.make_parser("cort.download", __doc__)
    add_options(parser)
    return parser


def stage(args: argparse.Namespace) -> None:
    """Find or fetch, check, put in place."""
    sources = sources_from(args)
    file = sources.catalog.find(args.name)
    if not file.urls:
        raise input_error(args.name, f"a member of {file.archive}", "a file with URLs", "use cort.extract")
    place(sources.obtain(file), Path(args.output))


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())
