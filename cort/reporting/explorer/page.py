"""The folder of an explorer's page: the page itself, and data files that give it JSON."""

from __future__ import annotations

import base64
import itertools
import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cort.evaluation.measures import Qrels
from cort.evaluation.values import Values
from cort.formats.ids import positions
from cort.formats.tables import PASSAGES, iter_batches
from cort.reporting.explorer.rankings import UNKNOWN, Rankings
from cort.runtime.progress import track

ASSETS = ("index.html", "explorer.js", "explorer.css")
# Limits of a file of results, which is small so that a query loads quickly. Results are those of all systems.
RESULTS_PER_SHARD, QUERIES_PER_SHARD = 12_000, 20
# Depth at which rankings of a split without judgements are compared.
COMMON = 10
# Characters kept of a passage, so that no single passage fills a file.
LONGEST = 5_000


ABSENT = "(The collection lacks this document.)"


# The first row stands for what is judged, but not in the collection.
KEPT = pa.record_batch([pa.array([ABSENT], "large_string"), pa.array([len(ABSENT)])], ["text", "length"])


class Texts:
    """The texts of passages, and their lengths before they were cut, by the passages' numbers."""

    def __init__(self, passages: str | Path, ids: pa.Array) -> None:
        """Stream the passages and keep the texts of `ids`, whose places are their numbers."""
        self._rows, kept, count = np.zeros(len(ids), dtype=np.int64), [KEPT], 1
        for batch in track(iter_batches(passages, PASSAGES), None, "batches read"):
            numbers = positions(batch["doc_id"], ids)
            selected = np.flatnonzero(numbers >= 0)
            self._rows[numbers[selected]] = count + np.arange(len(selected))
            count += len(selected)
            texts = batch["text"].take(pa.array(selected)).cast("large_string")
            kept.append(
                pa.record_batch([pc.utf8_slice_codeunits(texts, 0, LONGEST), pc.utf8_length(texts)], KEPT.schema)
            )
        self._kept = pa.Table.from_batches(kept).combine_chunks()

    def __getitem__(self, numbers: npt.NDArray[np.int32]) -> list[str]:
        """Return texts; truncated ones end in ``… (the first 5,000 of 7,654 characters)``."""
        found = self._kept.take(pa.array(self._rows[numbers]))
        return [
            text if size <= LONGEST else f"{text} … (the first {LONGEST:,} of {size:,} characters)"
            for text, size in zip(*(column.to_pylist() for column in found.columns), strict=True)
        ]


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
    aggregate: str = "none"


def write_page(folder: Path, experiment: Experiment, texts: Texts, kept: int) -> int:
    """Write all files; return their size in bytes.

    :param kept: number of texts of each query, besides those of relevant passages.
    """
    data, rankings, qrels = folder / "data", experiment.rankings, experiment.qrels
    data.mkdir()
    query_ids = experiment.values[0].query_ids
    size = sum((folder / name).write_bytes((Path(__file__).parent / name).read_bytes()) for name in ASSETS)

    def write(name: str, content: Any) -> int:
        return (data / f"{name}.js").write_bytes(pack(name, content))

    for system, values in enumerate(experiment.values):
        size += write(f"values-{system}", values_of(values, rankings, system, qrels))
    queries, systems, depth = rankings.top.shape
    bounds = shard_bounds(queries, systems, depth)
    for number, (start, end) in enumerate(itertools.pairwise(bounds)):
        records = [
            describe_query(query, rankings, qrels[query_ids[query]], texts, kept, experiment.aggregate)
            for query in range(start, end)
        ]
        size += write(f"results-{number}", records)
    index = {
        "dataset": experiment.dataset,
        "split": experiment.split,
        "systems": [*experiment.systems],
        "pair": _first_pair(experiment.values),
        "measures": experiment.values[0].measures,
        "relevance_level": experiment.relevance_level,
        "depth": depth,
        "texts": kept,
        "ids": query_ids,
        "queries": [*experiment.texts],
        "shards": bounds[:-1],
    }
    judged = sum(map(bool, qrels.values()))
    if not judged:
        index["overlap"] = COMMON
    elif judged < len(query_ids):
        index["judged"] = judged
    if experiment.aggregate != "none":
        index["aggregate"] = experiment.aggregate
    return size + write("index", index)


def _first_pair(values: Sequence[Values]) -> tuple[int, int]:
    """Choose the systems that are shown at first: the first, against the best of the others by the first measure."""
    if not values[0].measures:
        return min(1, len(values) - 1), 0
    means = [float(np.nanmean(system.values[:, 0])) for system in values]
    return max(range(1, len(means)), key=means.__getitem__, default=0), 0


def pack(name: str, content: Any) -> bytes:
    """Make a script that passes on `content` as compressed JSON in base64, which cannot end a script element."""
    packed = zlib.compress(json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(), 6)
    return b'shard("%s","%s");\n' % (name.encode("ascii"), base64.b64encode(packed))


def values_of(values: Values, rankings: Rankings, system: int, qrels: Qrels) -> dict[str, Any]:
    """Describe a system on all queries: values by measure, first rank of a relevant passage, whether the top is judged.

    The values are None for a query without judgements. If no query has judgements, the top `COMMON` passages are added,
    because systems are then compared by overlap.
    """
    columns = values.values.T.tolist()
    measures = [[None if math.isnan(value) else value for value in column] for column in columns]
    first, judged = [], []
    for query, query_id in enumerate(values.query_ids):
        ranks = rankings.ranks[system][rankings.offsets[query] : rankings.offsets[query + 1]]
        first.append(int(ranks[ranks > 0].min(initial=np.iinfo(np.int32).max)) if ranks.any() else 0)
        top = next(iter(rankings.top[query, system].tolist()), UNKNOWN)
        judged.append(None if top == UNKNOWN else int(rankings.documents[top].as_py() in qrels[query_id]))
    description: dict[str, Any] = {"measures": measures, "first": first, "judged": judged}
    if not measures:
        numbers = rankings.documents.dictionary_encode().indices.to_numpy()
        description["tops"] = [numbers[row[row != UNKNOWN]].tolist() for row in rankings.top[:, system, :COMMON]]
    return description


def describe_query(
    query: int, rankings: Rankings, judged: dict[str, int], texts: Texts, kept: int, aggregate: str = "none"
) -> dict[str, Any]:
    """Gather the results of all systems for a query: passages by their best rank, then in the order of systems.

    In the record, `docs` are ids: `relevant` relevant passages, followed by the top results of all systems. `grades`
    has None for an unjudged passage, `texts` the texts of the relevant passages and of `kept` more. `rankings` has
    indexes into `docs`, per system. `ranks` has the ranks of the relevant passages in the complete runs, per system; 0
    where they were not retrieved.

    If passages are aggregated, `docs` are passages that stand for their documents, possibly several for one, and
    `about` says which others were retrieved, per system like `rankings`.
    """
    span = slice(rankings.offsets[query], rankings.offsets[query + 1])
    relevant, top = rankings.relevant[span].tolist(), rankings.top[query]
    tops = [row[row != UNKNOWN].tolist() for row in top]
    listed = top.T.ravel()
    place = {number: at for at, number in enumerate(dict.fromkeys([*relevant, *listed[listed != UNKNOWN].tolist()]))}
    numbers = np.array(list(place), dtype=np.int32)
    record = {
        "docs": rankings.ids.take(pa.array(numbers)).to_pylist(),
        "grades": [judged.get(doc_id) for doc_id in rankings.documents.take(pa.array(numbers)).to_pylist()],
        "texts": texts[numbers[: len(relevant) + kept]],
        "relevant": len(relevant),
        "ranks": rankings.ranks[:, span].tolist(),
        "rankings": [[place[number] for number in ranking] for ranking in tops],
        "scores": [row[: len(ranking)].tolist() for row, ranking in zip(rankings.scores[query], tops, strict=True)],
    }
    if aggregate != "none":
        record["about"] = [lists[query].as_py() for lists in rankings.about]
    return record


def shard_bounds(queries: int, systems: int, results: int) -> list[int]:
    """List the first query of each shard, then the number of queries."""
    size = max(1, min(QUERIES_PER_SHARD, RESULTS_PER_SHARD // max(1, systems * results)))
    return [*range(0, queries, size), queries]
