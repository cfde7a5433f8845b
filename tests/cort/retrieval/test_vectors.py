import numpy as np

from cort.retrieval.vectors import open_vectors
from tests.support.vectors import names, shards, unit


def test_shards_are_one_array_in_the_order_given(tmp_path):
    vectors, ids = unit(1, 90), names("d", 90)
    first, empty, second = shards(tmp_path, "p", ids, vectors, (40, 40), 7, storage="fp16")
    opened = open_vectors([second, empty, first])
    order = np.roll(np.arange(90), -40)
    expected = vectors[order].astype(np.float16)
    assert opened.ids.to_pylist() == [ids[row] for row in order]
    assert opened.matrix().dtype == np.float32
    assert np.array_equal(opened.matrix(), expected)
    rows = np.array([89, 0, 49, 50, 49])
    assert opened[rows].tobytes() == expected[rows].tobytes()
    assert np.array_equal(np.concatenate([piece for _, piece in opened.pieces(3, 77)]), expected[3:77])
    nothing = open_vectors([empty])
    assert (len(nothing), nothing.matrix().shape, nothing.lengths().shape) == (0, (0, 16), (0,))
