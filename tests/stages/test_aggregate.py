import math

import numpy as np
import pytest

from cort.formats.records import Ranking
from cort.formats.runs import write_run

# The next lower number of single precision.
BELOW = np.nextafter(np.float32(4), np.float32(-math.inf))
EXPECTED = {
    "max": [("b", 4), ("a", BELOW), ("c", 3), ("whole", 0.5)],
    "first": [("c", 3), ("a", 1), ("whole", 0.5), ("b", -2)],
    "mean3": [("c", 3), ("a", (float(BELOW) + 3.5 + 1) / 3), ("b", (4 - 2) / 2), ("whole", 0.5)],
}


@pytest.mark.parametrize("how", EXPECTED)
def test_documents_come_by_the_scores_of_their_passages(stage, tmp_path, how):
    """By `max`, `b` and `a` tie."""
    rankings = [
        Ranking("q2", ["b#3", "a#10", "a#9", "c#0", "a#1", "whole", "b#0"], np.array([4, 4, 3.5, 3, 1, 0.5, -2])),
        Ranking("q1", ["c#1"], np.array([0.25])),
    ]
    write_run(tmp_path / "run.trec", rankings, "bm25")
    output = stage("aggregate", run=tmp_path / "run.trec", aggregate=how, output=tmp_path / "documents.trec")
    lines = [line.split() for line in output.read_text("utf-8").splitlines()]
    expected = [*(("q2", doc_id, np.float32(score)) for doc_id, score in EXPECTED[how]), ("q1", "c", 0.25)]
    assert [(line[0], line[2], np.float32(line[4])) for line in lines] == [
        (*ids, np.float32(s)) for *ids, s in expected
    ]
    assert [(line[3], line[5]) for line in lines] == [(rank, "bm25") for rank in "12341"]


def test_nothing_is_aggregated_if_nothing_was_found(stage, tmp_path):
    (tmp_path / "empty.trec").write_bytes(b"")
    output = stage("aggregate", run=tmp_path / "empty.trec", aggregate="max", output=tmp_path / "documents.trec")
    assert output.read_bytes() == b""
