"""What changes the texts of a BM25 index: predicted queries, which are appended to passages, and term weights.

Our tables of both have a row per passage, in the order of the passages; several files are read one after another. The
files published for doc2query and docTTTTTquery are read here, too.
"""

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import IO, cast
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.compute as pc

from cort.formats import tables
from cort.formats.damage import refusing_damage
from cort.formats.lines import SMALL_BLOCK, decode_lines, iter_blocks_of, iter_lines
from cort.formats.members import ARCHIVE, iter_members, names_in
from cort.runtime.errors import input_error, shorten

#: the predicted queries of one passage
Queries = list[str]

TARS = (".tar.gz", ".tgz")
SAMPLE = re.compile(r"(?:.*/)?[\w.-]*sample([0-9]{1,9})\.txt([0-9]{1,9})(?:-[0-9]+)?")


# Tables with a row per passage.


def iter_expanded(passages: str, files: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the passages in batches, each text followed by its queries, all separated by spaces."""
    for batch, queries in iter_beside(passages, files, tables.EXPANSIONS, rows):
        appended = pc.binary_join(queries["queries"], " ")
        expanded = pc.binary_join_element_wise(batch["text"], appended, " ")
        text = pc.if_else(pc.equal(pc.binary_length(appended), 0), batch["text"], expanded)
        yield pa.record_batch([batch["doc_id"], text], schema=tables.PASSAGES)


def iter_beside(
    passages: str, files: Sequence[str], schema: pa.Schema, rows: int
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Yield the passages in batches, each with the matching rows of the files."""
    others = chain.from_iterable(tables.iter_batches(path, schema, rows) for path in files)
    texts = tables.iter_batches(passages, tables.PASSAGES, rows)
    for one, beside in zip(tables.regroup(texts, rows), tables.regroup(others, rows), strict=True):
        yield _to_batch(one), _to_batch(beside)


def _to_batch(table: pa.Table) -> pa.RecordBatch:
    return pa.record_batch([column.combine_chunks() for column in table.columns], schema=table.schema)


# Published predictions: line i has the queries of passage i.


def iter_predictions(path: str | Path, samples: int | None = None) -> Iterator[Queries]:
    """Yield the predicted queries of each passage, in the order of the collection.

    A ``.txt``, ``.txt.gz``, or ``.tar.gz`` of one file has all queries of a passage on one line (doc2query). A ``.zip``
    has a file per sample and part of the collection, ``*sample<number>.txt<part>-...``, with one query per line
    (docTTTTTquery).

    :param samples: how many samples of a ``.zip`` to take, in ascending order of their numbers; None takes all.
    :raises InputError: for a damaged file, too few samples, or samples with different numbers of lines.
    """
    if str(path).endswith(".zip"):
        yield from _of_samples(path, samples)
        return
    lines = _of_tar(path) if str(path).endswith(TARS) else (line.strip() for _, line in iter_lines(path))
    yield from ([line] if line else [] for line in lines)


def _of_tar(path: str | Path) -> Iterator[str]:
    """Yield the lines of the only file in an archive."""
    with refusing_damage(path, *ARCHIVE):
        for number, (name, content) in enumerate(iter_members(path)):
            if number:
                found, expected = f"a second file, {shorten(name)}", "one file with a line per passage"
                raise input_error(path, found, expected, "unpack it and name the right one")
            yield from _lines(content, f"{path}: {name}")


def _of_samples(path: str | Path, samples: int | None) -> Iterator[Queries]:
    with refusing_damage(path, *ARCHIVE), ZipFile(path) as archive:
        for part in _parts(path, names_in(archive), samples):
            with ExitStack() as opened:
                files = [_lines(opened.enter_context(archive.open(name)), f"{path}: {name}") for name in part]
                for lines in zip(*files, strict=True):
                    yield [line for line in lines if line]


def _parts(path: str | Path, names: Sequence[str], samples: int | None) -> list[list[str]]:
    """List the files of the first samples, in order, for each part of the collection."""
    parts: dict[int, list[tuple[int, str]]] = {}
    for match in filter(None, map(SAMPLE.fullmatch, names)):
        parts.setdefault(int(match[2]), []).append((int(match[1]), match[0]))
    if (fewest := min(map(len, parts.values()), default=0)) < (samples or 1):
        expected = f"at least {samples or 1} of each part, in files named *sample<number>.txt<part>-*"
        raise input_error(path, f"{fewest} samples", expected, "take fewer (queries), or name another file")
    return [[name for _, name in sorted(files)[:samples]] for _, files in sorted(parts.items())]


def _lines(content: IO[bytes], source: str) -> Iterator[str]:
    for block in iter_blocks_of(cast("io.BufferedIOBase", content), source, SMALL_BLOCK):
        yield from (line.strip() for _, line in decode_lines(source, block))
