"""Take one public file out of its archive, which is fetched if it is not there; a folder may have the file itself.

Nothing else of the archive is unpacked. The file is counted and checked while it streams, and appears whole or not at
all.

Reads:  cort/catalog.yaml, the archive, the network or a folder
Writes: the file, checked
Usage:  python -m cort.extract --name msmarco/collection.tsv --downloads results/.downloads --output collection.tsv
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from cort.downloads.archives import extract
from cort.downloads.options import add_options, sources_from
from cort.downloads.sources import place
from cort.system import cli
from cort.system.errors import input_error

log = logging.getLogger(__name__)


def build_parser() -> argparse.ArgumentParser:
    """Command line of the stage."""
    parser = cli.make_parser("cort.extract", __doc__)
    add_options(parser)
    return parser


def stage(args: argparse.Namespace) -> None:
    """Find the file or its archive, extract, check."""
    sources = sources_from(args)
    file = sources.catalog.find(args.name)
    if not file.archive:
        raise input_error(args.name, "a file in no archive", "a member of one", "use cort.download")
    found = sources.in_folder(file)
    if found is not None:
        place(found, Path(args.output))
        return
    archive = sources.obtain(sources.catalog.source_of(args.name))
    size = extract(archive, file, Path(args.output))
    log.info("%s: %d bytes of %s, %s", file.name, size, archive, file.facts)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())
