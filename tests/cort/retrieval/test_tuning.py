import itertools
import math

import numpy as np
import pyarrow as pa
import pytest

from cort.evaluation.measures import evaluate_run
from cort.formats.artifacts import write_artifact
from cort.formats.records import Ranking
from cort.formats.runs import run_of
from cort.retrieval.documents import as_documents
from cort.retrieval.tuning import Case, choose, choose_carefully, make_grid, measure_grid
from cort.retrieval.weights import Point, TunedWeights, read_weights
from cort.runtime.errors import InputError


@pytest.mark.parametrize(("parts", "points"), [(2, 21), (3, 66), (4, 286)])
def test_the_grid_has_all_weights_of_its_steps(parts, points):
    grid = make_grid(parts)
    assert len(set(grid)) == len(grid) == points
    assert all(math.fsum(one) == pytest.approx(1) and min(one) >= 0 for one in grid)
    for corner in set(itertools.permutations([1.0, *[0.0] * (parts - 1)])):
        assert corner in grid
    if parts == 2:
        assert sorted(one[0] for one in grid) == [step / 20 for step in range(21)]


def test_the_middle_of_equally_good_weights_is_chosen():
    grid = make_grid(2)
    assert grid[choose(grid, np.full((21, 4), 0.5))] == (0.5, 0.5)
    values = np.zeros((21, 4))
    values[[grid.index((share, 1 - share)) for share in (0.2, 0.25, 0.3)]] = 0.75
    assert grid[choose(grid, values)] == (0.25, 0.75)
    # The mean of these is worth nothing: the nearest of them.
    values[[grid.index((share, 1 - share)) for share in (0.2, 0.3)]] = 0
    values[[grid.index((share, 1 - share)) for share in (0.0, 1.0)]] = 0.75
    assert grid[choose(grid, values)] == (0.25, 0.75)


@pytest.mark.parametrize("parts", [2, 3])
def test_weights_count_by_how_far_they_are_from_the_best(parts):
    grid = make_grid(parts)
    values = np.random.default_rng(parts).normal(size=(len(grid), 5)) / 10
    best = int(values.mean(axis=1).argmax())
    total, mean = 0.0, [0.0] * parts
    good = []
    for weights, one in zip(grid, values, strict=True):
        difference = [b - a for a, b in zip(one, values[best], strict=True)]
        behind = sum(difference) / 5
        error = math.sqrt(sum((d - behind) ** 2 for d in difference) / 5 / 4)
        share = math.exp(-((behind / error) ** 2) / 2) if error else 1.0
        total += share
        mean = [m + share * w for m, w in zip(mean, weights, strict=True)]
        if not error or behind <= 2 * error:
            good.append(weights)
    nearest = min(good, key=lambda one: math.dist(one, [m / total for m in mean]))
    assert grid[choose(grid, values)] == nearest


def test_few_queries_move_weights_little_and_many_to_the_best():
    grid = make_grid(2)
    best, equal = grid.index((0.75, 0.25)), grid.index((0.5, 0.5))
    # Queries differ by 1, 1, 1 and -2, mean .25, standard error sqrt(27/4/4/3) = .75; then by .25 each, without error.
    values = np.full((21, 4), -9.0)
    values[equal], values[best] = 0.0, [1, 1, 1, -2]
    # exp(-1/18) = .946 to 1: the mean is .6285, as far from both as the grid allows, so the better mean decides.
    assert choose(grid, values) == best
    values[grid.index((0.45, 0.55))] = values[equal]
    assert choose(grid, values) == equal
    values[best] = 0.25
    assert choose(grid, values) == best
    # One query has no error: the best mean decides.
    assert choose(grid, values[:, :1]) == best


@pytest.mark.parametrize(
    ("best", "lexical", "expected"),
    [
        ((0.1, 0.9), (False, True), (0.3, 0.7)),  # half way to equal weights
        ((0.9, 0.1), (False, True), (0.5, 0.5)),  # the term-based part keeps its equal share
        ((0.9, 0.1), (False, False), (0.7, 0.3)),
        ((0.9, 0.1), (True, True), (0.7, 0.3)),
        ((0.1, 0.1, 0.8), (False, True, False), (0.2, 0.3, 0.5)),  # .217, .217, .567, then .184, .333, .483
    ],
)
def test_generated_queries_move_weights_half_way_and_away_from_no_lexical_part(best, lexical, expected):
    grid = make_grid(len(best))
    values = np.zeros((len(grid), 4))
    values[grid.index(best)] = 1
    assert grid[choose_carefully(grid, values, lexical)] == expected


def test_the_grid_is_measured_on_rankings_by_score_then_id():
    scores = np.array([[1.0, 0.5, 0.0], [0.0, 0.5, 1.0]])
    cases = [Case("1", pa.array(["a", "b", "c", "z"]), scores), Case("unjudged", pa.array(["a"]), np.ones((2, 1)))]
    qrels = {"1": {"c": 1}, "2": {"a": 1}, "3": {"z": 1}}
    grid = [(1.0, 0.0), (0.5, 0.5), (0.0, 1.0)]
    values = measure_grid(cases, qrels, grid, "RR", 1, 10)
    # A query without results counts 0; of equal scores the first id is first.
    assert values.tolist() == [[1 / 3, 0, 0], [1 / 3, 0, 0], [1, 0, 0]]
    assert measure_grid(cases, qrels, grid, "RR", 1, 2).tolist() == [[0, 0, 0], [0, 0, 0], [1, 0, 0]]
    assert measure_grid(cases, {"1": {"z": 1}}, grid, "RR", 1, 10).tolist() == [[1 / 4]] * 3


@pytest.mark.parametrize("measure", ["RR@10", "nDCG@3", "AP", "R@5", "Judged@4", "P(judged_only=True)@2", "R_cap@1"])
@pytest.mark.parametrize("aggregate", ["none", "max"])
def test_a_grid_is_measured_as_sorted_rankings_would_be(measure, aggregate):
    """Scores with many ties, documents that are always below, documents that no component has."""
    generator = np.random.default_rng(2)
    grid, cases, runs, qrels = make_grid(3), [], [[] for _ in range(66)], {}
    for query in map(str, range(6)):
        ids = [f"d{d % 9}#{d}" if aggregate == "max" else f"d{d}" for d in generator.permutation(30)[:20]]
        ids[:15] = sorted(ids[:15])
        scores = generator.integers(0, 4, (3, 15)) / 3
        cases.append(Case(query, pa.array(ids), scores))
        qrels[query] = {f"d{d}": int(generator.integers(-1, 3)) for d in generator.permutation(12)[:6]}
        for run, weights in zip(runs, grid, strict=True):
            totals = sum(weight * own for weight, own in zip(weights, scores, strict=True))
            by = sorted(range(15), key=lambda row: (-totals[row], ids[row]))
            ranked = [ids[row] for row in by] + ids[15:]
            run.append(Ranking(query, ranked[:12], np.arange(12.0, 0, -1)))
    values = measure_grid(cases, qrels, grid, measure, 1, 12, aggregate)
    for row, rankings in zip(values, runs, strict=True):
        expected = evaluate_run(as_documents(run_of(rankings), aggregate), qrels, [measure])
        assert row.tolist() == [value[measure] for value in expected.values()]


def test_weights_of_other_parts_are_refused(tmp_path):
    path = tmp_path / "weights.json"
    write_artifact(path, TunedWeights("RR@10", 1, 3, ["a", "b"], (0.25, 0.75), 0.5, 0.5, [Point((0.25, 0.75), 0.5)]))
    for parts in (["a", "b"], ["a", None]):
        assert read_weights(path, parts) == (0.25, 0.75)
    for parts in (["a", "b", "c"], ["a"], ["b", "a"], ["c", None]):
        with pytest.raises(InputError, match=r"weights.json: found weights of a, b, expected those of"):
            read_weights(path, parts)
