import numpy as np
import pyarrow as pa
import pytest

from cort.formats import pairs
from cort.formats.ids import hashes
from cort.formats.pairs import Pairs, find_repeated, match


def drawn(generator, count, kind="string"):
    """Pairs of few ids, so that many are equal; a space in one must not be that between two."""
    ids = ["a", "b", "a b", "ab", "é", "1", "11", "a long id of more than eight bytes"]
    return [pa.array(generator.choice(ids, count), kind) for _ in range(2)]


HASHES = {
    "spread": hashes,
    "few": lambda ids: hashes(ids) % np.uint64(2),
    "one": lambda ids: hashes(ids) * np.uint64(0),
}


@pytest.mark.parametrize("spread", HASHES.values(), ids=HASHES)
@pytest.mark.parametrize("sizes", [(60, 40), (0, 5), (5, 0)])
def test_each_pair_finds_the_first_row_with_the_same_pair(monkeypatch, spread, sizes):
    monkeypatch.setattr(pairs, "hashes", spread)
    generator = np.random.default_rng(4)
    left, right = Pairs(*drawn(generator, sizes[0])), Pairs(*drawn(generator, sizes[1], "large_string"))
    known = [*zip(*(column.to_pylist() for column in right), strict=True)]
    wanted = zip(*(column.to_pylist() for column in left), strict=True)
    assert match(left, right).tolist() == [known.index(pair) if pair in known else -1 for pair in wanted]


@pytest.mark.parametrize("spread", HASHES.values(), ids=HASHES)
def test_the_first_repeated_pair_is_found(monkeypatch, spread):
    monkeypatch.setattr(pairs, "hashes", spread)
    doc_ids = pa.array(["a", "b", "a", "b", "a"])
    assert find_repeated(np.array([0, 0, 1, 1, 2]), doc_ids) is None
    assert find_repeated(np.array([0, 0, 1, 0, 0], np.int32), doc_ids) == 3
