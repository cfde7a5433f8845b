"""Judgements of a person, a JSON object per line, as the explorer writes them: of passages, or of documents.

``{"query_id": ..., "doc_id": ..., "text": ..., "relevance": ...}`` has the beginning of the passage that was shown. Of
several lines about the same pair, the last one counts; one without a relevance (null) withdraws the judgement.

The collection may have been divided otherwise since. A passage is known by its id if it still begins with the text, and
a document by its id alone. Otherwise, the judgement is of all passages that begin with the text, or of their documents,
with any whitespace; if there are none, it is dropped, and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from cort.formats.artifacts import Node, parse_document
from cort.formats.lines import iter_lines
from cort.formats.raw import SHORTEST, is_quoted
from cort.formats.records import Qrel

LARGEST = 3


@dataclass(frozen=True)
class Judgement:
    """A line of a file; `text` begins like the passage that was shown."""

    query_id: str
    doc_id: str
    text: str
    relevance: int | None

    def check(self, node: Node) -> None:
        """Refuse other grades than those that the explorer has."""
        if self.relevance is not None:
            node["relevance"].within(int, 0, LARGEST)


def is_judged(path: str | Path) -> bool:
    """Whether a file has judgements with ids and texts, according to its name and first line."""
    return is_quoted(path) and any('"doc_id":' in line for _, line in islice(iter_lines(path), 1))


def parse_judgement(source: str | Path, line: bytes) -> Judgement:
    """Parse a line; errors name its `source`."""
    judgement: Judgement = parse_document(source, line, "correct the judgement").read(Judgement)
    return judgement


def read_judged(
    path: str | Path, passages: Iterable[pa.RecordBatch], documents_of: Callable[[pa.Array], pa.Array] | None
) -> tuple[list[tuple[int, Qrel]], dict[str, int]]:
    """Read a file of judgements, and find what they are about.

    :param passages: those of the collection (`tables.PASSAGES`).
    :param documents_of: names the documents of passages; None if passages are judged.
    :return: judgements with their rows, in order; how many were found by their ids or texts, are gone or withdrawn.
    """
    lines = [(row, parse_judgement(f"{path}: row {row}", line.encode())) for row, line in iter_lines(path)]
    last = {(one.query_id, one.doc_id): (row, one) for row, one in lines}
    matches: dict[str, list[str]] = {one.text: [] for _, one in last.values()}
    known: set[str] = set()
    for batch in passages if last else ():
        ids = documents_of(batch["doc_id"]) if documents_of else batch["doc_id"]
        known.update(ids.filter(pc.is_in(ids, value_set=pa.array({doc_id for _, doc_id in last}))).to_pylist())
        texts = pc.replace_substring_regex(batch["text"], r"\s+", " ")
        for text, found in matches.items():
            found += ids.filter(pc.starts_with(texts, " ".join(text.split()))).to_pylist()
    counts = dict.fromkeys(("judgements_found_by_id", "found_by_text", "gone", "withdrawn"), 0)
    qrels: dict[tuple[str, str], tuple[int, Qrel]] = {}
    for row, one in sorted(last.values(), key=itemgetter(0)):
        if one.relevance is None:
            counts["withdrawn"] += 1
            # It may have been found by its text before.
            qrels.pop((one.query_id, one.doc_id), None)
            continue
        found = matches[one.text] if len(one.text) >= SHORTEST else []
        by_id = one.doc_id in (known if documents_of else matches[one.text])
        counts["judgements_found_by_id" if by_id else "found_by_text" if found else "gone"] += 1
        for doc_id in [one.doc_id] if by_id else found:
            qrels[one.query_id, doc_id] = row, Qrel(one.query_id, doc_id, one.relevance)
    return sorted(qrels.values()), counts
