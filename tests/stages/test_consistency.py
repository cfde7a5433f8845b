import json
import random

import numpy as np
import pytest

from cort import analyze
from cort.evaluation.depths import REFERENCE_DEPTH
from cort.evaluation.depths import consistency as factors
from cort.formats.runs import read_run
from tests.support.common import command_line, write_ranked


@pytest.fixture
def call(tmp_path):
    def call(run, reference, *depths):
        files = {"run": write_ranked(tmp_path / "f.trec", run)}
        files |= {"reference": write_ranked(tmp_path / "r.trec", reference)}
        names = {"reference-name": "official", "system": "f", "split": "dev", "output": tmp_path / "out.json"}
        words = command_line(files | names)
        return analyze.main(["consistency", *words, "--depths", *map(str, depths)]), tmp_path / "out.json"

    return call


def test_known_answer(call):
    status, output = call({"1": list("abcd"), "2": list("xy")}, {"2": list("y"), "1": list("dab")}, 1, 2, 3, 4)
    assert status == 0
    factors = [(1 + 0) / 2, (1 + 1 / 2) / 2, (2 / 3 + 1 / 2) / 2, (3 / 4 + 1 / 2) / 2]
    expected = {"system": "f", "split": "dev", "reference": "official", "queries": 2, "depths": [1, 2, 3, 4]}
    assert json.loads(output.read_text()) == expected | {"consistency": pytest.approx(factors)}


@pytest.mark.parametrize(
    ("run", "reference", "values"),
    [
        # Documents of another query do not count.
        ({"1": ["a"], "2": ["b"]}, {"1": ["b"], "2": ["a"]}, [0]),
        # A query that the reference lacks counts 0.
        ({"1": ["a"], "2": ["a"]}, {"1": ["a"]}, [0.5]),
        ({"1": ["a"]}, {}, [0]),
        ({}, {"1": ["a"]}, [0]),
        ({"1": list("abc"), "2": list("cab")}, {"1": list("abc"), "2": list("cab")}, [1, 1, 1, 1]),
    ],
)
def test_consistency_of_small_runs(call, run, reference, values):
    _, output = call(run, reference, *[1, 2, 3, 100][: len(values)])
    assert json.loads(output.read_text())["consistency"] == values


def test_the_same_as_equation_5_on_random_runs(tmp_path):
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
    assert factors(*files, depths, limit) == pytest.approx(expected)
    assert 0 < expected[0] < 1
    assert REFERENCE_DEPTH == 1000


@pytest.mark.parametrize(
    ("run", "reference", "depths", "complaint"),
    [
        ({"1": ["a"]}, {"1": ["a"]}, [0, 1], "--depths: found 0 1, expected increasing numbers from 1"),
        ({"1": ["a"]}, {"1": ["a"]}, [2, 1], "--depths: found 2 1"),
        ({"1": ["a"]}, {"2": ["a"]}, [1], "f.trec, expected runs of the same split"),
    ],
)
def test_bad_input_is_refused(call, capsys, run, reference, depths, complaint):
    status, output = call(run, reference, *depths)
    assert status == 1
    assert complaint in capsys.readouterr().err
    assert not output.exists()
