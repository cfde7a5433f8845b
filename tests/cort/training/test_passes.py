"""Rows of files in order, drawn, and shuffled, with blocks of a few rows instead of millions."""

from collections import Counter

import numpy as np
import pytest

from cort.training import passes


@pytest.fixture
def rows(tmp_path, monkeypatch):
    monkeypatch.setattr(passes, "BLOCK", 7)
    found = np.arange(60, dtype=np.int32).reshape(-1, 3)
    found.tofile(tmp_path / "rows")
    return found


def shuffled(folder, seed=1, epoch=0):
    return np.concatenate(list(passes.shuffled(folder / "rows", 3, seed, epoch)))


def test_rows_come_in_their_order_in_blocks(rows, tmp_path):
    blocks = list(passes.iter_rows(tmp_path / "rows", 3))
    assert [len(block) for block in blocks] == [7, 7, 6]
    assert (np.concatenate(blocks) == rows).all()


def test_every_epoch_has_each_row_once_in_another_order(rows, tmp_path):
    epochs = [shuffled(tmp_path, epoch=epoch) for epoch in range(3)]
    for found in epochs:
        assert (np.sort(found, axis=0) == rows).all()
        assert (found[:, 1:] - found[:, :1] == [1, 2]).all()
        assert (found != rows).any()
    assert (epochs[0] != epochs[1]).any()
    assert (shuffled(tmp_path, epoch=1) == epochs[1]).all()
    assert (shuffled(tmp_path, seed=2, epoch=1) != epochs[1]).any()


@pytest.mark.usefixtures("rows")
def test_a_row_is_in_each_place_equally_often(tmp_path):
    runs = 300
    places = Counter(int((shuffled(tmp_path, seed=seed)[:, 0] == 0).argmax()) for seed in range(runs))
    # Six standard deviations of a binomial count with probability 1/20.
    assert all(abs(places[place] - runs / 20) < 6 * np.sqrt(runs / 20 * 19 / 20) for place in range(20))


def drawn(folder, count, seed):
    return np.concatenate(list(passes.draw_rows(passes.iter_rows(folder / "rows", 3), 20, count, seed)))


@pytest.mark.parametrize(("count", "kept"), [(0, 20), (5, 5), (19, 19), (20, 20), (21, 20)])
def test_the_given_number_is_drawn_in_order(rows, tmp_path, count, kept):
    found = drawn(tmp_path, count, 1)
    assert len(found) == len(np.unique(found[:, 0])) == kept
    assert (np.diff(found[:, 0]) > 0).all()


def test_each_row_is_drawn_equally_often(rows, tmp_path):
    runs = 300
    counts = Counter((np.concatenate([drawn(tmp_path, 5, seed) for seed in range(runs)])[:, 0] // 3).tolist())
    assert all(abs(counts[row] - runs / 4) < 6 * np.sqrt(runs / 4 * 3 / 4) for row in range(20))
