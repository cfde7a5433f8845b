from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from cort.config import paths
from cort.evaluation.comparisons import Comparisons
from cort.evaluation.measures import Measures
from cort.formats import tables
from cort.formats.shards import write_shard
from cort.reporting.costs import (
    MEMORY,
    TIME,
    bytes_per_passage,
    costs_frame,
    costs_panels,
    costs_table,
    front,
    shares_of_memory,
)
from cort.reporting.format import memory_of, verdict_lines
from tests.support.online import results_with
from tests.support.reporting import comparison

ROWS, WIDTH, INDEX = 50, 24, 700
SYSTEMS = {
    "bm25": {"retrieve": "bm25"},
    "dense": {"retrieve": "encoder"},
    "dense-fp16": {"retrieve": "encoder", "storage": "fp16"},
    "dense-int8": {"retrieve": "encoder", "storage": "int8"},
    "dense-12": {"retrieve": "encoder", "dimension": 12},
    "dense-12-fp16": {"retrieve": "encoder", "dimension": 12, "storage": "fp16"},
    "dense-12-int8": {"retrieve": "encoder", "dimension": 12, "storage": "int8"},
    "first": {"retrieve": "encoder", "dimension": 6},
    "both": {"fuse": {"systems": ["bm25", "dense", "dense-int8"]}},
    "again": {"fuse": {"systems": ["bm25", "both"]}},
    "reranked": {"rerank": "dense", "reranker": "cross", "depth": 3},
    "theirs": {"run": "theirs.trec"},
}
ENCODER = {"pretrained": "encoder"}
VECTOR = 4 * WIDTH
EXPECTED = {
    "bm25": INDEX / ROWS,
    "dense": VECTOR,
    "dense-fp16": VECTOR / 2,
    "dense-int8": VECTOR / 4,
    "dense-12": VECTOR / 2,
    "dense-12-fp16": VECTOR / 4,
    "dense-12-int8": VECTOR / 8,
    "first": VECTOR / 4,
    # What several parts search counts once.
    "both": INDEX / ROWS + VECTOR * 5 / 4,
    "again": INDEX / ROWS + VECTOR * 5 / 4,
    "reranked": VECTOR,
}


def write(results):
    """Write passages, vectors and an index of known sizes."""
    ids = [f"d{number}" for number in range(ROWS)]
    passages, index = Path(results.at(paths.PASSAGES)), Path(results.at(paths.LEXICAL_INDEX, lexical="bm25")).parent
    [vectors] = results.vectors("encoders", "encoder")
    for folder in (passages.parent, Path(vectors).parent, index / "segments"):
        folder.mkdir(parents=True)
    tables.write_table(passages, pa.table([ids, ["text"] * ROWS], schema=tables.PASSAGES))
    made = np.ones((ROWS, WIDTH), np.float32)
    write_shard(vectors, [(ids, made)], model="m", dimension=WIDTH, count=ROWS)
    (index / "manifest.json").write_bytes(b"x" * 300)
    (index / "segments" / "one").write_bytes(b"x" * (INDEX - 300))


def test_memory_is_that_of_vectors_and_indexes(tmp_path):
    results = results_with(tmp_path, SYSTEMS, encoders={"encoder": ENCODER})
    write(results)
    sizes = bytes_per_passage(results)
    assert sizes == pytest.approx(EXPECTED)
    shares = shares_of_memory(results, sizes)
    assert shares["dense-int8", "dense"] == shares["first", "dense"] == 1 / 4
    assert {whole for _, whole in shares} == {"dense"}
    [vectors] = results.vectors("encoders", "encoder")
    Path(vectors).unlink()
    assert bytes_per_passage(results) == {"bm25": INDEX / ROWS}


def test_the_table_joins_intervals_and_costs_and_has_the_front_in_bold():
    means = {"bm25": 0.2, "slow": 0.3, "worse": 0.19, "unknown": 0.9}
    measures = [Measures(name, "dev", 1, 9, {"RR@10": value, "R@50": 1 - value}) for name, value in means.items()]
    rows = [comparison("slow", mean_low=0.25, mean_high=0.35, baseline_low=0.1, baseline_high=0.3)]
    compared = Comparisons("dev", "bm25", 9, 0.95, 100, 0.05, 1, rows, [])
    timed = [("bm25", 1, 2.0), ("slow", 1, 8.0), ("slow", 32, 1.0)]
    rows = [SimpleNamespace(system=name, batch=batch, total={"p50": value}) for name, batch, value in timed]
    sizes = {"bm25": 100.0, "slow": 400.0, "worse": 100.0}
    frame = costs_frame(measures, [compared], [SimpleNamespace(rows=rows)], sizes)
    assert frame.to_numpy().tolist() == [
        ["dev", "bm25", 0.2, 0.1, 0.3, 2.0, 100.0, "RR@10"],
        ["dev", "slow", 0.3, 0.25, 0.35, 8.0, 400.0, "RR@10"],
        ["dev", "worse", 0.19, None, None, None, 100.0, "RR@10"],
    ]
    table = costs_table(frame)
    assert table.bold == {(0, "system"), (1, "system")}
    assert table.shown()[1] == ["dev", "slow", "0.300", "0.250", "0.350", "8.00", "400", "RR@10"]
    assert costs_frame(measures, [], [], sizes, "R@50")["mean"].tolist() == [0.8, 0.7, 0.81]
    time, memory = costs_panels(frame, {"bm25": 0, "slow": 1, "worse": 2})
    assert (time.title, time.x_label, memory.x_label) == ("RR@10, dev", TIME, MEMORY)
    assert {line.label: (line.x, line.y, line.bars) for line in memory.lines} == {
        "Pareto front": ([100.0, 400.0], [0.2, 0.3], ()),
        "bm25": ([100.0], [0.2], [(0.1, 0.3)]),
        "slow": ([400.0], [0.3], [(0.25, 0.35)]),
        "worse": ([100.0], [0.19], []),
    }
    assert [line.label for line in time.lines] == ["Pareto front", "bm25", "slow"]


def test_the_front_has_what_nothing_dominates():
    generator = np.random.default_rng(3)
    points = {name: tuple(generator.integers(0, 4, 3).tolist()) for name in range(60)}
    points |= {60: (9, None, 1), 61: (9, None, None)}

    def dominates(other, own):
        other, own = ((-a, *(np.inf if cost is None else cost for cost in costs)) for a, *costs in (other, own))
        return all(np.less_equal(other, own)) and any(np.less(other, own))

    expected = [name for name, own in points.items() if not any(dominates(one, own) for one in points.values())]
    assert front(points) == expected


def test_a_verdict_says_the_share_of_the_memory():
    row = comparison("dense-int8", "dense", verdict="NOT SIGNIFICANT", difference=-0.002)
    compared = Comparisons("dev", "bm25", 9, 0.95, 100, 0.05, 1, [row], [])
    assert memory_of(row, {}) == ""
    assert verdict_lines(compared, {("dense-int8", "dense"): 0.25})[1].endswith("; 25.0 % of the memory")
