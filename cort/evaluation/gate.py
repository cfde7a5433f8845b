"""Is a system worse than it was? A one-sided paired test against a small stored baseline, for CI."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cort.evaluation.comparisons import DETECTABLE, MIN_QUERIES, Tests
from cort.evaluation.significance import loss_test, queries_needed
from cort.formats import tables


@dataclass(frozen=True)
class Baseline:
    """What a system reached: a value per query by one measure.

    `digest` is that of the queries and judgements, `settings` are those that affect results, as JSON by path.
    """

    system: str
    split: str
    measure: str
    digest: str
    settings: dict[str, str]
    values: dict[str, float]


@dataclass(frozen=True)
class Decision:
    """Means before and now, and whether the loss is significant.

    `p` is that of a one-sided test; `lost` says whether it is at most alpha / 2, so that a loss is found when the
    report's two-sided test finds it. `needed` queries detect a loss of `DETECTABLE` beyond the margin; None if unknown.
    """

    before: float
    now: float
    p: float
    level: float
    lost: bool
    needed: int | None


def digest_of(queries: str | Path, qrels: str | Path, relevance_level: int) -> str:
    """Compute a digest of queries, judgements and the least relevant grade, whatever the form of their files."""
    texts = sorted(tables.read_queries(queries).items())
    judged = sorted(
        zip(*(column.to_pylist() for column in tables.read_table(qrels, tables.QRELS).columns), strict=True)
    )
    return hashlib.sha256(json.dumps([texts, judged, relevance_level]).encode()).hexdigest()


def decide(before: Mapping[str, float], now: Mapping[str, float], margin: float, tests: Tests) -> Decision | None:
    """Test whether a system lost more than a margin, on the same queries; None on fewer than `MIN_QUERIES`.

    :param margin: a loss of the mean that is accepted, 0 for none.
    """
    if len(before) < MIN_QUERIES:
        return None
    old, new = (np.array([values[query_id] for query_id in before]) for values in (before, now))
    p = loss_test(new - old, margin, tests.resamples, tests.seed)
    needed = queries_needed(new - old, DETECTABLE, tests.alpha, 1)
    level = tests.alpha / 2
    return Decision(float(old.mean()), float(new.mean()), p, level, p <= level, needed)


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Describe the settings that differ."""
    for key in sorted({*before, *now}):
        if before.get(key) != now.get(key):
            yield f"{key}: {before.get(key, 'nothing')} -> {now.get(key, 'nothing')}"
