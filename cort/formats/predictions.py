"""Files of predicted queries as doc2query and docTTTTTquery were published: a line is of a passage, and names none.

* ``.txt``, ``.txt.gz``, or ``.tar.gz`` with one file: all queries of a passage on its line (doc2query)
* ``.zip`` of a file per sample and part of the collection, ``*sample<number>.txt<part>-...``: one query on a passage's
  line (docTTTTTquery)
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, cast

from cort.formats.lines import iter_lines
from cort.formats.members import FETCH, choose, iter_member_lines, iter_tar, open_zip, refusing_damage
from cort.system.errors import InputError, input_error, shorten

#: the queries of one passage
Queries = list[str]

TARS = (".tar.gz", ".tgz")
MEMBER = re.compile(r"(?:.*/)?[\w.-]*sample([0-9]{1,9})\.txt([0-9]{1,9})(?:-[0-9]+)?")


def iter_predictions(path: str | Path, samples: int | None = None) -> Iterator[Queries]:
    """Yield the predicted queries of each passage, in the order of the collection.

    :param samples: of a ``.zip``, how many of its samples are taken: those of the lowest numbers.
    :raises InputError: for a damaged file; for files of samples that do not fit together, or fewer samples.
    """
    if (str(path).endswith(".zip")) != (samples is not None):
        found = "no number of samples" if samples is None else f"{samples} samples"
        raise input_error(path, found, "a number with a .zip of samples alone", "fix --queries")
    if samples is not None:
        if samples < 1:
            raise input_error(path, f"{samples} samples to take", "1 or more", "fix --queries")
        yield from _of_samples(path, samples)
    elif str(path).endswith(TARS):
        yield from ([line] if line else [] for line in _of_tar(path))
    else:
        yield from ([line.strip()] if line.strip() else [] for _, line in iter_lines(path))


def _of_tar(path: str | Path) -> Iterator[str]:
    """Yield the lines of the only file of an archive."""
    with refusing_damage(path), gzip.open(path) as packed:
        found = None
        for archive, member in iter_tar(path, cast("IO[bytes]", packed)):
            if not member.isfile():
                continue
            if found is not None:
                names = f"the files {shorten(found)} and {shorten(member.name)}"
                raise input_error(path, names, "one file with a line per passage", "unpack it and name the right one")
            found = member.name
            yield from _lines(cast("IO[bytes]", archive.extractfile(member)), f"{path}: {found}")
        if found is None:
            raise input_error(path, "no file in it", "one with a line per passage", FETCH)


def _of_samples(path: str | Path, samples: int) -> Iterator[Queries]:
    with open_zip(path) as (archive, names):
        for part in _parts(path, choose(path, names, MEMBER), samples):
            with ExitStack() as opened:
                files = [_lines(opened.enter_context(archive.open(name)), f"{path}: {name}") for name in part]
                yield from _rows(path, part, files)


def _parts(path: str | Path, names: Sequence[str], samples: int) -> list[list[str]]:
    """List the members of each part of the collection, those of the first samples in order."""
    found: dict[tuple[int, ...], str] = {}
    for match in filter(None, map(MEMBER.fullmatch, names)):
        name, key = match[0], tuple(map(int, match.groups()))
        if (other := found.setdefault(key, name)) != name:
            both = f"the files {shorten(other)} and {shorten(name)}"
            raise input_error(path, both, "one file of each part of a sample", "remove one of the two")
    numbers, parts = sorted({number for number, _ in found}), sorted({part for _, part in found})
    if len(numbers) < samples:
        expected = f"{samples} at least, in files named *sample<number>.txt<part>-*"
        raise input_error(path, f"{len(numbers)} samples", expected, "take fewer (queries), or name another file")
    if parts != list(range(len(parts))):
        raise input_error(path, f"the parts {', '.join(map(str, parts))}", "0, 1 and so on", FETCH)
    for number in numbers[:samples]:
        for part in parts:
            if (number, part) not in found:
                raise input_error(path, f"no part {part} of sample {number}", "each part of each sample", FETCH)
    return [[found[number, part] for number in numbers[:samples]] for part in parts]


def _rows(path: str | Path, names: Sequence[str], files: Sequence[Iterator[str]]) -> Iterator[Queries]:
    """Yield the lines of files side by side, without the empty ones; all files have as many."""
    row = 0
    try:
        for lines in zip(*files, strict=True):
            row += 1
            yield [line for line in lines if line]
    except InputError:
        raise
    except ValueError as error:
        # "zip() argument 3 is shorter than arguments 1-2"
        name = names[int(re.findall(r"\d+", str(error))[0]) - 1]
        words = "no line" if "shorter" in str(error) else "a line"
        found = f"{words} after {row} in {name}"
        raise input_error(path, found, "as many lines in each sample of a part", FETCH) from None


def _lines(handle: IO[bytes], source: str) -> Iterator[str]:
    """Yield the lines of a stream without white space around them."""
    return (line.strip() for _, line in iter_member_lines(handle, source))
