import importlib
import math
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn import functional

from cort import train, train_reranker
from cort.config.learners import TrainedCrossEncoder, TrainedDense
from cort.models.encoder import load_encoder
from cort.runtime.sections import Section, choices_of, hint_of, keys_of, literals
from cort.training import losses
from tests.support.common import read_curve
from tests.support.training import batch_of, long_training_options, train_options, write_examples

# By how much the limit lowers the similarity of a vector with itself, and raises that with its opposite.
CUT = math.acos(losses.COSINE_LIMIT) / math.pi


def sim(q, d):
    """Section 3.3, word for word."""
    q, d = q.tolist(), d.tolist()
    dot = sum(x * y for x, y in zip(q, d, strict=True))
    norms = math.sqrt(sum(x * x for x in q)) * math.sqrt(sum(x * x for x in d))
    return 1 - math.acos(dot / norms) / math.pi


def paper_loss(queries, positives, negatives, margin):
    n = len(queries)

    def term(i, other):
        return max(0.0, sim(queries[i], other) - sim(queries[i], positives[i]) + margin)

    total = sum(term(i, negatives[j]) for i in range(n) for j in range(n))
    return total + sum(term(i, positives[k]) for i in range(n) for k in range(n) if k != i)


def draw(seed, *shape):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(*shape, generator=generator, dtype=torch.float64) for _ in range(3))


def triplet(*vectors, margin):
    return losses.triplet_loss(batch_of(*vectors), losses.Triplet(margin=margin), losses.angular_similarity)


def multilabel(*vectors, relevant):
    batch = batch_of(*vectors, relevant=relevant)
    return losses.multilabel_margin_loss(batch, losses.NoSettings(), losses.inner_product)


def info_nce(*vectors, others, temperature=0.05):
    batch = batch_of(*vectors, others=others)
    return losses.info_nce_loss(batch, losses.InfoNCE(temperature=temperature), losses.cosine_similarity)


def margin_mse(*vectors, margins):
    return losses.margin_mse_loss(batch_of(*vectors, margins=margins), losses.NoSettings(), losses.inner_product)


@pytest.mark.parametrize(("n", "e", "margin"), [(1, 3, 0.1), (2, 2, 0.0), (3, 5, 1.0), (6, 16, 0.1)])
def test_triplet_loss_equals_the_double_loop_of_the_paper(n, e, margin):
    vectors = draw(n * 100 + e, n, e)
    assert triplet(*vectors, margin=margin).item() == pytest.approx(paper_loss(*vectors, margin), abs=1e-12)


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
    assert losses.angular_similarity(a, b).item() == pytest.approx(expected, abs=1e-12)
    assert 0 < CUT < 5e-4


def test_similarities_are_of_all_pairs_and_in_single_precision_at_least():
    queries, passages, _ = draw(1, 4, 3)
    similarity = losses.angular_similarity(queries[:2], passages)
    expected = [[sim(query, passage) for passage in passages] for query in queries[:2]]
    assert similarity.tolist() == [pytest.approx(row, abs=1e-12) for row in expected]
    half = losses.angular_similarity(queries[:2].bfloat16(), passages.bfloat16())
    assert half.dtype == torch.float32
    assert torch.allclose(half.double(), similarity, atol=0.02)
    ones = torch.ones(2, 3, dtype=torch.bfloat16)
    assert losses.inner_product(ones, 2 * ones).dtype == torch.float32
    assert losses.inner_product(ones, 2 * ones).tolist() == [[6, 6], [6, 6]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_gradients_are_finite_at_cosine_one(sign, dtype):
    queries = torch.tensor([[0.3, -0.2, 0.9], [1.0, 0.0, 0.0]], dtype=dtype, requires_grad=True)
    passages = (sign * queries.detach() * 2).requires_grad_()
    loss = triplet(queries, passages, -passages.detach(), margin=0.1)
    loss.backward()
    assert math.isfinite(loss.item())
    assert torch.isfinite(queries.grad).all()
    assert torch.isfinite(passages.grad).all()


def test_gradients_of_zero_vectors_and_the_loss_of_large_logits_are_finite():
    queries = torch.zeros(2, 3, requires_grad=True)
    triplet(queries, torch.eye(3)[:2], torch.eye(3)[1:], margin=0.1).backward()
    assert torch.isfinite(queries.grad).all()
    logits, relevant = torch.tensor([-200.0, 200.0]), torch.tensor([1, 1])
    assert losses.pointwise_loss(logits, relevant, losses.Pointwise()).tolist() == pytest.approx([200, 0], abs=1e-30)


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_pointwise_loss_is_the_negative_log_of_the_sigmoid(weight):
    logits, relevance = torch.tensor([2.0, -1.0, 0.5, 0.0], requires_grad=True), torch.tensor([1, 0, 0, 1])
    sigmoid = np.array([1 / (1 + math.exp(-x)) for x in (2, -1, 0.5, 0)])
    expected = [-weight * math.log(sigmoid[0]), *-np.log(1 - sigmoid[1:3]), weight * math.log(2)]
    loss = losses.pointwise_loss(logits, relevance, losses.Pointwise(pos_weight=weight))
    assert loss.tolist() == pytest.approx(expected)
    loss.sum().backward()
    assert np.allclose(logits.grad, (sigmoid - [1, 0, 0, 1]) * [weight, 1, 1, weight], atol=1e-6)


def test_softmax_loss_is_the_cross_entropy_of_the_first():
    logits, relevance = torch.tensor([[2.0, 1.0, 0.0], [0.5, 1.5, -math.inf]]), torch.tensor([[1, 0, 0], [1, 0, 0]])
    expected = [math.log(1 + math.exp(-1) + math.exp(-2)), math.log(1 + math.exp(1))]
    assert losses.softmax_loss(logits, relevance, losses.NoSettings()).tolist() == pytest.approx(expected)


def multilabel_loop(queries, passages, relevant):
    """RepBERT's loss, term by term."""
    total = 0.0
    for query, labels in zip(queries, relevant, strict=True):
        scores = [float(query @ passage) for passage in passages]
        for good, is_good in zip(scores, labels, strict=True):
            for other, is_other in zip(scores, labels, strict=True):
                if is_good and not is_other:
                    total += max(0.0, 1.0 - (good - other)) / len(passages)
    return total / len(queries)


@pytest.mark.parametrize("seed", range(2))
def test_multilabel_loss_is_the_sum_over_relevant_and_other_passages(seed):
    vectors = draw(seed, 4, 3)
    relevant = torch.from_numpy(np.random.default_rng(seed).random((4, 8)) < 0.4)
    relevant[0] = False
    relevant[1] = True
    expected = multilabel_loop(vectors[0], torch.cat(vectors[1:]), relevant)
    assert multilabel(*vectors, relevant=relevant).item() == pytest.approx(expected, abs=1e-12)


def test_info_nce_is_the_cross_entropy_of_the_own_passage():
    queries, *passages = draw(3, 4, 5)
    others = torch.zeros(4, 8, dtype=torch.bool)
    others[1, 2] = others[3, 7] = True
    total = 0.0
    for i, query in enumerate(queries):
        cosine = [float(functional.cosine_similarity(query, passage, dim=0)) for passage in torch.cat(passages)]
        terms = [math.exp(value / 0.05) for j, value in enumerate(cosine) if not others[i, j]]
        total -= math.log(math.exp(cosine[i] / 0.05) / sum(terms))
    assert info_nce(queries, *passages, others=others).item() == pytest.approx(total / 4, abs=1e-10)


def test_margin_mse_is_the_squared_error_of_the_margin():
    queries, positives, negatives = draw(5, 3, 4)
    margins = torch.tensor([1.0, -2.0, 0.5])
    expected = [
        (float(q @ p) - float(q @ n) - m) ** 2
        for q, p, n, m in zip(queries, positives, negatives, margins.tolist(), strict=True)
    ]
    assert margin_mse(queries, positives, negatives, margins=margins).item() == pytest.approx(sum(expected) / 3)
    exact = (queries * (positives - negatives)).sum(1)
    assert margin_mse(queries, positives, negatives, margins=exact).item() == pytest.approx(0, abs=1e-25)


EYE = torch.eye(3, 6, dtype=torch.bool)
LOSSES = {
    "triplet": partial(triplet, margin=0.1),
    "triplet of a large margin": partial(triplet, margin=1.0),
    "multilabel_margin": partial(multilabel, relevant=EYE),
    "info_nce": partial(info_nce, others=EYE.roll(1, 1), temperature=0.2),
    "margin_mse": partial(margin_mse, margins=torch.ones(3)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_equal_finite_differences(name):
    vectors = [vector.requires_grad_() for vector in draw(8, 3, 4)]
    assert torch.autograd.gradcheck(LOSSES[name], vectors, eps=1e-7, atol=1e-6)


def test_many_mini_batches_at_once_have_the_losses_of_each():
    vectors = draw(9, 5, 4, 3)
    marked = torch.from_numpy(np.random.default_rng(2).random((5, 4, 8)) < 0.3)
    alone = [
        lambda i: triplet(*(part[i] for part in vectors), margin=0.1),
        lambda i: multilabel(*(part[i] for part in vectors), relevant=marked[i]),
        lambda i: info_nce(*(part[i] for part in vectors), others=marked[i].triu(1)),
        lambda i: margin_mse(*(part[i] for part in vectors), margins=vectors[0][i, :, 0]),
    ]
    for loss in alone[:3]:
        assert loss(slice(None)).tolist() == pytest.approx([loss(i).item() for i in range(5)], abs=1e-12)
    together = margin_mse(*vectors, margins=vectors[0][..., 0])
    assert together.tolist() == pytest.approx([alone[3](i).item() for i in range(5)], abs=1e-12)


@pytest.mark.parametrize(
    ("model", "objectives", "stage"),
    [
        (TrainedDense, losses.ENCODER_OBJECTIVES, train),
        (TrainedCrossEncoder, losses.RERANKER_OBJECTIVES, train_reranker),
    ],
)
def test_every_objective_can_be_configured(model, objectives, stage):
    keys = keys_of(model)
    options = keys_of(stage.Options)
    assert literals(choices_of(hint_of(keys["loss"]))) == list(objectives)
    for name in ["loss", *(key for one in losses.classes_of(objectives) for key in one.model_fields)]:
        assert keys[name].default == options[name].default


class Scaled(Section):
    """Settings of the test's own losses."""

    factor: float = 1.0
    """Of the test's own losses."""


def scaled_distance(batch, settings, similarity_of):
    """One minus the similarity of each query and its positive."""
    own = similarity_of(batch.queries, batch.positives).diagonal(dim1=-2, dim2=-1)
    return settings.factor * (1 - own).mean(-1)


def scaled_error(logits, relevance, settings):
    return settings.factor * (logits[:, 0] - relevance[:, 0]).square()


@pytest.fixture
def own_losses(monkeypatch):
    """Stages whose registries have one more entry each."""
    with monkeypatch.context() as patch:
        patch.setitem(losses.ENCODER_OBJECTIVES, "distance", losses.EncoderObjective(scaled_distance, Scaled))
        patch.setitem(losses.RERANKER_OBJECTIVES, "error", losses.RerankerObjective(scaled_error, Scaled))
        modules = [importlib.import_module(f"cort.{name}") for name in ("training.settings", "train", "train_reranker")]
        yield [importlib.reload(module) for module in modules][1:]
    for module in modules:
        importlib.reload(module)


@pytest.mark.usefixtures("training_process")
def test_an_objective_of_ones_own_is_one_entry_of_a_registry(own_losses, world, lm, caches, tmp_path):
    encoders, rerankers = own_losses
    examples = write_examples(world, tmp_path, epochs=1, seed=1)
    curves = []
    for factor in (1.0, 2.0):
        output = tmp_path / str(factor)
        # A learning rate of almost 0: all losses are those of the start.
        changes = {"factor": factor, "learning_rate": 1e-30}
        argv = train_options(lm, caches, examples, output / "encoder", loss="distance", **changes)
        assert encoders.main(argv) == 0
        changes["loss"] = "error"
        argv = long_training_options(lm, caches, examples, "train_reranker", output / "reranker", **changes)
        assert rerankers.main(argv) == 0
        names = ("encoder", "reranker")
        curves.append([row["validation_loss"] for name in names for row in read_curve(output / name / "curve.csv")])
        assert load_encoder(output / "encoder" / "model" / "best")
    assert len(curves[0]) > 5
    for loss, doubled in zip(*curves, strict=True):
        assert (loss is None) == (doubled is None)
        assert loss is None or doubled == pytest.approx(2 * loss, rel=1e-5)
