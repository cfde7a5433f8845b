"""Training examples drawn from judgements and a ranking: shared by `triples` (CoRT) and `pairs` (re-ranker).

Per query: its judged positives, and the documents a ranker put on the ranks asked for, judged positives excluded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cort.formats.runs import Run


@dataclass(frozen=True)
class Pool:
    """What examples of one query are drawn from; ``ranks[i]`` is the rank of ``negatives[i]`` in the ranking."""

    query_id: str
    positives: list[str]
    negatives: list[str]
    ranks: list[int]


def positives_by_query(qrels: pa.Table, relevance_level: int) -> dict[str, list[str]]:
    """Judged documents of at least `relevance_level`, per query in file order; queries without any have no entry."""
    found: dict[str, list[str]] = {}
    for batch in qrels.to_batches():
        columns = (batch[name].to_pylist() for name in ("query_id", "doc_id", "relevance"))
        for query_id, doc_id, relevance in zip(*columns, strict=True):
            if relevance >= relevance_level:
                found.setdefault(query_id, []).append(doc_id)
    return found


def build_pools(
    positives: dict[str, list[str]], run: Run, first_rank: int, last_rank: int, minimum_results: int
) -> tuple[list[Pool], dict[str, int]]:
    """Collect the pools, and count what each filter dropped.

    :param first_rank: first rank (from 1) negatives are taken from, inclusive; `last_rank` likewise.
    :param minimum_results: queries with a shorter ranking are dropped.
    """
    counts = dict.fromkeys(
        (
            "queries in the ranking",
            "dropped: no judged positive",
            "dropped: ranking too short",
            "dropped: no negative left on these ranks",
            "judged positives excluded from the negatives",
            "queries kept",
        ),
        0,
    )
    pools: list[Pool] = []
    for ranking in run:
        counts["queries in the ranking"] += 1
        relevant = positives.get(ranking.query_id)
        if relevant is None:
            counts["dropped: no judged positive"] += 1
            continue
        if len(ranking.doc_ids) < minimum_results:
            counts["dropped: ranking too short"] += 1
            continue
        window = list(enumerate(ranking.doc_ids[first_rank - 1 : last_rank], start=first_rank))
        kept = [(rank, doc_id) for rank, doc_id in window if doc_id not in relevant]
        counts["judged positives excluded from the negatives"] += len(window) - len(kept)
        if not kept:
            counts["dropped: no negative left on these ranks"] += 1
            continue
        pools.append(Pool(ranking.query_id, relevant, [doc for _, doc in kept], [rank for rank, _ in kept]))
    counts["queries kept"] = len(pools)
    counts["queries without results"] = len(positives.keys() - set(run.query_ids))
    return pools, counts


def limit_pools(pools: list[Pool], maximum: int, seed: int) -> list[Pool]:
    """Keep at most `maximum` pools drawn at random, in their order; 0 keeps all."""
    if not 0 < maximum < len(pools):
        return pools
    drawn = np.random.default_rng(seed).choice(len(pools), size=maximum, replace=False)
    return [pools[position] for position in np.sort(drawn)]


def shuffled(pools: list[Pool], seed: int, epoch: int) -> Iterator[tuple[Pool, np.random.Generator]]:
    """Yield the pools in the random order of one epoch, with the generator to draw examples from."""
    generator = np.random.default_rng([seed, epoch])
    for position in generator.permutation(len(pools)):
        yield pools[position], generator
