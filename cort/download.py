"""Get a public file in the catalogue from a folder, or from the first mirror that provides the complete, right file.

Partial and complete downloads are kept in the folder `--downloads`, and interrupted ones are resumed. An archive is
fetched only if the folder lacks the file itself; nothing else in it is unpacked.

Reads:  cort/downloads/catalog.yaml, the network or a folder
Writes: the file, checked itself or as a part of its archive
Usage:  python -m cort.download --name msmarco/collection.tsv --downloads results/.downloads --output collection.tsv
"""

import logging
import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

from cort.config.collection import Downloads
from cort.downloads.catalog import CHUNK, PublicFile, load_catalog
from cort.downloads.fetch import Sources
from cort.formats.members import iter_members
from cort.runtime import cli
from cort.runtime.errors import input_error
from cort.runtime.files import atomic_file
from cort.runtime.sections import AnyFile, Contents, FolderPath, Maybe, Section, Text, YamlFile, same_as

log = logging.getLogger(__name__)


class Options(Section):
    """Options of this stage."""

    name: Text
    """In the catalogue, for example msmarco/qrels.train.tsv."""
    catalog: Maybe[YamlFile] = None
    """A catalogue other than this project's."""
    downloads: FolderPath
    """For complete and partial downloads."""
    folder: Maybe[Annotated[str, Contents("FOLDER")]] = same_as(Downloads, "folder")
    """Your copies of the files; only read."""
    output: AnyFile


def stage(options: Options) -> None:
    """Find, fetch or extract the file, and put it in place."""
    folder = Path(options.folder) if options.folder else None
    if folder is not None and not folder.is_dir():
        raise input_error(folder, "no such folder", "the folder with your files", "fix downloads.folder")
    sources = Sources(load_catalog(options.catalog), Path(options.downloads), folder)
    file = sources.catalog.find(options.name)
    if not file.archive:
        place(sources.obtain(file), options.output, sources.own)
    elif copy := sources.in_folder(file):
        place(copy, options.output, sources.own)
    else:
        extract(sources.obtain(sources.catalog.source_of(options.name)), file, options.output)


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
    """Write a member of an archive, which is checked, to a file."""
    with atomic_file(output) as temporary, open(temporary, "wb") as out:
        for name, content in iter_members(archive):
            if name == file.member:
                shutil.copyfileobj(content, out, CHUNK)
                log.info("%s: %d bytes of %s", file.name, out.tell(), archive)
                return
        raise input_error(archive, f"no {file.member} in it", "that file", "fetch the archive again")


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
