"""Write what search engines load: for each target the passages in its format, and its templates.

A passage has an id, a text and, if the system searches vectors, a vector. Templates that render to nothing, such as
the search pipeline of a system that merges nothing, give no file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cort.formats import tables
from cort.formats.embeddings import Shard
from cort.system.errors import input_error, shorten

TEMPLATES = Path(__file__).parent / "templates"
SUFFIX = ".jinja"
ROWS = 4096
# Bytes of a bulk request, of which engines accept 100 MB by default; bytes of an id that they accept.
MOST, LONGEST_ID = 20_000_000, 512
# Vectors count as normalised if their lengths differ from 1 by less, also in half precision.
UNIT = 2e-3
ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


@dataclass(frozen=True)
class Deployment:
    """What templates show.

    :ivar method: `rrf` or `linear`, with two parts; None with one.
    :ivar weights: of BM25 and vectors, with the sum 1; with `linear`.
    :ivar k: constant of `rrf`.
    :ivar depth: results of each part that are merged.
    :ivar k1, b: of BM25; None without it.
    :ivar dimension: of the vectors; None without them.
    :ivar unit: whether all vectors have length 1.
    :ivar documents: whether passages are parts of documents that were measured.
    :ivar text, vector: an example of a query.
    """

    system: str
    method: str | None
    weights: tuple[float, ...]
    k: int
    depth: int
    k1: float | None
    b: float | None
    dimension: int | None
    unit: bool
    documents: bool
    text: str
    vector: list[float]


def read_passages(path: str, shards: Sequence[Shard]) -> Iterator[pa.Table]:
    """Yield tables of id, text and, if there are shards, vector (float32).

    :raises InputError: if the vectors are not those of the passages, in order.
    """
    vectors = pa.concat_tables([shard.table for shard in shards]) if shards else None
    start = 0
    for batch in tables.iter_batches(path, tables.PASSAGES, ROWS):
        columns = [batch["doc_id"], batch["text"]]
        if vectors is not None:
            part = vectors.slice(start, batch.num_rows).combine_chunks()
            _refuse_others(path, part["id"].to_pylist() == batch["doc_id"].to_pylist())
            columns.append(part["embedding"].combine_chunks().cast(pa.list_(pa.float32(), shards[0].dimension)))
        start += batch.num_rows
        yield pa.table(columns, names=["id", "text", "vector"][: len(columns)])
    _refuse_others(path, vectors is None or start == len(vectors))


def _refuse_others(path: str, same: bool) -> None:
    if not same:
        raise input_error(path, "other passages than the vectors are of", "the same, in order", "encode them again")


def are_unit(shards: Sequence[Shard]) -> bool:
    """Tell whether all vectors have length 1."""
    blocks = (np.asarray(vectors, dtype=np.float32) for shard in shards for _, vectors in shard.blocks())
    return all((np.abs(np.linalg.norm(block, axis=1) - 1) < UNIT).all() for block in blocks)


def _rows(passages: Iterable[pa.Table]) -> Iterator[tuple[str, str, str | None]]:
    """Yield id, text and the numbers of the vector, each with as few digits as give the same number again."""
    for table in passages:
        numbers: Iterable[str | None] = repeat(None, len(table))
        if "vector" in table.column_names:
            column = table["vector"].combine_chunks()
            ends = np.arange(0, len(column) + 1, dtype=np.int32) * column.type.list_size
            texts = pa.ListArray.from_arrays(pa.array(ends), column.flatten().cast("string"))
            numbers = pc.binary_join(texts, ",").to_pylist()
        yield from zip(table["id"].to_pylist(), table["text"].to_pylist(), numbers, strict=True)


def _bulk_lines(passages: Iterable[pa.Table]) -> Iterator[bytes]:
    dump = partial(json.dumps, ensure_ascii=False)
    for doc_id, text, numbers in _rows(passages):
        if len(doc_id.encode()) > LONGEST_ID:
            found, fix = f"the id {shorten(doc_id)}", "shorten it, or choose pgvector or parquet"
            raise input_error("the passages", found, f"at most {LONGEST_ID} bytes, as the engine does", fix)
        vector = "" if numbers is None else f', "vector": [{numbers}]'
        yield f'{{"index": {{"_id": {dump(doc_id)}}}}}\n{{"text": {dump(text)}{vector}}}\n'.encode()


def _in_parts(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Join lines to parts of at most `MOST` bytes; a longer one is a part of its own."""
    part: list[bytes] = []
    size = 0
    for line in lines:
        if part and size + len(line) > MOST:
            yield b"".join(part)
            part, size = [], 0
        part.append(line)
        size += len(line)
    yield b"".join(part)


def write_bulk(folder: Path, passages: Iterable[pa.Table]) -> None:
    """Write bulk requests of OpenSearch and Elasticsearch."""
    for number, part in enumerate(_in_parts(_bulk_lines(passages)), start=1):
        (folder / f"bulk-{number:05d}.ndjson").write_bytes(part)


def write_copy(folder: Path, passages: Iterable[pa.Table]) -> None:
    """Write the text format of PostgreSQL's COPY."""
    with open(folder / "passages.tsv", "w", encoding="utf-8", newline="\n") as handle:
        for doc_id, text, numbers in _rows(passages):
            vector = "" if numbers is None else f"\t[{numbers}]"
            handle.write(f"{doc_id.translate(ESCAPES)}\t{text.translate(ESCAPES)}{vector}\n")


def write_parquet(folder: Path, passages: Iterable[pa.Table]) -> None:
    """Write one parquet table."""
    iterator = iter(passages)
    first = next(iterator)
    with pq.ParquetWriter(folder / "passages.parquet", first.schema, compression="zstd") as writer:
        writer.write_table(first)
        for table in iterator:
            writer.write_table(table)


TARGETS: Mapping[str, Callable[[Path, Iterable[pa.Table]], None]] = {
    "opensearch": write_bulk,
    "elasticsearch": write_bulk,
    "pgvector": write_copy,
    "parquet": write_parquet,
}


def write_target(folder: Path, target: str, deployment: Deployment, passages: Iterable[pa.Table]) -> None:
    """Write the files of a target into a new folder of its name."""
    (folder / target).mkdir()
    TARGETS[target](folder / target, passages)
    render_all(TEMPLATES / target, folder / target, vars(deployment))


def render_all(templates: Path, folder: Path, shown: dict[str, Any]) -> None:
    """Render the templates of a folder into another, except those that give nothing."""
    environment = Environment(  # noqa: S701 - JSON, SQL and Markdown; texts of users are only in JSON, as `tojson`
        loader=FileSystemLoader([templates, TEMPLATES]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False}
    for path in sorted(templates.glob(f"*{SUFFIX}")):
        if text := environment.get_template(path.name).render(shown).strip():
            (folder / path.name.removesuffix(SUFFIX)).write_text(text + "\n", encoding="utf-8", newline="\n")
