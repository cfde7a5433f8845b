"""Extract one public file from its archive, which is fetched if need be, unless a folder has the file itself.

Nothing else in the archive is unpacked. The file is checked while it streams, and appears only when it is complete.

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
    """Find the file, or extract it from its archive and check it."""
    sources = Sources.of(options)
    file = sources.catalog.find(options.name)
    if not file.archive:
        raise input_error(options.name, "a file with URLs", "a member of an archive", "use cort.download")
    copy = sources.in_folder(file)
    if copy is not None:
        place(copy, options.output)
        return
    archive = sources.obtain(sources.catalog.source_of(options.name))
    size = extract(archive, file, Path(options.output))
    log.info("%s: %d bytes of %s, %s", file.name, size, archive, file.facts)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
