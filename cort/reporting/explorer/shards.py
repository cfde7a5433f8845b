"""The data of the page: files that hand it JSON, compressed, of at most as many bytes as are allowed."""

from __future__ import annotations

import base64
import itertools
import json
import math
import sys
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from cort.evaluation.measures import Qrels
from cort.evaluation.values import Values
from cort.reporting.explorer.rankings import UNKNOWN, Rankings
from cort.reporting.explorer.texts import Texts

# Of all systems together, in a shard: a query is there at once.
RESULTS_PER_SHARD, QUERIES_PER_SHARD = 12_000, 20
# Passages of each system that are compared with another's.
COMMON = 10
# Of English text; what takes more leaves out more texts than it had to.
BYTES_PER_PACKED_BYTE = 1.9


class Query(NamedTuple):
    """A query as the page reads it, and the texts it may leave out.

    In the record, `docs` are the ids of the `relevant` first ones and of what systems rank first; `grades` is None
    where a passage was not judged; `rankings` are places in `docs`, per system; `ranks` those of the relevant ones in
    whole runs, per system, 0 where they were not retrieved.
    """

    record: dict[str, Any]
    texts: list[str]

    def cut(self, others: int) -> dict[str, Any]:
        """Keep the texts of relevant passages, and of the first `others`."""
        kept = self.record["relevant"] + others
        return {**self.record, "texts": [*self.texts[:kept], *[None] * len(self.texts[kept:])]}


class Shard(NamedTuple):
    """A file; of how many passages besides relevant ones it has the texts; of how many texts how many are left out."""

    content: bytes
    others: int
    texts: int
    left_out: int


def pack(name: str, content: Any) -> bytes:
    """Make a script that hands `content` over: JSON, compressed, in base64, which cannot end a script."""
    packed = zlib.compress(json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(), 6)
    return b'shard("%s","%s");\n' % (name.encode("ascii"), base64.b64encode(packed))


def values_of(values: Values, rankings: Rankings, system: int, qrels: Qrels) -> dict[str, Any]:
    """Describe a system on all queries: values by measure, rank of the first relevant passage, is the top judged.

    Values of a measure are few different ones, and the place of each query's among them; None is that of a query
    without judgements. Where no query has any, the first `COMMON` passages are there, by number: what systems have in
    common is all that can be said.
    """
    measures = []
    for column in range(len(values.measures)):
        different, places = np.unique(values.values[:, column], return_inverse=True)
        known = [None if math.isnan(value) else value for value in different.tolist()]
        measures.append({"values": known, "places": places.ravel().tolist()})
    ranks, tops = rankings.ranks[system], rankings.top[:, system, :1]
    first, judged = [], []
    for query, query_id in enumerate(values.query_ids):
        found = ranks[rankings.offsets[query] : rankings.offsets[query + 1]]
        first.append(int(found[found > 0].min(initial=np.iinfo(np.int32).max)) if found.any() else 0)
        top = tops[query][tops[query] != UNKNOWN]
        judged.append(None if not len(top) else int(rankings.ids[int(top[0])].as_py() in qrels[query_id]))
    found = {"measures": measures, "first": first, "judged": judged}
    if not measures:
        firsts = rankings.top[:, system, :COMMON]
        found["tops"] = [row[row != UNKNOWN].tolist() for row in firsts]
    return found


def describe_query(query: int, rankings: Rankings, judged: dict[str, int], texts: Texts) -> Query:
    """Gather what all systems say of a query; passages by their best rank, then in the order of systems."""
    top = rankings.top[query]
    span = slice(rankings.offsets[query], rankings.offsets[query + 1])
    relevant = rankings.relevant[span]
    listed = top.T.ravel()
    found, first = np.unique(np.concatenate([relevant, listed[listed != UNKNOWN]]), return_index=True)
    order = np.argsort(first)
    numbers = found[order]
    place = np.empty(len(found), dtype=np.int64)
    place[order] = np.arange(len(found))
    counts = (top != UNKNOWN).sum(axis=1)
    docs = rankings.ids.take(numbers).to_pylist()
    record = {
        "docs": docs,
        "grades": [judged.get(one) for one in docs],
        "relevant": len(relevant),
        "ranks": rankings.ranks[:, span].tolist(),
        "rankings": [place[np.searchsorted(found, row[:n])].tolist() for row, n in zip(top, counts, strict=True)],
        "scores": [row[:n].tolist() for row, n in zip(rankings.scores[query], counts, strict=True)],
    }
    return Query(record, texts[numbers])


def shard_bounds(queries: int, systems: int, results: int) -> list[int]:
    """First query of each shard, and the number of queries."""
    size = max(1, min(QUERIES_PER_SHARD, RESULTS_PER_SHARD // max(1, systems * results)))
    return [*range(0, queries, size), queries]


def fit(name: str, queries: Sequence[Query], others: int, limit: float) -> Shard:
    """Pack queries with the texts of relevant passages and of as many `others`, or fewer, that they take `limit` bytes.

    Relevant passages, and what cannot be left out, stay in any case.
    """
    sizes = [np.array([0, *(len(text.encode()) for text in one.texts)]) for one in queries]
    longest = max(map(len, sizes))
    # Bytes of texts, by the number of others.
    texts = np.zeros(longest)
    for one, size in zip(queries, sizes, strict=True):
        kept = np.cumsum(size)[one.record["relevant"] :]
        texts += np.pad(kept, (0, longest - len(kept)), "edge")
    others = min(others, len(texts) - 1)
    while True:
        content = pack(name, [one.cut(others) for one in queries])
        if len(content) <= limit or others == 0:
            left_out = sum(max(0, len(one.texts) - one.record["relevant"] - others) for one in queries)
            return Shard(content, others, sum(len(one.texts) for one in queries), left_out)
        wanted = texts[others] - BYTES_PER_PACKED_BYTE * (len(content) - limit)
        others = max(0, min(others - 1, int(np.searchsorted(texts, wanted, side="right")) - 1))


def shards(queries: Iterator[Query], bounds: Sequence[int], limit: float) -> Iterator[Shard]:
    """Pack all queries into shards that together take at most `limit` bytes, if ids and scores alone do."""
    others = sys.maxsize
    for number, (start, end) in enumerate(itertools.pairwise(bounds)):
        share = limit * (end - start) / (bounds[-1] - start)
        part = [next(queries) for _ in range(start, end)]
        # A few more than before: most shards are alike.
        found = fit(f"results-{number}", part, others + others // 16 + 1, share)
        others = found.others if found.left_out else sys.maxsize
        limit -= len(found.content)
        yield found
