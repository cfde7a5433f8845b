import json
import random

import numpy as np
import pytest

from cort.evaluation import curves
from cort.evaluation.curves import REFERENCE_DEPTH
from cort.evaluation.curves import consistency as factors
from cort.formats.runs import read_run
from tests.support.common import write_ranked


def options(folder, run, reference, *depths):
    files = {"run": write_ranked(folder / "f.trec", run), "reference": write_ranked(folder / "r.trec", reference)}
    named = {"reference-name": "official", "system": "f", "split": "dev", "depths": [*depths]}
    return {"name": "analyze consistency", **files, **named, "output": folder / "out.json"}


def test_known_answer(stage, tmp_path):
    run, reference = {"1": list("abcd"), "2": list("xy")}, {"2": list("y"), "1": list("dab")}
    output = stage(**options(tmp_path, run, reference, 1, 2, 3, 4))
    factors = [(1 + 0) / 2, (1 + 1 / 2) / 2, (2 / 3 + 1 / 2) / 2, (3 / 4 + 1 / 2) / 2]
    expected = {"system": "f", "split": "dev", "reference": "official", "queries": 2, "depths": [1, 2, 3, 4]}
    assert json.loads(output.read_text()) == expected | {"consistency": pytest.approx(factors)}


@pytest.mark.parametrize(("run", "reference"), [({"1": ["a"]}, {}), ({}, {"1": ["a"]})])
def test_nothing_is_consistent_with_a_run_without_results(stage, tmp_path, run, reference):
    output = stage(**options(tmp_path, run, reference, 1))
    assert json.loads(output.read_text())["consistency"] == [0]


def test_the_same_as_equation_5_on_random_runs(monkeypatch, tmp_path):
    generator = random.Random(3)  # noqa: S311
    documents = [f"d{number}" for number in range(60)]

    def draw():
        return {
            f"q{number}": generator.sample(documents, generator.randint(1, 40))
            for number in generator.sample(range(20), 15)
        }

    run, reference = draw(), draw()
    depths, limit = [1, 3, 10, 50], 12
    expected = [
        np.mean([len({*docs[:n]} & {*reference.get(query, [])[:limit]}) / len(docs[:n]) for query, docs in run.items()])
        for n in depths
    ]
    files = read_run(write_ranked(tmp_path / "f.trec", run)), read_run(write_ranked(tmp_path / "r.trec", reference))
    monkeypatch.setattr(curves, "REFERENCE_DEPTH", limit)
    assert factors(*files, depths) == pytest.approx(expected)
    assert 0 < expected[0] < 1
    assert REFERENCE_DEPTH == 1000


@pytest.mark.parametrize(
    ("reference", "depths", "words"),
    [
        ("1", [2, 1], "--depths: found [2, 1]"),
        ("2", [1], "f.trec, expected runs of the same split"),
    ],
)
def test_bad_input_is_refused(refused, tmp_path, reference, depths, words):
    assert words in refused(**options(tmp_path, {"1": ["a"]}, {reference: ["a"]}, *depths))
