"""The folder of a page: what is the same for all, and the data of a split."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cort.evaluation.measures import Qrels
from cort.evaluation.values import Values
from cort.reporting.explorer.rankings import Rankings
from cort.reporting.explorer.shards import COMMON, describe_query, pack, shard_bounds, shards, values_of
from cort.reporting.explorer.texts import Texts
from cort.reporting.labels import STOP_WORDS

ASSETS = ("index.html", "explorer.js", "explorer.css")
BYTES_PER_MEGABYTE = 1_000_000
# Of what is written last: what was cut, and the record of checksums.
RESERVE = 50_000


@dataclass(frozen=True)
class Experiment:
    """What a page shows: systems on the queries of a split."""

    dataset: str
    split: str
    systems: Sequence[str]
    values: Sequence[Values]
    texts: Sequence[str]
    qrels: Qrels
    relevance_level: int
    rankings: Rankings


@dataclass(frozen=True)
class Written:
    """Bytes of a page's folder; of how many texts how many were left out, and how many each query has in any case.

    Relevant passages are not among those.
    """

    bytes: int
    texts: int
    left_out: int
    others: int


def write_page(folder: Path, shown: Experiment, texts: Texts, megabytes: int) -> Written:
    """Write all files; the index last, when it is known what was left out."""
    data, rankings = folder / "data", shown.rankings
    data.mkdir()
    query_ids = shown.values[0].query_ids
    size = sum(_copy(name, folder) for name in ASSETS)
    for system, values in enumerate(shown.values):
        name = f"values-{system}"
        size += (data / f"{name}.js").write_bytes(pack(name, values_of(values, rankings, system, shown.qrels)))
    queries, systems, depth = rankings.top.shape
    bounds = shard_bounds(queries, systems, depth)
    index = {
        "dataset": shown.dataset,
        "split": shown.split,
        "systems": [*shown.systems],
        "pair": _pair(shown.values),
        "measures": shown.values[0].measures,
        "relevance_level": shown.relevance_level,
        "depth": depth,
        "ids": query_ids,
        "queries": [*shown.texts],
        "shards": bounds[:-1],
        "stop_words": sorted(STOP_WORDS),
    }
    judged = sum(map(bool, shown.qrels.values()))
    if not judged:
        index["overlap"] = COMMON
    elif judged < len(query_ids):
        index["judged"] = judged
    limit = megabytes * BYTES_PER_MEGABYTE - size - len(pack("index", index)) - RESERVE
    queries_shown = (describe_query(one, rankings, shown.qrels[id_], texts) for one, id_ in enumerate(query_ids))
    count = left_out = 0
    fewest = sys.maxsize
    for number, shard in enumerate(shards(queries_shown, bounds, limit)):
        size += (data / f"results-{number}.js").write_bytes(shard.content)
        count, left_out, fewest = count + shard.texts, left_out + shard.left_out, min(fewest, shard.others)
    cut = {"megabytes": megabytes, "texts": count, "left_out": left_out, "others": fewest}
    size += (data / "index.js").write_bytes(pack("index", {**index, "cut": cut}))
    return Written(size, count, left_out, fewest)


def _pair(values: Sequence[Values]) -> tuple[int, int]:
    """Choose the systems that are shown first: the best one but the first by the first measure, and the first."""
    if not values[0].measures:
        return min(1, len(values) - 1), 0
    means = [float(np.nanmean(one.values[:, 0])) for one in values]
    return max(range(1, len(means)), key=means.__getitem__, default=0), 0


def _copy(name: str, folder: Path) -> int:
    return (folder / name).write_bytes((Path(__file__).parent / name).read_bytes())
