"""Queries that two splits share: a system trained on one split must not be evaluated on them."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from cort.formats.cleaning import plain
from cort.formats.tables import QRELS, QUERIES, read_table


@dataclass(frozen=True)
class Shared:
    """How many queries of the split `second` are also in `first`.

    `same` counts queries that are judged in both under the same id, or that have the same text and a relevant passage
    in common; `example` is one of them. `alike` counts other queries with the same id or text.
    """

    first: str
    second: str
    queries: int
    same: int
    alike: int
    example: str | None


class Split:
    """The queries of a split by id and by text, and their judgements."""

    def __init__(self, name: str, queries: str, qrels: str) -> None:
        table = read_table(queries, QUERIES)
        self.name = name
        self.texts = dict(zip(table["query_id"].to_pylist(), plain(table["text"]).to_pylist(), strict=True))
        self.by_text: dict[str, list[str]] = {}
        for query_id, text in self.texts.items():
            if text:
                self.by_text.setdefault(text, []).append(query_id)
        self._qrels = read_table(qrels, QRELS)
        self.judged = set(pc.unique(self._qrels["query_id"]).to_pylist())

    def relevant(self, query_ids: set[str]) -> dict[str, set[str]]:
        """Return the relevant passages of queries."""
        doc_ids: dict[str, set[str]] = {query_id: set() for query_id in query_ids}
        judged = pc.is_in(self._qrels["query_id"], value_set=pa.array(sorted(query_ids), "string"))
        for row in self._qrels.filter(pc.and_(judged, pc.greater(self._qrels["relevance"], 0))).to_pylist():
            doc_ids[row["query_id"]].add(row["doc_id"])
        return doc_ids


def compare_queries(first: Split, second: Split) -> Shared:
    """Count the queries of the second split that are also in the first."""
    twins = {query_id: first.by_text[text] for query_id, text in second.texts.items() if text in first.by_text}
    of_first = first.relevant({query_id for others in twins.values() for query_id in others})
    of_second = second.relevant({*twins})
    same = [
        query_id
        for query_id in second.texts
        if query_id in first.judged & second.judged
        or any(of_first[other] & of_second[query_id] for other in twins.get(query_id, []))
    ]
    shared = twins.keys() | (first.texts.keys() & second.texts.keys())
    example = next(iter(same), None)
    return Shared(first.name, second.name, len(second.texts), len(same), len(shared) - len(same), example)


def describe(shared: Shared) -> str:
    """Describe in a sentence what two splits share; empty if nothing."""
    counts = {
        "judged in both": shared.same,
        "with the id or the text of another one but no judgement in common": shared.alike,
    }
    parts = ", ".join(f"{number:,} {kind}" for kind, number in counts.items() if number)
    return f"{shared.second} ({shared.queries:,} queries) and {shared.first} share queries: {parts}." if parts else ""
