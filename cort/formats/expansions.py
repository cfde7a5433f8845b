"""What changes the texts of a BM25 index: predicted queries, which are appended to passages, and term weights.

Our tables of both have a row per passage, in the order of the passages; several files are read one after another. The
files published for doc2query, docTTTTTquery and DeepCT are read here, too.
"""

import gzip
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, zip_longest
from pathlib import Path
from typing import IO, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc

from cort.formats import tables
from cort.formats.fields import BadLine, checked_id, checked_unicode, parse_json_line
from cort.formats.lines import Parts, Rows, iter_lines, iter_record_batches, iter_records, place_of
from cort.formats.members import FETCH, choose, iter_member_lines, iter_tar, open_zip, refusing_damage
from cort.system.errors import InputError, input_error, shorten

#: the predicted queries of one passage
Queries = list[str]

OTHERS = ("a row per passage, in the order of the collection", "delete it and let it be built again")
TARS = (".tar.gz", ".tgz")
SAMPLE = re.compile(r"(?:.*/)?[\w.-]*sample([0-9]{1,9})\.txt([0-9]{1,9})(?:-[0-9]+)?")
JSON_LINES = re.compile(r".*\.jsonl?", re.DOTALL)
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
        _compare(batch["doc_id"], beside["doc_id"], files, schema, done)
        yield batch, beside
        done += batch.num_rows
    if next(ahead, None) is not None:
        raise _more(files[-1], done)


def parts_of(files: Sequence[str], schema: pa.Schema) -> Parts:
    """Pair each file with its row numbers, from 1."""
    return [(path, range(1, tables.count_rows(path, schema) + 1)) for path in files]


def _more(source: str, passages: int) -> InputError:
    return input_error(source, f"more rows than the {passages} passages", *OTHERS)


def _to_batch(table: pa.Table) -> pa.RecordBatch:
    return pa.record_batch([column.combine_chunks() for column in table.columns], schema=table.schema)


def _compare(ids: pa.Array, others: pa.Array, files: Sequence[str], schema: pa.Schema, done: int) -> None:
    """Refuse rows that do not belong to the passages with these ids."""
    if ids.equals(others):
        return
    if len(others) < len(ids):
        raise input_error(files[-1], f"{done + len(others)} rows for more passages", *OTHERS)
    pairs = enumerate(zip(ids, others, strict=False))
    row = next((row for row, (doc_id, other) in pairs if doc_id != other), None)
    if row is None:
        raise _more(files[-1], done + len(ids))
    found = f"passage {shorten(others[row].as_py())} where the collection has {shorten(ids[row].as_py())}"
    source, place = place_of(parts_of(files, schema), done + row)
    raise input_error(source, found, *OTHERS, row=place)


# Published predictions: line i has the queries of passage i.


def iter_predictions(path: str | Path, samples: int | None = None) -> Iterator[Queries]:
    """Yield the predicted queries of each passage, in the order of the collection.

    A ``.txt``, ``.txt.gz``, or ``.tar.gz`` of one file has all queries of a passage on one line (doc2query). A ``.zip``
    has a file per sample and part of the collection, ``*sample<number>.txt<part>-...``, with one query per line
    (docTTTTTquery).

    :param samples: how many samples of a ``.zip`` to take, in ascending order of their numbers.
    :raises InputError: for a damaged file, samples that do not fit together, or too few samples.
    """
    if str(path).endswith(".zip") != (samples is not None):
        found = "no number of samples" if samples is None else f"{samples} samples"
        raise input_error(path, found, "a number of samples for a .zip, and only for one", "fix --queries")
    if samples is not None:
        if samples < 1:
            raise input_error(path, f"{samples} samples to take", "1 or more", "fix --queries")
        yield from _of_samples(path, samples)
    else:
        lines = _of_tar(path) if str(path).endswith(TARS) else (line.strip() for _, line in iter_lines(path))
        yield from ([line] if line else [] for line in lines)


def _of_tar(path: str | Path) -> Iterator[str]:
    """Yield the lines of the only file in an archive."""
    with refusing_damage(path), gzip.open(path) as packed:
        name = None
        for archive, member in iter_tar(path, cast("IO[bytes]", packed)):
            if not member.isfile():
                continue
            if name is not None:
                found = f"the files {shorten(name)} and {shorten(member.name)}"
                raise input_error(path, found, "one file with a line per passage", "unpack it and name the right one")
            name = member.name
            yield from _lines(cast("IO[bytes]", archive.extractfile(member)), f"{path}: {name}")
        if name is None:
            raise input_error(path, "no file in it", "one with a line per passage", FETCH)


def _of_samples(path: str | Path, samples: int) -> Iterator[Queries]:
    with open_zip(path) as (archive, names):
        for part in _parts(path, choose(path, names, SAMPLE), samples):
            with ExitStack() as opened:
                files = [_lines(opened.enter_context(archive.open(name)), f"{path}: {name}") for name in part]
                for row, lines in enumerate(zip_longest(*files)):
                    if None in lines:
                        found = f"no line after {row} in {part[lines.index(None)]}"
                        raise input_error(path, found, "as many lines in each sample of a part", FETCH)
                    yield [line for line in lines if line]


def _parts(path: str | Path, names: Sequence[str], samples: int) -> list[list[str]]:
    """List the files of the first samples, in order, for each part of the collection."""
    files: dict[tuple[int, ...], str] = {}
    for match in filter(None, map(SAMPLE.fullmatch, names)):
        name, key = match[0], tuple(map(int, match.groups()))
        if (other := files.setdefault(key, name)) != name:
            both = f"the files {shorten(other)} and {shorten(name)}"
            raise input_error(path, both, "one file of each part of a sample", "remove one of the two")
    numbers, parts = sorted({number for number, _ in files}), sorted({part for _, part in files})
    if len(numbers) < samples:
        expected = f"at least {samples}, in files named *sample<number>.txt<part>-*"
        raise input_error(path, f"{len(numbers)} samples", expected, "take fewer (queries), or name another file")
    if parts != list(range(len(parts))):
        raise input_error(path, f"the parts {', '.join(map(str, parts))}", "0, 1 and so on", FETCH)
    for number in numbers[:samples]:
        for part in parts:
            if (number, part) not in files:
                raise input_error(path, f"no part {part} of sample {number}", "each part of each sample", FETCH)
    return [[files[number, part] for number in numbers[:samples]] for part in parts]


def _lines(handle: IO[bytes], source: str) -> Iterator[str]:
    return (line.strip() for _, line in iter_member_lines(handle, source))


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
    with open_zip(path) as (archive, names):
        for name in sorted(choose(path, names, JSON_LINES)):
            source = f"{path}: {name}"
            with archive.open(name) as handle:
                yield from _weighted(source, iter_member_lines(handle, source))


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
