"""Get a public file of the catalogue from a folder, or from the first mirror that gives the complete, right file.

Partial and complete downloads are kept in the folder `--downloads`, and interrupted downloads are resumed.

Reads:  cort/downloads/catalog.yaml, the network or a folder
Writes: the file, checked
Usage:  python -m cort.download --name msmarco/qrels.train.tsv --downloads results/.downloads --output qrels.train.tsv
"""

from __future__ import annotations

import sys

from cort.downloads.fetch import FileOptions, Sources, place
from cort.system import cli
from cort.system.errors import input_error


class Options(FileOptions):
    """Options of this stage."""


def stage(options: Options) -> None:
    """Find or fetch the file, check it, and put it in its place."""
    sources = Sources.of(options)
    file = sources.catalog.find(options.name)
    if not file.urls:
        raise input_error(options.name, f"a member of {file.archive}", "a file with URLs", "use cort.extract")
    place(sources.obtain(file), options.output)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
