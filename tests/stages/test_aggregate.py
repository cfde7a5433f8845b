import math

import numpy as np
import pytest

from cort import aggregate
from cort.formats.records import Ranking
from cort.formats.runs import write_run


@pytest.fixture
def passages(tmp_path):
    """A run whose documents `b` and `a` tie by `max`."""
    rankings = [
        Ranking("q2", ["b#3", "a#10", "a#9", "c#0", "a#1", "whole", "b#0"], np.array([4, 4, 3.5, 3, 1, 0.5, -2])),
        Ranking("q1", ["c#1"], np.array([0.25])),
    ]
    write_run(tmp_path / "run.trec", rankings, "bm25")
    return tmp_path / "run.trec"


def just_below(score):
    """The next lower number of single precision."""
    return np.nextafter(np.float32(score), np.float32(-math.inf))


BELOW = just_below(4)
EXPECTED = {
    "max": [("b", 4), ("a", BELOW), ("c", 3), ("whole", 0.5)],
    "first": [("c", 3), ("a", 1), ("whole", 0.5), ("b", -2)],
    "mean3": [("c", 3), ("a", (float(BELOW) + 3.5 + 1) / 3), ("b", (4 - 2) / 2), ("whole", 0.5)],
}


@pytest.mark.parametrize("how", EXPECTED)
def test_documents_come_by_the_scores_of_their_passages(passages, tmp_path, how):
    output = tmp_path / "documents.trec"
    assert aggregate.main(["--run", str(passages), "--aggregate", how, "--output", str(output)]) == 0
    lines = [line.split() for line in output.read_text("utf-8").splitlines()]
    assert [(query, doc_id) for query, _, doc_id, *_ in lines] == [
        *(("q2", one) for one, _ in EXPECTED[how]),
        ("q1", "c"),
    ]
    assert [np.float32(line[4]) for line in lines] == [*(np.float32(score) for _, score in EXPECTED[how]), 0.25]
    assert [int(line[3]) for line in lines] == [1, 2, 3, 4, 1]
    assert {line[5] for line in lines} == {"bm25"}


def test_nothing_is_aggregated_if_nothing_was_found(tmp_path):
    (tmp_path / "empty.trec").write_bytes(b"")
    words = ["--run", str(tmp_path / "empty.trec"), "--aggregate", "max", "--output", str(tmp_path / "documents.trec")]
    assert aggregate.main(words) == 0
    assert (tmp_path / "documents.trec").read_bytes() == b""
