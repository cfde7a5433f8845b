"""Take one public file out of its archive, which is fetched if it is not there; a folder may have the file itself.

Nothing else of the archive is unpacked. The file is counted and checked while it streams, and appears whole or not at
all.

Reads:  cort/downloads/catalog.yaml, the archive, the network or a folder
Writes: the file, checked
Usage:  python -m cort.extract --name msmarco/collection.tsv --downloads results/.downloads --output collection.tsv
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from cort.downloads.archives import extract
from cort.downloads.fetch import FileOptions, Sources, place
from cort.system import cli
from cort.system.errors import input_error

log = logging.getLogger(__name__)


class Options(FileOptions):
    """Options of this stage."""


def stage(options: Options) -> None:
    """Find the file or its archive, extract, check."""
    sources = Sources.of(options)
    file = sources.catalog.find(options.name)
    if not file.archive:
        raise input_error(options.name, "a file in no archive", "a member of one", "use cort.download")
    found = sources.in_folder(file)
    if found is not None:
        place(found, options.output)
        return
    archive = sources.obtain(sources.catalog.source_of(options.name))
    size = extract(archive, file, Path(options.output))
    log.info("%s: %d bytes of %s, %s", file.name, size, archive, file.facts)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
