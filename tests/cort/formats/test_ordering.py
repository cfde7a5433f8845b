import numpy as np
import pyarrow as pa
import pytest

from cort.formats.ordering import ranked


def test_order_is_by_score_then_doc_id():
    doc_ids, scores = pa.array(["b", "a", "10", "9", "ü", "z"]), np.array([1.0, 1, 2, 2, 1, 1])
    assert doc_ids.take(ranked(scores, doc_ids)).to_pylist() == ["10", "9", "a", "b", "z", "ü"]
    assert doc_ids.take(ranked(scores, doc_ids, descending=True)).to_pylist() == ["9", "10", "ü", "z", "b", "a"]
    assert len(ranked(np.empty(0), pa.array([], "string"))) == 0


@pytest.mark.parametrize("arranged", ["mixed", "by group", "by group and score"])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("longest", [8, 25])
def test_rows_are_those_of_a_sort_by_all_keys(monkeypatch, arranged, descending, longest):
    monkeypatch.setattr("cort.formats.ordering.ROWS_PER_SORT", 7)
    generator = np.random.default_rng(longest)
    ids = ["".join(generator.choice([*"aß\U0001f600~"], generator.integers(1, longest))) for _ in range(300)]
    groups, scores = generator.integers(0, 5, 300), generator.integers(-2, 2, 300) / np.float32(4)
    # Also equal ids, which keep their order.
    by = {"mixed": range(300), "by group": np.argsort(groups, kind="stable")}
    by["by group and score"] = np.lexsort((-scores, groups))
    groups, scores, ids = groups[by[arranged]], scores[by[arranged]], [ids[row] for row in by[arranged]]
    encoded = [text.encode() for text in ids]
    place = {text: number for number, text in enumerate(sorted(set(encoded), reverse=descending))}
    expected = sorted(range(300), key=lambda row: (groups[row], -scores[row], place[encoded[row]]))
    for kind in ("string", "large_string"):
        assert ranked(scores, pa.array(ids, kind), groups, descending).tolist() == expected
