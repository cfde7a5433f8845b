import numpy as np
import pytest
import torch

from cort.training.triples import Regularizer, flops


def test_flops_are_the_squared_mean_weights_of_tokens():
    vectors = torch.tensor([[[1.0, 0.0, 2.0], [3.0, 0.0, 0.0]], [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]])
    assert flops(vectors).tolist() == [2.0**2 + 1.0**2, 1.0]


def test_weights_grow_quadratically_to_those_of_the_settings():
    queries, passages = torch.ones(4, 2, 3), torch.full((4, 4, 3), 2.0)
    regularizer = Regularizer(query_flops=0.1, passage_flops=0.01, flops_warmup=0.5)
    progress = np.array([0.0, 0.25, 0.5, 0.9])
    whole = 0.1 * 3 + 0.01 * 12
    assert regularizer(queries, passages, progress).tolist() == pytest.approx([0, whole / 4, whole, whole])


def test_without_a_share_the_weights_are_whole_from_the_beginning():
    regularizer, ones = Regularizer(query_flops=1, passage_flops=0, flops_warmup=0), torch.ones(2, 3, 1)
    assert regularizer(ones, ones, np.zeros(2)).tolist() == [1, 1]
