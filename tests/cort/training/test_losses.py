import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from cort.training.losses import (
    COSINE_LIMIT,
    angular_similarity,
    batch_triplet_loss,
    info_nce_loss,
    inner_product,
    margin_mse_loss,
    multilabel_margin_loss,
    pointwise_loss,
)

# What the limit on the cosine takes from the similarity of a vector with itself, and gives to that with its opposite.
CUT = math.acos(COSINE_LIMIT) / math.pi


def sim(q, d):
    """Section 3.3, word for word."""
    q, d = q.tolist(), d.tolist()
    dot = sum(x * y for x, y in zip(q, d, strict=True))
    norms = math.sqrt(sum(x * x for x in q)) * math.sqrt(sum(x * x for x in d))
    return 1 - math.acos(dot / norms) / math.pi


def triplet(q, positive, negative, margin):
    return max(0.0, sim(q, negative) - sim(q, positive) + margin)


def paper_loss(queries, positives, negatives, margin):
    n = len(queries)
    total = 0.0
    for i in range(n):
        total += sum(triplet(queries[i], positives[i], negatives[j], margin) for j in range(n))
        total += sum(triplet(queries[i], positives[i], positives[k], margin) for k in range(n) if k != i)
    return total


def draw(seed, n, e):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(n, e, generator=generator, dtype=torch.float64) for _ in range(3))


@pytest.mark.parametrize("margin", [0.0, 0.1, 1.0])
@pytest.mark.parametrize(("n", "e"), [(1, 3), (2, 2), (3, 5), (6, 16)])
def test_batch_triplet_loss_equals_the_double_loop_of_the_paper(n, e, margin):
    vectors = draw(n * 100 + e, n, e)
    assert batch_triplet_loss(*vectors, margin).item() == pytest.approx(paper_loss(*vectors, margin), abs=1e-12)


def test_the_loss_sums_n_times_2n_minus_1_terms():
    queries = torch.eye(4, dtype=torch.float64)[:3]
    other = torch.eye(4, dtype=torch.float64)[3:].expand(3, 4)
    # Every similarity is 1/2: each term is the margin alone.
    assert batch_triplet_loss(queries, other, other, 0.1).item() == pytest.approx(3 * (2 * 3 - 1) * 0.1, abs=1e-12)


def test_a_triple_beyond_the_margin_costs_nothing():
    query, positive, negative = torch.tensor([[1.0, 0]]), torch.tensor([[1.0, 0.1]]), torch.tensor([[-1.0, 0]])
    assert batch_triplet_loss(query, positive, negative, 0.1).item() == 0


def test_the_own_positive_is_no_negative_but_an_equal_one_of_another_query_is():
    vector = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    twice = vector.expand(2, 2)
    opposite = -twice
    # Per query: the negatives cost 0, the other query's equal positive costs the margin.
    assert batch_triplet_loss(twice, twice, opposite, 0.25).item() == pytest.approx(2 * 0.25, abs=1e-12)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([1, 0], [0, 5], 1 / 2),
        ([1, 0], [1, 1], 3 / 4),
        ([1, 0], [-1, 1], 1 / 4),
        ([2, 0], [1, math.sqrt(3)], 1 - 1 / 3),
        ([1, 0], [3, 0], 1 - CUT),
        ([1, 0], [-3, 0], CUT),
    ],
)
def test_angular_similarity_of_known_angles(a, b, expected):
    a, b = (torch.tensor([x], dtype=torch.float64) for x in (a, b))
    assert angular_similarity(a, b).item() == pytest.approx(expected, abs=1e-12)


def test_the_limit_costs_less_than_half_a_thousandth():
    assert 0 < CUT < 5e-4


def test_similarity_is_of_all_pairs_and_in_single_precision_at_least():
    queries, passages, _ = draw(1, 4, 3)
    similarity = angular_similarity(queries[:2], passages)
    assert similarity.shape == (2, 4)
    assert all(
        similarity[i, j].item() == pytest.approx(sim(queries[i], passages[j]), abs=1e-12)
        for i in range(2)
        for j in range(4)
    )
    half = angular_similarity(queries[:2].bfloat16(), passages.bfloat16())
    assert half.dtype == torch.float32
    assert torch.allclose(half.double(), similarity, atol=0.02)


def test_similarity_orders_as_the_cosine_does():
    queries, passages, _ = draw(2, 50, 8)
    cosine = functional.normalize(queries[:1], dim=-1) @ functional.normalize(passages, dim=-1).T
    assert torch.equal(angular_similarity(queries[:1], passages).argsort(), cosine.argsort())


@pytest.mark.parametrize("margin", [0.1, 1.0])
def test_gradients_equal_finite_differences(margin):
    vectors = [vector.requires_grad_() for vector in draw(7, 3, 4)]
    assert torch.autograd.gradcheck(lambda *v: batch_triplet_loss(*v, margin), vectors, eps=1e-7, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_gradients_are_finite_at_cosine_one(sign, dtype):
    queries = torch.tensor([[0.3, -0.2, 0.9], [1.0, 0.0, 0.0]], dtype=dtype, requires_grad=True)
    passages = (sign * queries.detach() * 2).requires_grad_()
    loss = batch_triplet_loss(queries, passages, -passages.detach(), 0.1)
    loss.backward()
    assert math.isfinite(loss.item())
    assert torch.isfinite(queries.grad).all()
    assert torch.isfinite(passages.grad).all()


def test_gradients_of_zero_vectors_are_finite():
    queries = torch.zeros(2, 3, requires_grad=True)
    batch_triplet_loss(queries, torch.eye(3)[:2], torch.eye(3)[1:], 0.1).backward()
    assert torch.isfinite(queries.grad).all()


def test_pointwise_loss_is_the_negative_log_of_the_sigmoid():
    logits = torch.tensor([2.0, -1.0, 0.5, 0.0])
    relevance = torch.tensor([1, 0, 0, 1])
    sigmoid = [1 / (1 + math.exp(-x)) for x in (2, -1, 0.5, 0)]
    expected = -(math.log(sigmoid[0]) + math.log(1 - sigmoid[1]) + math.log(1 - sigmoid[2]) + math.log(1 / 2)) / 4
    assert pointwise_loss(logits, relevance).mean().item() == pytest.approx(expected, rel=1e-6)


def test_pointwise_loss_of_large_logits_is_finite():
    assert pointwise_loss(torch.tensor([-200.0]), torch.tensor([1])).item() == pytest.approx(200)
    assert pointwise_loss(torch.tensor([200.0]), torch.tensor([1])).item() == pytest.approx(0, abs=1e-30)


def test_pointwise_gradient_is_the_mean_of_sigmoid_minus_label():
    logits = torch.tensor([2.0, -1.0, 0.5], requires_grad=True)
    pointwise_loss(logits, torch.tensor([1, 0, 1])).mean().backward()
    expected = (1 / (1 + np.exp(-np.array([2, -1, 0.5]))) - np.array([1, 0, 1])) / 3
    assert np.allclose(logits.grad.numpy(), expected, atol=1e-7)


def multilabel_loop(queries, passages, positive):
    """RepBERT's loss, term by term."""
    total = 0.0
    for query, relevant in zip(queries, positive, strict=True):
        scores = [float(query @ passage) for passage in passages]
        for good, is_good in zip(scores, relevant, strict=True):
            for other, is_other in zip(scores, relevant, strict=True):
                if is_good and not is_other:
                    total += max(0.0, 1.0 - (good - other)) / len(passages)
    return total / len(queries)


@pytest.mark.parametrize("seed", range(5))
def test_multilabel_loss_is_the_sum_over_relevant_and_other_passages(seed):
    queries, passages, _ = draw(seed, 4, 3)
    passages = torch.cat([passages, draw(seed + 50, 5, 3)[0]])
    positive = torch.from_numpy(np.random.default_rng(seed).random((4, 9)) < 0.4)
    positive[0] = False
    positive[1] = True
    loss = multilabel_margin_loss(queries, passages, positive)
    assert loss.item() == pytest.approx(multilabel_loop(queries, passages, positive), abs=1e-12)


def test_multilabel_gradient_is_that_of_finite_differences():
    queries, passages, _ = (vector.requires_grad_() for vector in draw(11, 3, 4))
    positive = torch.eye(3, dtype=torch.bool)
    loss = lambda q, p: multilabel_margin_loss(q, p, positive)  # noqa: E731
    assert torch.autograd.gradcheck(loss, (queries, passages), eps=1e-7, atol=1e-6)


def test_similarities_are_in_single_precision_at_least():
    half = torch.ones(2, 3, dtype=torch.bfloat16)
    for similarity in (angular_similarity, inner_product):
        assert similarity(half, half).dtype == torch.float32
    assert inner_product(half, 2 * half).tolist() == [[6, 6], [6, 6]]


def test_info_nce_is_the_cross_entropy_of_the_own_passage():
    queries, passages, negatives = draw(3, 4, 5)
    passages = torch.cat([passages, negatives])
    others = torch.zeros(4, 8, dtype=torch.bool)
    others[1, 2] = others[3, 7] = True
    total = 0.0
    for i, query in enumerate(queries):
        cosine = [float(functional.cosine_similarity(query, passage, dim=0)) for passage in passages]
        terms = [math.exp(value / 0.05) for j, value in enumerate(cosine) if not others[i, j]]
        total -= math.log(math.exp(cosine[i] / 0.05) / sum(terms))
    assert info_nce_loss(queries, passages, others, 0.05).item() == pytest.approx(total / 4, abs=1e-10)


def test_info_nce_of_equal_passages_is_the_logarithm_of_their_number():
    vector = torch.ones(3, 2, dtype=torch.float64)
    nothing = torch.zeros(3, 6, dtype=torch.bool)
    loss = info_nce_loss(vector, torch.cat([vector, vector]), nothing, 0.05)
    assert loss.item() == pytest.approx(math.log(6), abs=1e-12)


def test_margin_mse_is_the_squared_error_of_the_margin():
    queries, positives, negatives = draw(5, 3, 4)
    margins = torch.tensor([1.0, -2.0, 0.5])
    expected = [
        (float(q @ p) - float(q @ n) - m) ** 2
        for q, p, n, m in zip(queries, positives, negatives, margins.tolist(), strict=True)
    ]
    loss = margin_mse_loss(queries, positives, negatives, margins)
    assert loss.item() == pytest.approx(sum(expected) / 3, abs=1e-12)
    exact = (queries * (positives - negatives)).sum(1)
    assert margin_mse_loss(queries, positives, negatives, exact).item() == pytest.approx(0, abs=1e-25)


@pytest.mark.parametrize("name", ["info_nce", "margin_mse"])
def test_gradients_of_the_other_objectives_equal_finite_differences(name):
    vectors = [vector.requires_grad_() for vector in draw(8, 3, 4)]
    others = torch.zeros(3, 6, dtype=torch.bool)
    losses = {
        "info_nce": lambda q, p, n: info_nce_loss(q, torch.cat([p, n]), others, 0.2),
        "margin_mse": lambda q, p, n: margin_mse_loss(q, p, n, torch.ones(3)),
    }
    assert torch.autograd.gradcheck(losses[name], vectors, eps=1e-7, atol=1e-6)


@pytest.mark.parametrize("name", ["triplet", "multilabel", "info_nce", "margin_mse"])
def test_many_mini_batches_at_once_have_the_losses_of_each(name):
    queries, positives, negatives = (one.reshape(5, 4, 3) for one in draw(9, 20, 3))
    both = torch.cat([positives, negatives], dim=1)
    marked = torch.from_numpy(np.random.default_rng(2).random((5, 4, 8)) < 0.3)
    losses = {
        "triplet": lambda i: batch_triplet_loss(queries[i], positives[i], negatives[i], 0.1),
        "multilabel": lambda i: multilabel_margin_loss(queries[i], both[i], marked[i]),
        "info_nce": lambda i: info_nce_loss(queries[i], both[i], marked[i].triu(1), 0.05),
        "margin_mse": lambda i: margin_mse_loss(queries[i], positives[i], negatives[i], queries[i, :, 0]),
    }
    together = losses[name](slice(None))
    assert together.shape == (5,)
    assert together.tolist() == pytest.approx([losses[name](i).item() for i in range(5)], abs=1e-12)
