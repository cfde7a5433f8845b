"""The training loop of both models: accelerate underneath, AdamW, linear schedule, best and last model kept."""

from __future__ import annotations

import argparse
import csv
import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cort.errors import InputError, input_error
from cort.files import atomic_file
from cort.progress import track

log = logging.getLogger(__name__)

PRECISIONS = ("fp32", "bf16", "fp16")
# The library default of the authors' optimiser (transformers.AdamW).
ADAM_EPSILON = 1e-6
POINTS_OF_CURVE = 200


@dataclass(frozen=True)
class TrainingSettings:
    """Hyper-parameters of one training.

    `batch_size` counts the examples of one mini-batch, `accumulate` the mini-batches of one update; `warmup_updates`
    and `validate_every` count updates; `max_gradient_norm` 0 leaves gradients as they are.
    """

    batch_size: int
    accumulate: int
    learning_rate: float
    weight_decay: float
    warmup_updates: int
    validate_every: int
    max_gradient_norm: float
    precision: str
    seed: int


@dataclass(frozen=True)
class CurvePoint:
    """One row of the curve: `loss` is a mean since the row before, `validation_loss` None between validations."""

    step: int
    epoch: float
    loss: float | None
    validation_loss: float | None
    learning_rate: float
    examples_per_second: float | None


@dataclass(frozen=True)
class Task:
    """What is trained: `loss` of the examples ``start`` to ``end``, `validate` on held-out ones, `save` a model."""

    model: nn.Module
    examples: int
    examples_per_epoch: int
    loss: Callable[[nn.Module, int, int, torch.device], Tensor]
    validate: Callable[[nn.Module, torch.device], float]
    save: Callable[[str], None]


def make_deterministic(seed: int, threads: int) -> None:
    """Fix every source of randomness; the same machine then gives the same weights."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    # Some models need operations that have no deterministic form on GPUs: these warn.
    torch.use_deterministic_algorithms(True, warn_only=torch.cuda.is_available())
    # Filling new tensors halves the speed here, and no stage reads memory it did not write.
    deterministic: Any = torch.utils.deterministic
    deterministic.fill_uninitialized_memory = False


def fit(task: Task, settings: TrainingSettings) -> list[CurvePoint]:
    """Train over the examples in their order, once; save "best" by validation loss, and "last".

    An incomplete last mini-batch is left out: its loss would count fewer terms than all others.
    """
    from accelerate import Accelerator
    from transformers import get_linear_schedule_with_warmup

    if settings.precision == "fp16" and not torch.cuda.is_available():
        raise input_error("precision", "fp16 on a CPU", "fp32 or bf16", "change it")
    accelerator = Accelerator(
        mixed_precision={"fp32": "no"}.get(settings.precision, settings.precision),
        step_scheduler_with_optimizer=False,
    )
    task = replace(task, examples=task.examples // settings.batch_size * settings.batch_size or task.examples)
    updates = math.ceil(math.ceil(task.examples / settings.batch_size) / settings.accumulate)
    optimizer = torch.optim.AdamW(
        task.model.parameters(), lr=settings.learning_rate, eps=ADAM_EPSILON, weight_decay=settings.weight_decay
    )
    model, optimizer = accelerator.prepare(task.model, optimizer)
    schedule = get_linear_schedule_with_warmup(optimizer, settings.warmup_updates, updates)
    loop = _Loop(task, settings, accelerator, model, optimizer, schedule, updates)
    return loop.run()


class _Loop:
    """State of one training run."""

    def __init__(
        self,
        task: Task,
        settings: TrainingSettings,
        accelerator: Any,
        model: nn.Module,
        optimizer: Any,
        schedule: Any,
        updates: int,
    ) -> None:
        self.task, self.settings, self.accelerator = task, settings, accelerator
        self.model, self.optimizer, self.schedule, self.updates = model, optimizer, schedule, updates
        self.curve: list[CurvePoint] = []
        self.best = math.inf

    def run(self) -> list[CurvePoint]:
        log.info(
            "%d examples in %d updates on %s in %s",
            self.task.examples,
            self.updates,
            self.accelerator.device,
            self.settings.precision,
        )
        every = max(self.updates // POINTS_OF_CURVE, 1)
        losses: list[float] = []
        since, examples = time.perf_counter(), 0
        for step in track(range(1, self.updates + 1), self.updates, "updates"):
            loss, size = self._update(step)
            losses.append(loss)
            examples += size
            validate = step % self.settings.validate_every == 0 or step == self.updates
            if step % every == 0 or validate:
                rate = examples / (time.perf_counter() - since)
                validation_loss = self._validate(step) if validate else None
                self._record(step, sum(losses) / len(losses), validation_loss, rate)
                losses, since, examples = [], time.perf_counter(), 0
        self.task.save("last")
        return self.curve

    def _update(self, step: int) -> tuple[float, int]:
        total, size = 0.0, 0
        self.model.train()
        batches = list(self._mini_batches(step))  # fewer than `accumulate` in the last update, perhaps
        for start, end in batches:
            with self.accelerator.autocast():
                loss = self.task.loss(self.model, start, end, self.accelerator.device) / len(batches)
            if not torch.isfinite(loss):
                raise _diverged(step, f"the loss {loss.item()} on the examples {start} to {end}")
            self.accelerator.backward(loss)
            total += loss.item()
            size += end - start
        if self.settings.max_gradient_norm:
            self.accelerator.clip_grad_norm_(self.model.parameters(), self.settings.max_gradient_norm)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        return total, size

    def _mini_batches(self, step: int) -> Iterator[tuple[int, int]]:
        size = self.settings.batch_size
        first = (step - 1) * self.settings.accumulate * size
        for start in range(first, min(first + self.settings.accumulate * size, self.task.examples), size):
            yield start, min(start + size, self.task.examples)

    def _validate(self, step: int) -> float:
        self.model.eval()
        with torch.inference_mode(), self.accelerator.autocast():
            validation_loss = self.task.validate(self.model, self.accelerator.device)
        log.info("update %d of %d: validation loss %.5f", step, self.updates, validation_loss)
        if not math.isfinite(validation_loss):
            raise _diverged(step, f"the validation loss {validation_loss}")
        if validation_loss < self.best:
            self.best = validation_loss
            self.task.save("best")
        return validation_loss

    def _record(self, step: int, loss: float, validation_loss: float | None, rate: float) -> None:
        seen = min(step * self.settings.accumulate * self.settings.batch_size, self.task.examples)
        rate_now = self.schedule.get_last_lr()[0]
        self.curve.append(CurvePoint(step, seen / self.task.examples_per_epoch, loss, validation_loss, rate_now, rate))


def _diverged(step: int, found: str) -> InputError:
    fix = "lower learning_rate, set max_gradient_norm, or train in fp32"
    return input_error(f"update {step}", found, "a finite number", fix)


def write_curve(path: str | Path, curve: list[CurvePoint]) -> None:
    """Write the curve as CSV, absent values empty."""
    with atomic_file(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow([field.name for field in fields(CurvePoint)])
        writer.writerows(["" if value is None else value for value in astuple(point)] for point in curve)


def add_training_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the hyper-parameters both training stages share."""
    parser.add_argument("--batch-size", type=int, default=6, help="examples per mini-batch")
    parser.add_argument("--accumulate", type=int, default=100, help="mini-batches per update")
    parser.add_argument("--learning-rate", type=float, default=2e-5)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--warmup-updates", type=int, default=20)
    parser.add_argument("--validate-every", type=int, default=100, help="updates between validations")
    parser.add_argument("--max-gradient-norm", type=float, default=0.0, help="0: no clipping")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", required=True, metavar="FOLDER", help="gets best/ and last/")
    parser.add_argument("--output-curve", required=True, metavar="CSV")


def settings_from(args: argparse.Namespace) -> TrainingSettings:
    """Collect the hyper-parameters from parsed arguments."""
    return TrainingSettings(**{field.name: getattr(args, field.name) for field in fields(TrainingSettings)})
