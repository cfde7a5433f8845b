"""The training loop of both models: accelerate underneath, AdamW, linear schedule, best and last model kept."""

from __future__ import annotations

import argparse
import csv
import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import astuple, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cort.errors import InputError, input_error
from cort.files import atomic_file
from cort.progress import track
from cort.training.checkpoints import Checkpoints
from cort.training.identity import identity
from cort.training.keeper import Keeper
from cort.training.options import TrainingSettings, settings_from
from cort.training.ranks import make_accelerator
from cort.training.state import CurvePoint, Progress, TrainingState

log = logging.getLogger(__name__)

# The library default of the authors' optimiser (transformers.AdamW).
ADAM_EPSILON = 1e-6
POINTS_OF_CURVE = 200
# Options that say where things are, how fast they go and what is remembered.
NOT_DECISIVE = ("log", "output", "output_curve", "threads", "processes", "checkpoints", "checkpoint_every")


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


def parameter_groups(model: nn.Module, settings: TrainingSettings) -> list[dict[str, Any]]:
    """Give each parameter its weight decay; biases and the weights of layer normalisation are vectors."""
    if settings.decay == "all":
        return [{"params": list(model.parameters()), "weight_decay": settings.weight_decay}]
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    return [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": vectors, "weight_decay": 0.0}]


def fit(task: Task, settings: TrainingSettings, checkpoints: Checkpoints | None = None) -> list[CurvePoint]:
    """Train over the examples in their order, once; save "best" by validation loss, and "last".

    An incomplete last mini-batch is left out: its loss would count fewer terms than all others. With `checkpoints`
    the training goes on where the newest one was taken, and both models are saved at its end.

    :raises Interrupted: it was asked to end and wrote a checkpoint.
    """
    from transformers import get_linear_schedule_with_warmup

    if settings.precision == "fp16" and not torch.cuda.is_available():
        raise input_error("precision", "fp16 on a CPU", "fp32 or bf16", "change it")
    accelerator = make_accelerator(settings.precision)
    task = replace(task, examples=task.examples // settings.batch_size * settings.batch_size or task.examples)
    updates = math.ceil(math.ceil(task.examples / settings.batch_size) / settings.accumulate)
    groups = parameter_groups(task.model, settings)
    optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, eps=ADAM_EPSILON)
    model, optimizer = accelerator.prepare(task.model, optimizer)
    schedule = get_linear_schedule_with_warmup(optimizer, settings.warmup_updates, updates)
    if accelerator.process_index:
        torch.manual_seed(settings.seed + accelerator.process_index)
    state = TrainingState(task.model, optimizer, schedule, accelerator)
    return _Loop(task, settings, accelerator, model, state, updates, checkpoints).run()


class _Loop:
    """One training run. Of several processes all go through the same updates; the first one validates and writes."""

    def __init__(
        self,
        task: Task,
        settings: TrainingSettings,
        accelerator: Any,
        model: nn.Module,
        state: TrainingState,
        updates: int,
        checkpoints: Checkpoints | None,
    ) -> None:
        self.task, self.settings, self.accelerator, self.model = task, settings, accelerator, model
        self.state, self.ranks, self.updates = state, state.ranks, updates
        self.keeper = Keeper(checkpoints, state, updates) if checkpoints else None

    @property
    def progress(self) -> Progress:
        return self.state.progress

    def run(self) -> list[CurvePoint]:
        log.info(
            "%d examples in %d updates on %s in %s",
            self.task.examples,
            self.updates,
            self.accelerator.device,
            self.settings.precision,
        )
        with self.keeper or nullcontext():
            self._train()
        if self.ranks.first:
            self.task.save("last")
            if self.keeper:
                self.task.model.load_state_dict(self.state.best)
                self.task.save("best")
        self.ranks.end()
        return self.progress.curve

    def _train(self) -> None:
        done = self.progress.step
        steps: Iterable[int] = range(done + 1, self.updates + 1)
        self.since = time.perf_counter()
        self._close_row()  # one that an interruption left open
        for step in track(steps, self.updates, "updates", done) if self.ranks.first else steps:
            self._update(step)
            if self.keeper:
                self.keeper.leave_if_asked()
            self._close_row()
            if self.keeper and step < self.updates:
                self.keeper.save_if_due()
            self.since = time.perf_counter()

    def _update(self, step: int) -> None:
        total = 0.0
        self.model.train()
        batches = list(self._mini_batches(step))  # fewer than `accumulate` in the last update, perhaps
        for first in range(0, len(batches), self.ranks.count):
            last = first + self.ranks.count >= len(batches)
            with nullcontext() if last else self.accelerator.no_sync(self.model):
                for loss in self._accumulate(step, batches, first, last):
                    total += loss
        if self.settings.max_gradient_norm:
            self.accelerator.clip_grad_norm_(self.model.parameters(), self.settings.max_gradient_norm)
        self.state.optimizer.step()
        self.state.schedule.step()
        self.state.optimizer.zero_grad()
        seconds = time.perf_counter() - self.since
        self.state.advance(step, total, sum(end - start for start, end in batches), seconds)

    def _accumulate(self, step: int, batches: list[tuple[int, int]], first: int, last: bool) -> list[float]:
        """Add the gradients of one mini-batch per process, from `first` on; their losses."""
        mine = first + self.ranks.rank
        start, end = batches[mine % len(batches)]
        # The mean over all processes is then the sum; one without a mini-batch takes part with any, to no effect.
        weight = self.ranks.count if mine < len(batches) else 0
        with self.accelerator.autocast():
            loss = self.task.loss(self.model, start, end, self.accelerator.device) / len(batches)
        wishes = self.keeper.wishes() if self.keeper else ()
        told = self.ranks.exchange(loss.item(), *wishes)
        losses = [value for value, *_ in told][: len(batches) - first]
        for value, (start, end) in zip(losses, batches[first:], strict=False):
            if not math.isfinite(value):
                raise _diverged(step, f"the loss {value} on the examples {start} to {end}")
        if self.keeper:
            self.keeper.hear([wishes for _, *wishes in told])
            if not last:
                self.keeper.leave_if_asked()
        self.accelerator.backward(loss * weight)
        return losses

    def _mini_batches(self, step: int) -> Iterator[tuple[int, int]]:
        size = self.settings.batch_size
        first = (step - 1) * self.settings.accumulate * size
        for start in range(first, min(first + self.settings.accumulate * size, self.task.examples), size):
            yield start, min(start + size, self.task.examples)

    def _close_row(self) -> None:
        """Validate and add a row to the curve where one is due."""
        step, progress = self.progress.step, self.progress
        validate = step % self.settings.validate_every == 0 or step == self.updates
        if not progress.losses or not (validate or step % max(self.updates // POINTS_OF_CURVE, 1) == 0):
            return
        validation_loss = self._validate(step) if validate else None
        seen = min(step * self.settings.accumulate * self.settings.batch_size, self.task.examples)
        self.state.close_row(seen / self.task.examples_per_epoch, validation_loss)

    def _validate(self, step: int) -> float:
        self.model.eval()
        validation_loss = math.nan
        watch = self.keeper.interruptible(self.task.model) if self.keeper else nullcontext()
        if self.ranks.first:
            with watch, torch.inference_mode(), self.accelerator.autocast():
                validation_loss = self.task.validate(self.task.model, self.accelerator.device)
        told = self.ranks.exchange(validation_loss, *(self.keeper.wishes() if self.keeper else ()))
        if self.keeper:
            self.keeper.hear([wishes for _, *wishes in told])
            self.keeper.leave_if_asked()
        validation_loss = told[0][0]
        log.info("update %d of %d: validation loss %.5f", step, self.updates, validation_loss)
        if not math.isfinite(validation_loss):
            raise _diverged(step, f"the validation loss {validation_loss}")
        if self.progress.best is None or validation_loss < self.progress.best:
            self.progress.best = validation_loss
            self._keep_best()
        return validation_loss

    def _keep_best(self) -> None:
        if self.ranks.first:
            # A job that resumes may find its outputs deleted: with checkpoints, the best model is kept with them.
            if self.keeper:
                self.state.keep_best()
            else:
                self.task.save("best")


def _diverged(step: int, found: str) -> InputError:
    fix = "lower learning_rate, set max_gradient_norm, or train in fp32"
    return input_error(f"update {step}", found, "a finite number", fix)


def write_curve(path: str | Path, curve: list[CurvePoint]) -> None:
    """Write the curve as CSV, absent values empty."""
    with atomic_file(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow([field.name for field in fields(CurvePoint)])
        writer.writerows(["" if value is None else value for value in astuple(point)] for point in curve)


def train_task(task: Task, args: argparse.Namespace, module: str, files: Sequence[str]) -> None:
    """Train as the arguments say, write models and curve, and remove the checkpoints.

    :param module: the stage; `files` names the arguments that are paths of what it reads.
    """
    from accelerate import PartialState

    checkpoints: Checkpoints | None = None
    if args.checkpoints is not None:
        identify = partial(_identity, task, args, module, files)
        checkpoints = Checkpoints(args.checkpoints, identify, args.checkpoint_every)
    curve = fit(task, settings_from(args), checkpoints)
    if PartialState().is_main_process:
        write_curve(args.output_curve, curve)
        if checkpoints:
            checkpoints.remove()


def _identity(task: Task, args: argparse.Namespace, module: str, files: Sequence[str]) -> str:
    """Name the training by all that decides its result; where it runs, and on how many processes, may change."""
    others = {*files, *NOT_DECISIVE, "language_model"}
    options = {name: value for name, value in vars(args).items() if name not in others}
    options |= {"examples": task.examples}
    return identity(module, options, [getattr(args, name) for name in files], args.language_model)
