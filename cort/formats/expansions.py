"""What changes the texts of a BM25 index: predicted queries, which are appended to passages, and term weights.

Our tables of both have a row per passage, in the order of the passages; several files are read one after another. The
files published for doc2query, docTTTTTquery and DeepCT are read here, too.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, zip_longest
from pathlib import Path
from typing import IO, NamedTuple
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.compute as pc

from cort.formats import tables
from cort.formats.fields import BadLine, checked_id, checked_unicode, parse_json_line
from cort.formats.lines import Parts, Rows, iter_lines, iter_record_batches, iter_records
from cort.formats.members import FETCH, iter_member_lines, iter_members, names_in, refusing_damage
from cort.system.errors import input_error, shorten

#: the predicted queries of one passage
Queries = list[str]

OTHERS = ("a row per passage, in the order of the collection", "delete it and let it be built again")
TARS = (".tar.gz", ".tgz")
SAMPLE = re.compile(r"(?:.*/)?[\w.-]*sample([0-9]{1,9})\.txt([0-9]{1,9})(?:-[0-9]+)?")
KEYS = ("id", "contents")


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
    """Yield the passages in batches, each with the matching rows of the files.

    :raises InputError: for files of another collection, or of a part of it.
    """
    others = chain.from_iterable(tables.iter_batches(path, schema, rows) for path in files)
    ahead, done = tables.regroup(others, rows), 0
    for table in tables.regroup(tables.iter_batches(passages, tables.PASSAGES, rows), rows):
        batch, beside = _to_batch(table), _to_batch(next(ahead, schema.empty_table()))
        if not batch["doc_id"].equals(beside["doc_id"]):
            raise input_error(files[-1], f"other passages than the collection's from row {done + 1} on", *OTHERS)
        yield batch, beside
        done += batch.num_rows
    if next(ahead, None) is not None:
        raise input_error(files[-1], f"more rows than the {done} passages", *OTHERS)


def parts_of(files: Sequence[str], schema: pa.Schema) -> Parts:
    """Pair each file with its row numbers, from 1."""
    return [(path, range(1, tables.count_rows(path, schema) + 1)) for path in files]


def _to_batch(table: pa.Table) -> pa.RecordBatch:
    return pa.record_batch([column.combine_chunks() for column in table.columns], schema=table.schema)


# Published predictions: line i has the queries of passage i.


def iter_predictions(path: str | Path, samples: int | None = None) -> Iterator[Queries]:
    """Yield the predicted queries of each passage, in the order of the collection.

    A ``.txt``, ``.txt.gz``, or ``.tar.gz`` of one file has all queries of a passage on one line (doc2query). A ``.zip``
    has a file per sample and part of the collection, ``*sample<number>.txt<part>-...``, with one query per line
    (docTTTTTquery).

    :param samples: how many samples of a ``.zip`` to take, in ascending order of their numbers.
    :raises InputError: for a damaged file, samples that do not fit together, or too few of them.
    """
    if str(path).endswith(".zip") != (samples is not None):
        found = "no number of samples" if samples is None else f"{samples} samples"
        raise input_error(path, found, "a number of samples for a .zip, and only for one", "fix --queries")
    if samples is not None:
        yield from _of_samples(path, samples)
        return
    lines = _of_tar(path) if str(path).endswith(TARS) else (line.strip() for _, line in iter_lines(path))
    yield from ([line] if line else [] for line in lines)


def _of_tar(path: str | Path) -> Iterator[str]:
    """Yield the lines of the only file in an archive."""
    names = []
    with refusing_damage(path):
        for name, content in iter_members(path):
            names.append(name)
            if len(names) > 1:
                break
            yield from _lines(content, f"{path}: {name}")
    if len(names) != 1:
        found = f"the files {', '.join(map(shorten, names))}" if names else "no file in it"
        raise input_error(path, found, "one file with a line per passage", "unpack it and name the right one")


def _of_samples(path: str | Path, samples: int) -> Iterator[Queries]:
    with refusing_damage(path), ZipFile(path) as archive:
        for part in _parts(path, names_in(archive), samples):
            with ExitStack() as opened:
                files = [_lines(opened.enter_context(archive.open(name)), f"{path}: {name}") for name in part]
                for row, lines in enumerate(zip_longest(*files)):
                    if None in lines:
                        found = f"no line after {row} in {part[lines.index(None)]}"
                        raise input_error(path, found, "as many lines in each sample of a part", FETCH)
                    yield [line for line in lines if line]


def _parts(path: str | Path, names: Sequence[str], samples: int) -> list[list[str]]:
    """List the files of the first samples, in order, for each part of the collection."""
    matches = [match for match in map(SAMPLE.fullmatch, names) if match]
    files = {(int(match[1]), int(match[2])): match[0] for match in matches}
    numbers, parts = sorted({number for number, _ in files}), sorted({part for _, part in files})
    if len(numbers) < samples:
        expected = f"at least {samples}, in files named *sample<number>.txt<part>-*"
        raise input_error(path, f"{len(numbers)} samples", expected, "take fewer (queries), or name another file")
    if len(files) < len(matches):
        raise input_error(path, "two files of one part of a sample", "one", "remove one of the two")
    for part in parts:
        for number in numbers[:samples]:
            if (number, part) not in files:
                raise input_error(path, f"no part {part} of sample {number}", "each part of each sample", FETCH)
    return [[files[number, part] for number in numbers[:samples]] for part in parts]


def _lines(content: IO[bytes], source: str) -> Iterator[str]:
    return (line.strip() for _, line in iter_member_lines(content, source))


# Term weights as published for DeepCT: JSON lines of `id` and `contents`, each word repeated according to its weight.


class Weighted(NamedTuple):
    """The words of a passage and their weights, positive integers."""

    doc_id: str
    terms: list[str]
    weights: list[int]


def iter_documents(path: str | Path) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield (file, documents) in batches; the files in a ``.zip`` are read in the order of their names."""
    if not str(path).endswith(".zip"):
        yield from _weighted(str(path), iter_lines(path))
        return
    with refusing_damage(path), ZipFile(path) as archive:
        for name in sorted(name for name in names_in(archive) if name.endswith((".json", ".jsonl"))):
            with archive.open(name) as content:
                yield from _weighted(f"{path}: {name}", iter_member_lines(content, f"{path}: {name}"))


def to_batch(documents: Iterable[Weighted]) -> pa.RecordBatch:
    """Put weighted documents into columns."""
    columns = zip(*documents, strict=True)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, tables.TERM_WEIGHTS.types, strict=True)]
    return pa.record_batch(arrays, schema=tables.TERM_WEIGHTS)


def _weighted(source: str, lines: Rows[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    records = iter_records(source, lines, _parse_weighted)
    return ((source, batch) for batch in iter_record_batches(records, tables.TERM_WEIGHTS))


def _parse_weighted(line: str) -> Weighted:
    fix = "write one document per line"
    record = parse_json_line(line, fix)
    if isinstance(record, dict) and "vector" in record:
        expected = "'contents' with each word repeated according to its weight"
        raise BadLine("the key 'vector'", expected, "write the weights that way, without 'vector'")
    values = [record.get(key) for key in KEYS] if isinstance(record, dict) else []
    if len(values) < len(KEYS) or not all(isinstance(value, str) for value in values):
        raise BadLine(shorten(line), "an object with the texts id and contents", fix)
    contents = checked_unicode("contents", str(values[1]))
    if "\x00" in contents:
        raise BadLine("a NUL character", "text", "remove it")
    counts = Counter(contents.split())
    return Weighted(checked_id("document id", str(values[0])), list(counts), list(counts.values()))
