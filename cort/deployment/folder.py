"""Write what search engines load: for each target the passages in its format, and its templates.

A passage has an id, a text and, if the system searches vectors, a vector. Templates that render to nothing, such as
the search pipeline of a system that merges nothing, give no file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cort.config.lexical import Language
from cort.formats import tables
from cort.retrieval.vectors import PassageVectors

TEMPLATES = Path(__file__).parent / "templates"
SUFFIX = ".jinja"
ROWS = 4096
# Bytes of a bulk request, of which engines accept 100 MB by default; bytes of an id that they accept.
MOST, LONGEST_ID = 20_000_000, 512
# Characters of a passage that PostgreSQL indexes: its words must fit in 1 MB, with at most 5 bytes more for each.
INDEXED = 200_000
# Vectors count as normalised if their lengths differ from 1 by less, also in half precision.
UNIT = 2e-3
# Engines' names of Lucene's analysers, which are those of Anserini but for `OTHERS`, and the plugins that some are in.
ANALYZERS: Mapping[Language, str] = {
    **{"en": "english", "ar": "arabic", "bn": "bengali", "da": "danish", "de": "german", "es": "spanish"},
    **{"fa": "persian", "fi": "finnish", "fr": "french", "hi": "hindi", "hu": "hungarian", "id": "indonesian"},
    **{"it": "italian", "ja": "kuromoji", "ko": "cjk", "nl": "dutch", "no": "norwegian", "pl": "polish"},
    **{"pt": "portuguese", "ru": "russian", "sv": "swedish", "te": "standard", "th": "thai", "tr": "turkish"},
    **{"uk": "ukrainian", "zh": "cjk"},
}
OTHERS = {"polish", "standard"}
PLUGINS = {"kuromoji": "analysis-kuromoji", "polish": "analysis-stempel", "ukrainian": "analysis-ukrainian"}
# Those that PostgreSQL lacks, under these names.
NOT_IN_POSTGRES = OTHERS | {"bengali", "cjk", "hindi", "kuromoji", "persian", "thai", "ukrainian"}
ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def read_passages(path: str, vectors: PassageVectors | None) -> Iterator[pa.Table]:
    """Yield tables of id, text and, if there are vectors (of the same passages, in order), vector (float32)."""
    start = 0
    for batch in tables.iter_batches(path, tables.PASSAGES, ROWS):
        table = pa.table({"id": batch["doc_id"], "text": batch["text"]})
        if vectors is not None:
            part = vectors[np.arange(start, start + len(table))].astype(np.float32)
            table = table.append_column("vector", pa.FixedSizeListArray.from_arrays(part.ravel(), vectors.dimension))
        start += len(table)
        yield table


def lengths_of(vectors: PassageVectors | None) -> tuple[bool, list[str]]:
    """Tell whether all vectors have length 1, but for those of length 0, whose ids follow."""
    if vectors is None:
        return True, []
    lengths = vectors.lengths()
    unit = bool(((np.abs(lengths - 1) < UNIT) | (lengths == 0)).all())
    return unit, vectors.ids.filter(pa.array(lengths == 0)).to_pylist()


def longest_of(path: str) -> tuple[str, int]:
    """Return the id with the most bytes, and how many passages have more characters than PostgreSQL indexes."""
    longest, long = "", 0
    for batch in tables.iter_batches(path, tables.PASSAGES, ROWS):
        ids = batch["doc_id"]
        own = ids[pc.index(pc.binary_length(ids), pc.max(pc.binary_length(ids))).as_py()].as_py() if len(ids) else ""
        longest = max(longest, own, key=lambda one: len(one.encode()))
        long += pc.sum(pc.greater(pc.utf8_length(batch["text"]), INDEXED)).as_py() or 0
    return longest, long


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
    for doc_id, text, numbers in _rows(passages):
        # Engines refuse the cosine of a zero vector.
        vector = f', "vector": [{numbers}]' if numbers and numbers.strip("0.,-") else ""
        yield f'{{"index": {{"_id": {json.dumps(doc_id)}}}}}\n{{"text": {json.dumps(text)}{vector}}}\n'.encode()


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


def write_parquet(folder: Path, passages: Iterator[pa.Table]) -> None:
    """Write one parquet table."""
    first = next(passages)
    with pq.ParquetWriter(folder / "passages.parquet", first.schema, compression="zstd") as writer:
        for table in chain([first], passages):
            writer.write_table(table)


TARGETS: Mapping[str, Callable[[Path, Iterator[pa.Table]], None]] = {
    "opensearch": write_bulk,
    "elasticsearch": write_bulk,
    "pgvector": write_copy,
    "parquet": write_parquet,
}


def analysis(language: Language) -> dict[str, Any]:
    """Return what templates show of the analysis of a language."""
    name = ANALYZERS[language]
    postgres = "simple" if name in NOT_IN_POSTGRES else name
    return {"analyzer": name, "is_anserinis": name not in OTHERS, "plugin": PLUGINS.get(name), "postgres": postgres}


def write_target(folder: Path, target: str, shown: dict[str, Any], passages: Iterator[pa.Table]) -> None:
    """Write the files of a target into a new folder of its name; `shown` is what templates show."""
    (folder / target).mkdir()
    TARGETS[target](folder / target, passages)
    render_all(TEMPLATES / target, folder / target, shown)


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
