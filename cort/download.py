"""Get public files in the catalogue from a folder, or from the first mirror that provides the complete, right file.

Usage: python -m cort.download file --name msmarco/qrels.train.tsv --downloads results/.downloads --output
           qrels.train.tsv
       python -m cort.download member --name msmarco/collection.tsv --downloads results/.downloads --output
           collection.tsv
"""

import logging
import os
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from cort.downloads.catalog import CHUNK, PublicFile, load_catalog
from cort.downloads.fetch import Sources
from cort.formats.members import iter_members, refusing_damage
from cort.system.commands import Commands, main_of_commands
from cort.system.errors import input_error
from cort.system.files import atomic_file
from cort.system.options import optional, options_class, required
from cort.system.progress import track

log = logging.getLogger(__name__)


@options_class
class FileOptions:
    """Options of both commands: which file, where to look for it, and where to put it."""

    name: str = required(help="in the catalogue, for example msmarco/qrels.train.tsv")
    catalog: str | None = optional(None, "a catalogue other than this project's", "YAML")
    downloads: str = required("FOLDER", "for complete and partial downloads")
    folder: str | None = optional(None, "your copies of the files; only read", "FOLDER")
    output: str = required("FILE")


class DownloadOptions(FileOptions):
    """Get a public file from a folder, or from the first mirror that provides the complete, right file.

    Partial and complete downloads are kept in the folder `--downloads`, and interrupted downloads are resumed.

    Reads:  cort/downloads/catalog.yaml, the network or a folder
    Writes: the file, checked
    """


class ExtractOptions(FileOptions):
    """Extract one public file from its archive, which is fetched if necessary, unless a folder has the file itself.

    Nothing else in the archive is unpacked. The archive is checked, and the file appears only when it is complete.

    Reads:  cort/downloads/catalog.yaml, the archive, the network or a folder
    Writes: the file
    """


def sources_of(options: FileOptions) -> Sources:
    """Read the catalogue, and check the folder."""
    folder = Path(options.folder) if options.folder else None
    if folder is not None and not folder.is_dir():
        raise input_error(folder, "no such folder", "the folder with your files", "fix downloads.folder")
    return Sources(load_catalog(options.catalog), Path(options.downloads), folder)


def download_file(options: DownloadOptions) -> None:
    """Find or fetch the file, check it, and put it in place."""
    sources = sources_of(options)
    file = sources.catalog.find(options.name)
    if not file.urls:
        raise input_error(options.name, f"a member of {file.archive}", "a file with URLs", "use `cort.download member`")
    place(sources.obtain(file), options.output, sources.own)


def extract_member(options: ExtractOptions) -> None:
    """Find the file, or extract it from its archive."""
    sources = sources_of(options)
    file = sources.catalog.find(options.name)
    if not file.archive:
        raise input_error(options.name, "a file with URLs", "a member of an archive", "use `cort.download file`")
    if (copy := sources.in_folder(file)) is not None:
        place(copy, options.output, sources.own)
    else:
        extract(sources.obtain(sources.catalog.find(file.archive)), file, options.output)


def place(source: Path, output: str | Path, own: Path) -> None:
    """Link a download of this project to its place, and copy any other file.

    Snakemake sets the times of outputs, and a link would pass that on to a file of the user.
    """
    with atomic_file(output) as temporary:
        try:
            if not source.is_relative_to(own) or source.stat().st_uid != os.geteuid():
                raise PermissionError
            os.link(source.resolve(), temporary)
        except OSError:
            shutil.copyfile(source, temporary)


def extract(archive: Path, file: PublicFile, output: str | Path) -> None:
    """Write a member of an archive to a file."""
    with atomic_file(output) as temporary, open(temporary, "wb") as out:
        out.writelines(track(_chunks(archive, str(file.member)), file.about // CHUNK or None, "MiB"))
        log.info("%s: %d bytes of %s", file.name, out.tell(), archive)


def _chunks(archive: Path, member: str) -> Iterator[bytes]:
    with refusing_damage(archive):
        for name, content in iter_members(archive):
            if name == member:
                yield from iter(partial(content.read, CHUNK), b"")
                return
        raise input_error(archive, f"no {member} in it", "that file", "fetch the archive again")


COMMANDS: Commands = {
    "file": (DownloadOptions, download_file),
    "member": (ExtractOptions, extract_member),
}
main = main_of_commands(COMMANDS)

if __name__ == "__main__":
    sys.exit(main())
