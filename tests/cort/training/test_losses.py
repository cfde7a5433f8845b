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


def paper_loss(queries, positives, *negatives, margin):
    n = len(queries)

    def term(i, other):
        return max(0.0, sim(queries[i], other) - sim(queries[i], positives[i]) + margin)

    total = sum(term(i, some[j]) for some in negatives for i in range(n) for j in range(n))
    return total + sum(term(i, positives[k]) for i in range(n) for k in range(n) if k != i)


def draw(seed, *shape, count=3):
    """Vectors of queries, positives and the negatives of each, `count` in all."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(*shape, generator=generator, dtype=torch.float64) for _ in range(count))


def triplet(*vectors, margin):
    return losses.triplet_loss(batch_of(*vectors), losses.Triplet(margin=margin), losses.angular_similarity)


def multilabel(*vectors, relevant):
    batch = batch_of(*vectors, relevant=relevant)
    return losses.multilabel_margin_loss(batch, losses.NoSettings(), losses.inner_product)


def info_nce(*vectors, others, temperature=0.05):
    batch = batch_of(*vectors, others=others)
    return losses.info_nce_loss(batch, losses.InfoNCE(temperature=temperature), losses.cosine_similarity)


def margin_mse(*vectors, scores):
    return losses.margin_mse_loss(batch_of(*vectors, scores=scores), losses.NoSettings(), losses.inner_product)


@pytest.mark.parametrize(
    ("n", "e", "margin", "count"), [(1, 3, 0.1, 3), (2, 2, 0.0, 3), (3, 5, 1.0, 5), (6, 16, 0.1, 3)]
)
def test_triplet_loss_equals_the_double_loop_of_the_paper(n, e, margin, count):
    vectors = draw(n * 100 + e, n, e, count=count)
    assert triplet(*vectors, margin=margin).item() == pytest.approx(paper_loss(*vectors, margin=margin), abs=1e-12)


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
    vectors = draw(seed, 4, 3, count=3 + seed)
    relevant = torch.from_numpy(np.random.default_rng(seed).random((4, 8 + 4 * seed)) < 0.4)
    relevant[0] = False
    relevant[1] = True
    expected = multilabel_loop(vectors[0], torch.cat(vectors[1:]), relevant)
    assert multilabel(*vectors, relevant=relevant).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("negatives", [1, 3])
def test_info_nce_is_the_cross_entropy_of_the_own_passage(negatives):
    queries, *passages = draw(3, 4, 5, count=2 + negatives)
    others = torch.zeros(4, 4 + 4 * negatives, dtype=torch.bool)
    others[1, 2] = others[3, 7] = True
    total = 0.0
    for i, query in enumerate(queries):
        cosine = [float(functional.cosine_similarity(query, passage, dim=0)) for passage in torch.cat(passages)]
        terms = [math.exp(value / 0.05) for j, value in enumerate(cosine) if not others[i, j]]
        total -= math.log(math.exp(cosine[i] / 0.05) / sum(terms))
    assert info_nce(queries, *passages, others=others).item() == pytest.approx(total / 4, abs=1e-10)


def own_scores(queries, *passages):
    """Inner products of each query and its own passages."""
    return torch.stack([(queries * part).sum(-1) for part in passages], dim=-1)


@pytest.mark.parametrize("negatives", [1, 3])
def test_margin_mse_is_the_squared_error_of_the_margins(negatives):
    vectors = draw(5, 3, 4, count=2 + negatives)
    (scores,) = draw(6, 3, 1 + negatives, count=1)
    found = own_scores(*vectors)
    total = 0.0
    for query, column in np.ndindex(3, negatives):
        margin, told = (float(part[query, 0] - part[query, 1 + column]) for part in (found, scores))
        total += (margin - told) ** 2
    assert margin_mse(*vectors, scores=scores).item() == pytest.approx(total / (3 * negatives))
    # Only differences count.
    assert margin_mse(*vectors, scores=found + 7).item() == pytest.approx(0, abs=1e-25)


def kl(*vectors, scores, temperature=0.05, teacher_temperature=1.0):
    settings = losses.Distillation(temperature=temperature, teacher_temperature=teacher_temperature)
    return losses.kl_loss(batch_of(*vectors, scores=scores), settings, losses.inner_product)


@pytest.mark.parametrize("negatives", [1, 3])
def test_kl_is_the_divergence_from_the_softmax_of_the_teachers_scores(negatives):
    vectors = draw(11, 3, 4, count=2 + negatives)
    (scores,) = draw(12, 3, 1 + negatives, count=1)
    found, total = own_scores(*vectors), 0.0
    for own, told in zip(found.tolist(), scores.tolist(), strict=True):
        q, p = ([math.exp(value / t) for value in values] for values, t in ((own, 0.5), (told, 2.0)))
        total += sum(x / sum(p) * math.log(x / sum(p) / (y / sum(q))) for x, y in zip(p, q, strict=True))
    given = {"temperature": 0.5, "teacher_temperature": 2.0}
    assert kl(*vectors, scores=scores, **given).item() == pytest.approx(total / 3, abs=1e-12)
    # A constant added to the scores of a query does not change the softmax.
    assert kl(*vectors, scores=4 * found - 3, **given).item() == pytest.approx(0, abs=1e-12)


def test_a_nested_loss_is_that_of_the_first_numbers_added_up():
    vectors, others = draw(13, 4, 6), torch.zeros(4, 8, dtype=torch.bool)
    settings = losses.InfoNCE(temperature=0.3)

    def loss(batch):
        return losses.info_nce_loss(batch, settings, losses.cosine_similarity)

    parts = [loss(batch_of(*(part[:, :size] for part in vectors), others=others)).item() for size in (2, 3, 6)]
    assert losses.nested(loss, (2, 3, 6))(batch_of(*vectors, others=others)).item() == pytest.approx(sum(parts))
    assert len({round(part, 3) for part in parts}) == 3


EYE = torch.eye(3, 6, dtype=torch.bool)
LOSSES = {
    "triplet": partial(triplet, margin=0.1),
    "triplet of a large margin": partial(triplet, margin=1.0),
    "multilabel_margin": partial(multilabel, relevant=EYE),
    "info_nce": partial(info_nce, others=EYE.roll(1, 1), temperature=0.2),
    "margin_mse": partial(margin_mse, scores=torch.tensor([[3.0, 2.0]] * 3)),
    "kl": partial(kl, scores=torch.tensor([[3.0, 2.0]] * 3), temperature=1.0),
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
    ]
    for loss in alone:
        assert loss(slice(None)).tolist() == pytest.approx([loss(i).item() for i in range(5)], abs=1e-12)
    for loss in (margin_mse, kl):
        together, scores = loss(*vectors, scores=vectors[0][..., :2]).tolist(), vectors[0][..., :2]
        each = [loss(*(part[i] for part in vectors), scores=scores[i]).item() for i in range(5)]
        assert together == pytest.approx(each, abs=1e-12)


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
    return settings.factor * (1 - batch.own(similarity_of)[..., 0]).mean(-1)


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
