import argparse
import logging
import math
from unittest.mock import Mock

import pytest
import torch
from torch import nn

from cort.runtime.command_line import add_options, parse_options
from cort.runtime.errors import InputError
from cort.training.loop import Task, fit, make_deterministic, parameter_groups
from cort.training.microbatches import join_consecutive
from cort.training.outcome import CurvePoint, Selection, report_gain, write_curve
from cort.training.selection import Validation
from cort.training.settings import TrainingSettings

pytestmark = pytest.mark.usefixtures("training_process")

SETTINGS = TrainingSettings(
    batch_size=4, gradient_accumulation=2, learning_rate=0.01, weight_decay=0.0, warmup_updates=0, seed=1
)


class Weights(nn.Module):
    """Two weights; the loss of example i is the inner product with row i, so its gradient is that row."""

    def __init__(self, *values):
        super().__init__()
        self.values = nn.Parameter(torch.tensor(values or (0.5, -0.25)))

    def forward(self, rows):
        return rows @ self.values


class Record:
    """A task on rows that records its calls."""

    def __init__(self, rows, validation=(), model=None, epochs=1):
        self.rows, self.validation = rows, list(validation)
        self.model = model or Weights()
        self.parts, self.saved, self.seen, self.epochs, self.measures = [], [], [], epochs, {}

    def split(self, examples, size, room):
        # So long that each mini-batch stands alone.
        return join_consecutive(examples, size, lambda some: 10**6 * len(some), room.limit)

    def losses(self, batch, forward):
        start, end = int(batch[0, 0]), int(batch[-1, -1]) + 1
        self.parts.append((start, end))
        assert forward.model.training
        return forward.model(self.rows[start:end].to(forward.device)).mean().reshape(1)

    def validate(self, forward):
        assert not forward.model.training
        assert not torch.is_grad_enabled()
        self.seen.append(self.model.values.clone())
        return Validation(self.validation.pop(0) if self.validation else 1.0)

    def save(self, name, measures):
        self.measures[name] = measures
        self.saved.append((name, self.model.values.detach().clone()))

    @property
    def last(self):
        """Weights that were saved as the last."""
        return dict(self.saved)["last"]

    def fit(self, unranked=None, **changes):
        """Train; the rows of the curve after that of the start."""
        counts = len(self.rows), len(self.rows) // self.epochs
        task = Task(self.model, *counts, self.split, self.losses, self.validate, self.save, unranked)
        (self.start, *curve), self.selection = fit(task, SETTINGS.model_copy(update=changes))
        return curve


def rows(count, scale=1.0):
    return scale * torch.randn(count, 2, generator=torch.Generator().manual_seed(1))


def adam_step(weights, gradient, rate, decay=0.0):
    """First step of AdamW: both moments, bias corrected, are the gradient and its square."""
    return weights * (1 - rate * decay) - rate * gradient / (gradient.abs() + 1e-6)


def test_the_examples_come_once_in_order_in_mini_batches():
    record = Record(rows(19))
    curve = record.fit()
    # The last three are an incomplete mini-batch.
    assert record.parts == [(0, 4), (4, 8), (8, 12), (12, 16)]
    assert [point.step for point in curve] == [1, 2]
    assert [point.epoch for point in curve] == [8 / 19, 16 / 19]
    fewer = Record(rows(3))
    fewer.fit()
    assert fewer.parts == [(0, 3)]


@pytest.mark.parametrize(
    ("epochs", "every", "validated"),
    [(11, 0.1, [*range(1, 12)]), (5, 0.1, [2, 4, 6, 8, 10, 11]), (11, 3, [3, 6, 9, 11])],
)
def test_a_share_of_few_updates_does_not_validate_after_each_unless_it_is_an_epoch(epochs, every, validated):
    curve = Record(rows(8 * 11), epochs=epochs).fit(validate_every=every)
    assert [point.step for point in curve if point.validation_loss is not None] == validated


# Gradients as small as Adam's epsilon: only there does their size show in the step, not their direction alone.
@pytest.mark.parametrize(
    ("examples", "scale", "decay"),
    [(8, 1.0, 0.0), (8, 1e-6, 0.1), pytest.param(4, 1e-6, 0.0, id="fewer mini-batches than an update has")],
)
def test_one_update_is_a_step_along_the_mean_gradient_of_its_mini_batches(examples, scale, decay):
    record = Record(rows(examples, scale))
    before = record.model.values.detach().clone()
    curve = record.fit(weight_decay=decay)
    expected = adam_step(before, record.rows.mean(0), 0.01, decay)
    assert torch.allclose(record.last, expected, atol=1e-7)
    assert curve[0].loss == pytest.approx((record.rows @ before).mean().item(), rel=1e-5)


def test_accumulating_equals_larger_mini_batches():
    small, large = Record(rows(32, 1e-5)), Record(rows(32, 1e-5))
    curves = small.fit(gradient_accumulation=4), large.fit(batch_size=16, gradient_accumulation=1)
    assert torch.allclose(small.last, large.last, atol=1e-7)
    losses, expected = ([point.loss for point in curve] for curve in curves)
    assert losses == pytest.approx(expected, rel=1e-4, abs=1e-9)


def test_clipping_shortens_long_gradients_only():
    for scale, norm in ((1e-5, 1e-6), (1e-7, 1e-6)):
        record = Record(rows(8, scale))
        before = record.model.values.detach().clone()
        gradient = record.rows.mean(0)
        record.fit(max_gradient_norm=norm)
        # torch divides by the norm plus this much.
        factor = min(1.0, norm / (gradient.norm().item() + 1e-6))
        assert torch.allclose(record.last, adam_step(before, factor * gradient, 0.01), atol=1e-7)


@pytest.mark.parametrize("warmup", [0, 3])
def test_the_learning_rate_rises_over_the_warmup_and_falls_to_0(warmup):
    curve = Record(rows(80)).fit(warmup_updates=warmup)
    updates = 80 // (4 * 2)
    assert [point.step for point in curve] == list(range(1, updates + 1))
    for point in curve:
        # What the update after this one will use.
        rise = point.step / warmup if point.step < warmup else math.inf
        fall = (updates - point.step) / (updates - warmup)
        assert point.learning_rate == pytest.approx(0.01 * min(rise, fall, 1.0))


def test_a_constant_learning_rate_stays_after_the_warmup_whose_first_update_has_rate_0():
    record = Record(rows(40))
    rates = [point.learning_rate for point in record.fit(warmup_updates=2, schedule="constant", validate_every=1)]
    assert rates == pytest.approx([0.005, 0.01, 0.01, 0.01, 0.01])
    assert torch.equal(record.seen[0], record.seen[1])
    assert not torch.equal(record.seen[1], record.seen[2])


def test_best_is_the_model_of_the_lowest_validation_loss_and_last_the_final_one():
    record = Record(rows(40), validation=[4.0, 3.0, 2.0, 2.5, 2.0, 9.0])
    curve = record.fit(validate_every=1)
    assert [point.validation_loss for point in curve] == [3.0, 2.0, 2.5, 2.0, 9.0]
    assert [name for name, _ in record.saved] == ["last", "best"]
    assert torch.equal(record.saved[0][1], record.seen[5])
    assert torch.equal(record.saved[1][1], record.seen[2])
    assert not torch.equal(record.seen[2], record.seen[5])
    assert record.selection == Selection("loss", 4.0, 2.0, 2)


def test_the_start_is_validated_and_kept_if_nothing_beats_it(caplog):
    record = Record(rows(16), validation=[1.0, 2.0, 1.0])
    before = record.model.values.detach().clone()
    record.fit(validate_every=1)
    assert record.start == CurvePoint(0, 0.0, None, 1.0, None, 0.01, None)
    assert torch.equal(record.saved[1][1], before)
    assert not torch.equal(record.saved[0][1], before)
    assert record.selection.complaint == "1.0000 before the first update"
    line = "best model: loss 1.0000 after update 0, no better than 1.0000 before the first update"
    assert [message for message in caplog.messages if "best model" in message] == [line]
    record = Record(rows(16))
    with pytest.raises(InputError, match=r"^require_gain: found loss 1\.0000 after update 0 as the best"):
        record.fit(require_gain=True)
    assert record.saved == []


class Drawing(Record):
    """Its loss depends on random numbers, which its validation draws, too, except perhaps that of the start."""

    draws = True

    def validate(self, forward):
        if self.draws or self.seen:
            torch.rand(7)
        return super().validate(forward)

    def losses(self, batch, forward):
        return super().losses(batch, forward) * torch.rand(1)


def test_validating_the_start_changes_no_update():
    models = []
    for draws in (True, False):
        torch.manual_seed(3)
        record = Drawing(rows(16))
        record.draws = draws
        record.fit()
        models.append(record.last)
    assert torch.equal(*models)


@pytest.mark.parametrize(
    ("unranked", "best", "complaint"),
    [
        (None, 0.5, None),
        (0.4, 0.5, None),
        (0.5, 0.5, "0.5000 of the candidates in the order of the first stage"),
        (0.4, 0.3, "0.3000 before the first update"),
    ],
)
def test_a_gain_is_over_the_start_and_over_not_re_ranking(unranked, best, complaint):
    selection = Selection("RR@10", 0.3, best, 0 if best == 0.3 else 7, unranked)
    assert selection.complaint == complaint
    report_gain(selection, required=complaint is None)
    if complaint:
        line = f"^require_gain: found RR@10 {best:.4f} after update {selection.best_step} .*expected better than "
        with pytest.raises(InputError, match=line + complaint):
            report_gain(selection, required=True)


def test_a_long_training_has_about_200_points_each_the_mean_since_the_one_before():
    record = Record(rows(450))
    curve = record.fit(learning_rate=0.0, validate_every=1000, batch_size=1, gradient_accumulation=1)
    assert [point.step for point in curve] == list(range(2, 451, 2))
    means = (record.rows @ record.model.values.detach()).reshape(225, 2).mean(1)
    assert [point.loss for point in curve] == pytest.approx(means.tolist(), abs=1e-5)


class Steep(Weights):
    """The loss is finite, its slope is not: that of a square root at 0."""

    def forward(self, rows):
        return torch.sqrt((rows @ self.values - rows @ self.values).abs())


WRONG = [(place, value) for place in ("loss", "validation") for value in (math.nan, math.inf)]


@pytest.mark.parametrize(("place", "value"), [*WRONG, ("example", math.nan), ("gradient", math.nan)])
def test_a_nan_or_infinite_number_stops_with_one_line(place, value):
    found = {
        "loss": "update 3: found the loss (nan|inf|-inf) on the examples 16 to 19, ",
        "example": "update 9: found the loss nan on the example 17, ",
        "validation": f"update 2: found the validation loss {value}, ",
        "gradient": "update 1: found gradients of norm nan, ",
    }[place]
    validation = [1.0, 1.0, value] if place == "validation" else []
    record = Record(rows(24), validation, Steep() if place == "gradient" else None)
    if place in ("loss", "example"):
        record.rows[17] = value
    changes = {"example": {"batch_size": 1}, "validation": {"validate_every": 1}}.get(place, {})
    with pytest.raises(InputError, match=f"^{found}"):
        record.fit(**changes)
    assert record.saved == []
    assert torch.isfinite(record.model.values).all()


def test_make_deterministic_fixes_seed_threads_and_algorithms():
    drawn = []
    for seed in (1, 1, 2):
        make_deterministic(seed, 1)
        drawn.append(torch.rand(3))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.get_num_threads() == 1
    make_deterministic(1, 1, deterministic=False)
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.equal(torch.rand(3), drawn[0])


def test_the_curve_is_written_as_csv_with_absent_values_empty(tmp_path):
    curve = [CurvePoint(1, 0.5, 2.25, None, None, 0.1, 10.0), CurvePoint(2, 1.0, 1e-9, 0.125, 0.5, 0.0, None)]
    write_curve(tmp_path / "curve.csv", curve)
    assert (tmp_path / "curve.csv").read_bytes().split(b"\n") == [
        b"step,epoch,loss,validation_loss,validation_measure,learning_rate,examples_per_second",
        b"1,0.5,2.25,,,0.1,10.0",
        b"2,1.0,1e-09,0.125,0.5,0.0,",
        b"",
    ]


def test_the_settings_are_read_off_the_arguments():
    parser = argparse.ArgumentParser()
    add_options(parser, TrainingSettings)
    args = parser.parse_args(["--max-gradient-norm", "1", "--seed", "7"])
    # The authors' values, but for the seed.
    assert parse_options(TrainingSettings, args) == TrainingSettings(
        batch_size=6,
        gradient_accumulation=100,
        learning_rate=2e-5,
        weight_decay=0.1,
        decay="all",
        warmup_updates=20.0,
        schedule="linear",
        validate_every=100.0,
        max_gradient_norm=1.0,
        precision="fp32",
        seed=7,
    )


def test_weight_decay_can_spare_biases_and_layer_normalisation():
    model = nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2))
    every = parameter_groups(model, SETTINGS.model_copy(update={"weight_decay": 0.3}))
    assert [(len(group["params"]), group["weight_decay"]) for group in every] == [(4, 0.3)]
    weights, vectors = parameter_groups(model, SETTINGS.model_copy(update={"weight_decay": 0.3, "decay": "weights"}))
    assert (weights["weight_decay"], vectors["weight_decay"]) == (0.3, 0.0)
    assert [id(parameter) for parameter in weights["params"]] == [id(model[0].weight)]
    spared = model[0].bias, model[1].weight, model[1].bias
    assert list(map(id, vectors["params"])) == list(map(id, spared))


@pytest.mark.parametrize(("where", "gradient_checkpointing"), [("losses", False), ("losses", True), ("validate", True)])
def test_full_memory_names_the_setting_to_lower(where, gradient_checkpointing):
    record = Record(rows(8))
    setattr(record, where, Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory.")))
    with pytest.raises(InputError, match="tokens_at_once: found 8192, too many ") as caught:
        record.fit(gradient_checkpointing=gradient_checkpointing)
    assert ("gradient_checkpointing" in str(caught.value)) != gradient_checkpointing
    # Any other failure stays as it is.
    setattr(record, where, lambda *_: torch.ones(2) @ torch.ones(3))
    with pytest.raises(RuntimeError, match="size"):
        record.fit()


@pytest.mark.parametrize("where", ["losses", "validate"])
def test_without_a_deterministic_kernel_work_is_rerun_without_determinism(caplog, monkeypatch, where):
    record, other = Record(rows(16)), Record(rows(16))
    work = getattr(record, where)
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda mode, *, warn_only: changed.append(warn_only))
    changed = []

    def fails_once(*args):
        # Losses fail in the middle of an update.
        if not changed and (where == "validate" or record.parts):
            raise RuntimeError("some_kernel does not have a deterministic implementation, but you set 'torch.use...'")
        return work(*args)

    setattr(record, where, fails_once)
    assert [point[:-1] for point in record.fit()] == [point[:-1] for point in other.fit()]
    assert torch.equal(record.last, other.last)
    assert changed == [True]
    warnings = [one.getMessage() for one in caplog.records if one.levelno > logging.INFO and "loop" in one.name]
    assert [line.split(";")[0] for line in warnings] == ["some_kernel does not have a deterministic implementation"]


def test_a_measure_of_0_has_no_sign():
    record = Record(rows(8))
    record.validate = lambda _: Validation(1.0, 0.0)
    record.fit(best_model_metric="RR@10")
    assert [str(value) for value in (record.selection.start, record.selection.best)] == ["0.0", "0.0"]


def test_models_are_saved_with_their_own_measures():
    record, values = Record(rows(8)), iter([0.25, 0.75, 0.5])
    record.validate = lambda _: Validation(1.0, next(values))
    record.fit(best_model_metric="RR@10", gradient_accumulation=1, validate_every=1)
    assert record.measures == {"last": {"RR@10": 0.5}, "best": {"RR@10": 0.75}}
    record = Record(rows(8))
    record.fit()
    assert record.measures == {"last": {}, "best": {}}
