import pytest

from cort.evaluation.folds import draw_folds
from cort.runtime.errors import InputError


@pytest.mark.parametrize(("queries", "folds"), [(5, 5), (17, 5), (20, 3), (100, 2)])
def test_folds_are_of_equal_size_and_depend_on_ids_and_seed_alone(queries, folds):
    ids = [f"q{number}" for number in range(queries)]
    drawn = draw_folds(ids, folds, 42, "x")
    assert sorted(query for fold in drawn for query in fold) == sorted(ids)
    assert len(drawn) == folds
    sizes = [len(fold) for fold in drawn]
    assert max(sizes) - min(sizes) <= 1
    assert drawn == draw_folds(reversed(ids), folds, 42, "x") != draw_folds(ids, folds, 43, "x")


def test_fewer_queries_than_folds_are_refused():
    with pytest.raises(InputError, match=r"qrels: found 2 judged queries, expected 3 or more, one per fold; lower"):
        draw_folds(["a", "b"], 3, 42, "qrels")
