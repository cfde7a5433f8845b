"""Judgements that quote the beginnings of passages, for a paper prints texts and no ids.

A line of a ``.jsonl`` file is ``{"query_id": ..., "text": ..., "relevance": ...}``. A passage is meant if it begins
with the text, as far as small letters and digits go; if several do, each is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from cort.formats.fields import BadLine, checked_id, checked_unicode, parse_json_line
from cort.formats.lines import iter_lines, iter_records
from cort.formats.records import LARGEST_GRADE, Qrel
from cort.system.errors import input_error, shorten

SUFFIX = ".jsonl"
KEYS = {"query_id": str, "text": str, "relevance": int}
# So that a text means few passages.
SHORTEST = 20
NO_LETTERS = "[^a-z0-9]+"


class Quotation(NamedTuple):
    """One judgement of the passages that begin with the text."""

    query_id: str
    text: str
    relevance: int


def quotes(path: str | Path) -> bool:
    """Whether judgements are of this kind, by the name of their file."""
    return Path(str(path).removesuffix(".gz")).suffix == SUFFIX


def iter_quoted(path: str | Path, passages: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Qrel]]:
    """Yield the judgements of a file with the row of each; refuse a text that no passage begins with.

    :param passages: with their texts.
    """
    quotations = list(iter_records(path, iter_lines(path), _parse))
    wanted: dict[str, list[str]] = {_letters_of(one.text): [] for _, one in quotations}
    for batch in passages:
        texts = _letters(batch["text"])
        for beginning, found in wanted.items():
            found += batch["doc_id"].filter(pc.starts_with(texts, beginning)).to_pylist()
    for row, one in quotations:
        found = wanted[_letters_of(one.text)]
        if not found:
            what, expected = f"the text {shorten(one.text)}", "the beginning of a passage of the collection"
            raise input_error(path, what, expected, "copy it from there", row)
        yield from ((row, Qrel(one.query_id, doc_id, one.relevance)) for doc_id in found)


def _letters(texts: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(pc.ascii_lower(texts), NO_LETTERS, "")


def _letters_of(text: str) -> str:
    letters: str = _letters(pa.array([text]))[0].as_py()
    return letters


def _parse(line: str) -> Quotation:
    record = parse_json_line(line, "correct the row; each record takes one line")
    if not isinstance(record, dict) or {key: type(value) for key, value in record.items()} != KEYS:
        raise BadLine(shorten(line), "an object with query_id, text and relevance", "correct the row")
    checked_unicode("text", record["text"])
    if abs(record["relevance"]) > LARGEST_GRADE:
        raise BadLine(f"the relevance {record['relevance']}", f"at most {LARGEST_GRADE}", "correct the row")
    if len(_letters_of(record["text"])) < SHORTEST:
        raise BadLine(f"the text {shorten(record['text'])}", f"{SHORTEST} letters or digits at least", "quote more")
    return Quotation(checked_id("query_id", record["query_id"]), record["text"], record["relevance"])
