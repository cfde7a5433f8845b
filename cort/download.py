"""Get public files in the catalogue from a folder, or from the first mirror that provides the complete, right file.

Usage: python -m cort.download file --name msmarco/qrels.train.tsv --downloads results/.downloads --output
           qrels.train.tsv
       python -m cort.download member --name msmarco/collection.tsv --downloads results/.downloads --output
           collection.tsv
"""

import logging
import sys
from pathlib import Path

from cort.downloads.archives import extract
from cort.downloads.fetch import FileOptions, Sources, place
from cort.system.commands import Commands, main_of_commands
from cort.system.errors import input_error

log = logging.getLogger(__name__)


class DownloadOptions(FileOptions):
    """Get a public file from a folder, or from the first mirror that provides the complete, right file.

    Partial and complete downloads are kept in the folder `--downloads`, and interrupted downloads are resumed.

    Reads:  cort/downloads/catalog.yaml, the network or a folder
    Writes: the file, checked
    """


def download_file(options: DownloadOptions) -> None:
    """Find or fetch the file, check it, and put it in place."""
    sources = Sources.of(options)
    file = sources.catalog.find(options.name)
    if not file.urls:
        raise input_error(options.name, f"a member of {file.archive}", "a file with URLs", "use `cort.download member`")
    place(sources.obtain(file), options.output)


class ExtractOptions(FileOptions):
    """Extract one public file from its archive, which is fetched if necessary, unless a folder has the file itself.

    Nothing else in the archive is unpacked. The file is checked while it streams, and appears only when it is complete.

    Reads:  cort/downloads/catalog.yaml, the archive, the network or a folder
    Writes: the file, checked
    """


def extract_member(options: ExtractOptions) -> None:
    """Find the file, or extract it from its archive and check it."""
    sources = Sources.of(options)
    file = sources.catalog.find(options.name)
    if not file.archive:
        raise input_error(options.name, "a file with URLs", "a member of an archive", "use `cort.download file`")
    copy = sources.in_folder(file)
    if copy is not None:
        place(copy, options.output)
        return
    archive = sources.obtain(sources.catalog.find(file.archive))
    size = extract(archive, file, Path(options.output))
    log.info("%s: %d bytes of %s, %s", file.name, size, archive, file.facts)


COMMANDS: Commands = {
    "file": (DownloadOptions, download_file),
    "member": (ExtractOptions, extract_member),
}
main = main_of_commands(COMMANDS)

if __name__ == "__main__":
    sys.exit(main())
