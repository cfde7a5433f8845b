"""Mini-batches that go through the model together, and what must not change by it."""

import itertools
import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch
from accelerate.state import AcceleratorState
from torch import nn
from transformers import BertConfig

from cort.formats import tables
from cort.formats.shards import Tokens
from cort.models.cross_encoder import new_cross_encoder
from cort.models.encoder import new_encoder
from cort.models.rerankers import new_reranker
from cort.training.loop import Task, fit
from cort.training.losses import NoSettings, Pointwise, Triplet, pointwise_loss, softmax_loss
from cort.training.microbatches import (
    Forward,
    join_consecutive,
    make_accelerator,
    room_of,
    tokens_kept,
)
from cort.training.pairs import PairTexts
from cort.training.selection import Validation
from cort.training.settings import TrainingSettings
from cort.training.triples import TripleTexts, make_objective, read_judgements
from tests.support.small import encoder_settings, pair_settings

pytestmark = pytest.mark.usefixtures("training_process")

SETTINGS = TrainingSettings(batch_size=6, gradient_accumulation=5, learning_rate=1e-3, warmup_updates=0, seed=1)
PLAIN = SETTINGS.model_copy(update={"tokens_at_once": 1})


def test_consecutive_mini_batches_are_joined_up_to_the_limit():
    examples, tokens = np.arange(12), np.array([5, 5, 1, 1, 9, 9, 30, 30, 2, 2, 2, 2])
    batches = join_consecutive(examples, 2, lambda some: tokens[some].sum(), 20)
    # 10 + 2 are 12, 18 more would be 30; 60 are too many, but cannot be parted.
    expected = [([0, 1, 2, 3], 2), ([4, 5], 1), ([6, 7], 1), ([8, 9, 10, 11], 2)]
    assert [(batch.reshape(-1).tolist(), len(batch)) for batch in batches] == expected
    assert [len(batch) for batch in join_consecutive(examples, 2, len, math.inf)] == [6]


def test_no_example_is_lost_and_no_limit_is_exceeded():
    for seed in range(20):
        generator = np.random.default_rng(seed)
        size, count, limit = (int(generator.integers(1, high)) for high in (5, 30, 200))
        tokens = generator.integers(1, 60, size * count)
        batches = join_consecutive(np.arange(size * count), size, lambda some, tokens=tokens: tokens[some].sum(), limit)
        assert np.concatenate(batches).reshape(-1).tolist() == list(range(size * count))
        totals = [tokens[batch].sum() for batch in batches]
        assert all(total <= limit or len(batch) == 1 for total, batch in zip(totals, batches, strict=True))
        # No micro-batch is smaller than it must be.
        firsts = [tokens[batch[0]].sum() for batch in batches]
        assert all(total + first > limit for total, first in zip(totals, firsts[1:], strict=False))


def test_activations_that_are_computed_again_have_no_limit():
    settings, device = SETTINGS.model_copy(update={"tokens_at_once": 100}), torch.device("cpu")
    assert room_of(settings, device, 3) == (300, 100, False)
    assert room_of(settings.model_copy(update={"gradient_checkpointing": True}), device, 3) == (math.inf, 100, False)
    # More at once would be more padding.
    many = settings.model_copy(update={"tokens_at_once": 10**6})
    assert room_of(many, device, 1) == (10**6, 1_024, False)
    assert room_of(many, device, 1, layers=False) == (10**6, 4_096, False)


def test_activations_are_kept_for_what_half_of_a_gpus_memory_holds(monkeypatch):
    settings, config = (
        SETTINGS.model_copy(update={"precision": "bf16"}),
        BertConfig(num_hidden_layers=2, hidden_size=64),
    )
    model = SimpleNamespace(
        transformer=SimpleNamespace(config=config), parameters=lambda: [nn.Parameter(torch.zeros(1_000))]
    )
    gpu, memory = torch.device("cuda"), SimpleNamespace(total_memory=64_000_000)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda device: memory)
    assert tokens_kept(settings, model, gpu) == (32_000_000 - 16_000) // (40 * 2 * 64)
    assert tokens_kept(settings.model_copy(update={"precision": "fp32"}), model, gpu) == (32_000_000 - 16_000) // (
        80 * 2 * 64
    )
    assert tokens_kept(settings.model_copy(update={"tokens_at_once": 7}), model, gpu) == 7
    assert tokens_kept(settings, model, torch.device("cpu")) == tokens_kept(settings, nn.Linear(2, 2), gpu) == 8_192
    memory.total_memory = 10_000
    assert tokens_kept(settings, model, gpu) == 1_024


class Exact:
    """A training in double precision and without dropout, of 30 random triples or pairs."""

    def __init__(self, lm, caches, tmp_path):
        self.lm, self.qrels = lm, tmp_path / "qrels.parquet"
        self.queries, self.passages = Tokens(caches["queries.train"]), Tokens(caches["passages"])
        generator = np.random.default_rng(4)
        draw = partial(generator.integers, size=30)
        self.rows = np.stack([draw(len(self.queries)), draw(len(self.passages)), draw(len(self.passages))])
        self.relevance = draw(2).astype(np.int32)
        ids = self.queries.ids.take(self.rows[0]), self.passages.ids.take(self.rows[1])
        columns = [*(column.combine_chunks() for column in ids), pa.repeat(pa.scalar(1, pa.int32()), 30)]
        tables.write_table(self.qrels, pa.table(columns, schema=tables.QRELS))

    def triples(self, loss):
        model = new_encoder(self.lm, encoder_settings("mean", 16, 12, 24), 1)
        multilabel = loss == "multilabel_margin"
        similarity = "inner_product" if multilabel else "angular"
        texts = TripleTexts(
            self.rows,
            model.texts(self.queries, "query"),
            model.texts(self.passages, "passage"),
            make_objective(loss, Triplet(margin=0.5), similarity),
            read_judgements(str(self.qrels), 1, self.queries, self.passages) if multilabel else None,
        )
        return model, texts

    def pairs(self):
        model = new_cross_encoder(self.lm, pair_settings(12, 32), 1)
        pairs = model.pairs(self.queries, self.passages)
        loss = partial(pointwise_loss, settings=Pointwise())
        return model, PairTexts(*self.rows[:2], self.relevance, np.arange(31), pairs, loss)

    def update(self, kind, settings, packed=False):
        """Weights after one update, how many batches it took, and the loss."""
        model, texts = self.pairs() if kind == "pairs" else self.triples(kind)
        model = model.double()
        if packed:
            model.pack(torch.device("cpu"), "bf16")
        self.passes = []
        model.register_forward_hook(lambda *of: self.passes.append(of[1][0]["input_ids"]) if model.training else None)
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        batches = []

        def split(*args):
            batches.extend(texts.split(*args))
            return batches

        # The validation loss falls, so that the best model is the last one.
        validated = itertools.count(1, -1)
        task = Task(model, 30, 30, split, texts.losses, lambda _: Validation(float(next(validated))), lambda *_: None)
        (_, point), _ = fit(task, settings)
        return {name: value.clone() for name, value in model.state_dict().items()}, batches, point.loss


@pytest.fixture
def exact(lm, caches, tmp_path):
    return Exact(lm, caches, tmp_path)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        *((kind, {"tokens_at_once": 600}) for kind in ("triplet", "multilabel_margin", "pairs")),
        ("multilabel_margin", {"tokens_at_once": 10**6}),
        *((kind, {"tokens_at_once": 60, "gradient_checkpointing": True}) for kind in ("triplet", "pairs")),
    ],
)
def test_the_update_is_that_of_one_mini_batch_after_the_other(exact, kind, changes):
    plain, one_by_one, loss = exact.update(kind, PLAIN)
    together, batches, same_loss = exact.update(kind, SETTINGS.model_copy(update=changes))
    assert len(one_by_one) == (30 if kind == "pairs" else 5)
    assert (1 < len(batches) < len(one_by_one)) if changes == {"tokens_at_once": 600} else len(batches) == 1
    assert same_loss == pytest.approx(loss, abs=1e-12)
    for name, value in plain.items():
        # Adam turns rounding errors into steps where no gradient arrives.
        if not name.endswith("key.bias"):
            assert (together[name] - value).abs().max() < 1e-9, name


@pytest.mark.parametrize("kind", ["triplet", "pairs"])
def test_packed_updates_are_the_same_in_fewer_passes(exact, kind, monkeypatch):
    monkeypatch.setattr("cort.models.modules.can_pack", lambda *_: True)
    padded, batches, loss = exact.update(kind, SETTINGS.model_copy(update={"tokens_at_once": 600}))
    before = len(exact.passes)
    packed, fewer, same_loss = exact.update(kind, SETTINGS.model_copy(update={"tokens_at_once": 600}), packed=True)
    # Queries and passages of a micro-batch go through the model together.
    assert len(exact.passes) == len(fewer) <= len(batches)
    assert len(exact.passes) * (2 if kind == "triplet" else 1) <= before
    assert all(0 < (ids > 0).sum() <= 600 for ids in exact.passes)
    assert same_loss == pytest.approx(loss, abs=1e-12)
    assert all((packed[name] - value).abs().max() < 1e-9 for name, value in padded.items() if "key.bias" not in name)


@pytest.mark.parametrize("kind", ["triplet", "pairs", "late interaction"])
def test_no_micro_batch_computes_more_padded_tokens_than_there_is_room_for(exact, kind):
    if kind == "late interaction":
        model = new_reranker(exact.lm, KINDS[kind][0], 1)
        # Groups of three pairs of a query; passages occur in many groups.
        queries, passages = np.repeat(np.arange(10), 3), exact.rows[1] % 4
        loss = partial(softmax_loss, _=NoSettings())
        pairs, starts = model.pairs(exact.queries, exact.passages), np.arange(0, 31, 3)
        texts = PairTexts(queries, passages, np.tile([1, 0, 0], 10).astype(np.int32), starts, pairs, loss)
    else:
        model, texts = exact.pairs() if kind == "pairs" else exact.triples(kind)
    size, sizes, computed = 2 if kind == "triplet" else 1, [], []
    model.register_forward_pre_hook(lambda _, inputs: computed.append(inputs[0]["input_ids"].numel()))
    forward = Forward(model, SETTINGS.model_copy(update={"tokens_at_once": 300}), make_accelerator("fp32"))
    for batch in texts.split(np.arange(len(texts)), size, forward.room):
        computed.clear()
        texts.losses(batch, forward)
        assert sum(computed) <= 300
        sizes.append(len(batch))
    assert sum(sizes) == len(texts) // size
    assert max(sizes) > 1


#: settings of models, and whether they score pairs
KINDS = {
    "encoder": (encoder_settings("mean", 16, 12, 24), False),
    "encoder, no projection": (
        encoder_settings("cls", 32, 12, 24, projection=False),
        False,
    ),
    "cross-encoder": (pair_settings(12, 32), True),
    "cross-encoder, linear": (pair_settings(12, 32, head="linear"), True),
    "late interaction": (pair_settings(12, 32, "late_interaction", dimension=16), True),
    "late interaction, weights": (
        pair_settings(12, 32, "late_interaction", dimension=16, term_weights=True),
        True,
    ),
    "KNRM": (pair_settings(12, 32, "knrm"), True),
}


@pytest.mark.usefixtures("bf16")
@pytest.mark.parametrize(
    ("name", "checkpointing"),
    [*((name, False) for name in KINDS), ("encoder", True), ("cross-encoder", True), ("late interaction", True)],
)
def test_only_the_transformer_computes_in_bf16(exact, name, checkpointing):
    settings, of_pairs = KINDS[name]
    seen = []

    def outputs_of(forward):
        if of_pairs:
            return texts.scores(forward, rows[0], rows[1])
        return forward(texts.sequences(rows[1])).flatten()

    rows = np.stack([np.arange(30) % len(exact.queries), np.arange(30) % len(exact.passages)])
    model = (new_reranker if of_pairs else new_encoder)(exact.lm, settings, 1)
    texts = model.pairs(exact.queries, exact.passages) if of_pairs else model.texts(exact.passages, "passage")
    with torch.no_grad():
        single = outputs_of(Forward(model.eval(), SETTINGS, make_accelerator("fp32"), alone=True))
    AcceleratorState._reset_state()

    def losses(_, forward):
        seen.append(outputs_of(forward))
        return seen[-1].square().mean().reshape(1)

    def validate(forward):
        seen.append(outputs_of(forward))
        return Validation(1.0 / len(seen))

    task = Task(model, 6, 6, lambda *_: [np.arange(6)[None]], losses, validate, lambda *_: None)
    fit(
        task,
        SETTINGS.model_copy(
            update={"gradient_accumulation": 1, "gradient_checkpointing": checkpointing, "precision": "bf16"}
        ),
    )
    start, *others = seen
    assert len(others) == 2
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert torch.equal(start, single) == (name == "KNRM")
    assert torch.allclose(start, single, atol=0.1)
    for values in seen:
        # The values of a rounded layer would be few, so that many are the same.
        assert values.dtype == torch.float32
        assert len(values.unique()) > 0.99 * len(values)
        assert (values != values.bfloat16()).float().mean() > 0.9


def test_training_in_tf32_multiplies_so_in_the_transformer_and_backward(exact, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("cort.training.microbatches.refuse_wrong", lambda *_: None)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    model, texts = exact.triples("triplet")
    seen = {}

    def see(place):
        return lambda *_: seen.setdefault(place, set()).add(torch.get_float32_matmul_precision())

    model.transformer.encoder.register_forward_hook(see("layers"))
    model.projection.register_forward_hook(see("projection"))
    model.projection.weight.register_hook(see("gradients"))
    task = Task(model, 30, 30, texts.split, texts.losses, lambda _: Validation(1.0), lambda *_: None)
    fit(task, SETTINGS.model_copy(update={"precision": "tf32"}))
    assert seen == {"layers": {"high"}, "projection": {"highest"}, "gradients": {"high"}}
    assert torch.get_float32_matmul_precision() == "highest"
