"""The training loop of both models: accelerate underneath, AdamW, best and last model kept."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from cort.system.errors import InputError, input_error
from cort.system.progress import Counter
from cort.training.accelerator import exchange, make_accelerator
from cort.training.checkpoints import Checkpoints
from cort.training.microbatches import Forward, MicroBatch, Rows, activation_limit
from cort.training.outcome import Selection, report_gain
from cort.training.preemption import PreemptionHandler
from cort.training.selection import Validation
from cort.training.settings import TrainingSettings
from cort.training.state import CurvePoint, Progress, TrainingState

# What torch says of an operation on a GPU.
NOT_DETERMINISTIC = "does not have a deterministic implementation"


def share_of(losses: Tensor, batch: MicroBatch, examples: int) -> Tensor:
    """Part that the losses of a micro-batch have in that of an update, which is the mean over mini-batches."""
    share: Tensor = losses.sum() * (batch.shape[1] / examples)
    return share


def total_loss(step: int, found: Sequence[tuple[MicroBatch, Tensor]], examples: int) -> float:
    """Add up the losses of an update; looked at once it is done, as a GPU is waited for each time.

    :raises InputError: one is not finite.
    """
    total = 0.0
    for batch, losses in found:
        for position in torch.nonzero(~torch.isfinite(losses)).flatten().tolist():
            first, last = batch[position, [0, -1]]
            place = f"the examples {first} to {last}" if last > first else f"the example {first}"
            raise diverged(step, f"the loss {losses[position].item()} on {place}")
        total += share_of(losses, batch, examples).item()
    return total


@contextmanager
def enough_memory(settings: TrainingSettings) -> Iterator[None]:
    """Say which setting to lower when memory is full."""
    try:
        yield
    except RuntimeError as error:
        if not (isinstance(error, torch.OutOfMemoryError) or "not enough memory" in str(error)):
            raise
        found = f"{settings.tokens_at_once}, for whose activations there is too little memory"
        more = ", or set gradient_checkpointing if one mini-batch alone is too large"
        fix = "lower it" if settings.gradient_checkpointing else f"lower it{more}"
        raise input_error("tokens_at_once", found, "fewer tokens", fix) from error


def diverged(step: int, found: str) -> InputError:
    """Say that a number of an update is not finite."""
    fix = "lower learning_rate, set max_gradient_norm, or train in fp32"
    return input_error(f"update {step}", found, "a finite number", fix)


log = logging.getLogger(__name__)

Result = TypeVar("Result")

POINTS_OF_CURVE = 200
# TensorBoard's names of what it shows.
NAMES = {
    "loss": "loss/training",
    "validation_loss": "loss/validation",
    "validation_measure": "validation/measure",
    "learning_rate": "progress/learning_rate",
    "epoch": "progress/epoch",
    "examples_per_second": "progress/examples_per_second",
}


@dataclass(frozen=True)
class Task:
    """What is trained.

    `split` joins the mini-batches of an update, given as the positions of their examples, up to so many tokens;
    `losses` are one number per mini-batch of a micro-batch, `validate` is about held-out ones; `save` writes a model.
    `unranked` is what the measure gives the candidates of the validation as they came, which a re-ranker should beat.
    """

    model: nn.Module
    examples: int
    examples_per_epoch: int
    split: Callable[[Rows, int, float], list[MicroBatch]]
    losses: Callable[[MicroBatch, Forward], Tensor]
    validate: Callable[[Forward], Validation]
    save: Callable[[str], None]
    unranked: float | None = None


def parameter_groups(model: nn.Module, settings: TrainingSettings) -> list[dict[str, Any]]:
    """Give each parameter its weight decay; biases and the weights of layer normalisation are vectors."""
    if settings.decay == "all":
        return [{"params": list(model.parameters()), "weight_decay": settings.weight_decay}]
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    return [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": vectors, "weight_decay": 0.0}]


def fit(
    task: Task, settings: TrainingSettings, checkpoints: Checkpoints | None = None, events: str | None = None
) -> tuple[list[CurvePoint], Selection]:
    """Train over the examples in their order, once; save "best" and "last" at the end. The start may be the best.

    An incomplete last mini-batch is left out: its loss would count fewer terms than all others. With `checkpoints`
    the training goes on where the newest one was taken.

    :param events: folder for TensorBoard.
    :raises Interrupted: it was asked to end and wrote a checkpoint.
    :raises InputError: it diverged, or gained nothing and a gain is required.
    """
    if settings.precision == "fp16" and not torch.cuda.is_available():
        raise input_error("precision", "fp16 on a CPU", "fp32 or bf16", "change it")
    return _Loop(task, settings, checkpoints, events).run()


class _Loop:
    """One training run. Of several processes all go through the same updates; the first one validates and writes."""

    def __init__(
        self, task: Task, settings: TrainingSettings, checkpoints: Checkpoints | None, events: str | None
    ) -> None:
        from transformers import get_scheduler

        examples = task.examples // settings.batch_size * settings.batch_size or task.examples
        self.task, self.settings = replace(task, examples=examples), settings
        self.per_update = settings.gradient_accumulation * settings.batch_size
        self.updates = math.ceil(examples / self.per_update)
        self.settings = settings = settings.of(self.updates, task.examples_per_epoch / self.per_update)
        self.accelerator = make_accelerator(settings.precision)
        groups = parameter_groups(task.model, settings)
        optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, eps=settings.adam_epsilon)
        if settings.compile:
            task.model.compile(dynamic=True)
        self.model, optimizer = self.accelerator.prepare(task.model, optimizer)
        kind = "constant_with_warmup" if settings.schedule == "constant" else settings.schedule
        schedule = get_scheduler(kind, optimizer, settings.warmup_updates, self.updates)
        self.first = self.accelerator.is_main_process
        if rank := self.accelerator.process_index:
            torch.manual_seed(settings.seed + rank)
        self.state = TrainingState(task.model, optimizer, schedule, self.accelerator)
        self.forward = Forward(self.model, settings, self.accelerator)
        self.alone = Forward(task.model, settings, self.accelerator, alone=True)
        self.preemption = PreemptionHandler(checkpoints, self.state, self.updates) if checkpoints else None
        self.events_folder = events
        self.last_loss = math.nan

    @property
    def progress(self) -> Progress:
        return self.state.progress

    def run(self) -> tuple[list[CurvePoint], Selection]:
        settings, device = self.settings, self.accelerator.device
        log.info("%d examples in %d updates on %s in %s", self.task.examples, self.updates, device, settings.precision)
        every, warmup, rate = settings.validate_every, settings.warmup_updates, settings.learning_rate
        log.info("validation every %d updates, warm-up %d updates, learning rate %g", every, warmup, rate)
        preemption = self.preemption.answering() if self.preemption else nullcontext()
        with preemption, self._open_events() as self.events:
            self._train()
        chosen = self._selection()
        report_gain(chosen, self.settings.require_gain)
        if self.first:
            self.task.save("last")
            self.task.model.load_state_dict(self.state.best)
            self.task.save("best")
        self.accelerator.end_training()
        return self.progress.curve, chosen

    def _selection(self) -> Selection:
        """Say what the best model was chosen by, and what it gained."""
        now, metric = self.progress, self.settings.best_model_metric
        sign = -1.0 if self.settings.by_measure else 1.0
        start, best = (sign * (value or 0.0) for value in (now.start, now.best))
        return Selection(metric, start, best, now.best_step, self.task.unranked)

    def _train(self) -> None:
        done = self.progress.step
        steps: Iterable[int] = range(done + 1, self.updates + 1)
        self.since = time.perf_counter()
        self._close_row()  # the one before the first update, or one that an interruption left open
        seen = min(done * self.per_update, self.task.examples)
        with Counter(self.task.examples, "examples", seen, self._note, shown=self.first) as self.counter:
            self._take(steps)

    def _take(self, steps: Iterable[int]) -> None:
        for step in steps:
            if 0 < self.settings.patience <= self.progress.stale:
                log.info("no better model in %d validations: training ends", self.settings.patience)
                break
            with enough_memory(self.settings):
                self._or_anew(partial(self._update, step))
            if self.preemption:
                self.preemption.leave_if_asked()
            self._close_row()
            if self.preemption and step < self.updates:
                self.preemption.save_if_due()
            self.since = time.perf_counter()

    def _or_anew(self, work: Callable[[], Result]) -> Result:
        """Do something, anew without a promise if the model needs what has no deterministic form on a GPU."""
        try:
            return work()
        except RuntimeError as error:
            if NOT_DETERMINISTIC not in str(error):
                raise
            log.warning("%s; trained again, this model would be a slightly different one", str(error).partition(",")[0])
            torch.use_deterministic_algorithms(True, warn_only=True)
            self.state.optimizer.zero_grad()
            self.state.rewind()
            return work()

    def _update(self, step: int) -> None:
        losses: list[tuple[MicroBatch, Tensor]] = []
        self.model.train()
        # In the last update there are, perhaps, fewer.
        examples = np.arange((step - 1) * self.per_update, min(step * self.per_update, self.task.examples))
        size = min(self.settings.batch_size, len(examples))
        batches = self.task.split(examples, size, activation_limit(self.settings, self.accelerator.num_processes))
        for batch in batches:
            last = batch is batches[-1]
            with nullcontext() if last else self.accelerator.no_sync(self.model):
                losses.append((batch, self._accumulate(batch, len(examples), last)))
        total = total_loss(step, losses, len(examples))
        limit = self.settings.max_gradient_norm or math.inf
        norm = self.accelerator.clip_grad_norm_(self.model.parameters(), limit)
        # In fp16 such an update is left out, and the next losses are scaled less.
        if self.settings.precision != "fp16" and not math.isfinite(norm):
            raise diverged(step, f"gradients of norm {norm}")
        self.state.optimizer.step()
        self.state.schedule.step()
        self.state.optimizer.zero_grad()
        seconds = time.perf_counter() - self.since
        self.last_loss = total
        self.state.advance(step, total, len(examples), seconds)

    def _accumulate(self, batch: MicroBatch, examples: int, completes: bool) -> Tensor:
        """Add the gradients of a micro-batch to those of the update; returns its losses, (mini-batches,)."""
        losses = self.task.losses(batch, self.forward)  # (mini-batches,)
        if self.preemption:
            self.preemption.ask()
            if not completes:
                self.preemption.leave_if_asked()
        # Gradients of several processes are averaged; the sum is wanted.
        self.accelerator.backward(share_of(losses, batch, examples) * self.accelerator.num_processes)
        self.counter.advance(batch.size)
        return losses.detach()

    def _note(self) -> str:
        """Say where the training is."""
        rate = self.state.schedule.get_last_lr()[0]
        loss = "" if math.isnan(self.last_loss) else f", loss {self.last_loss:.4f}"
        return f"update {self.progress.step} of {self.updates}{loss}, learning rate {rate:.2g}"

    def _open_events(self) -> Any:
        """Open what TensorBoard shows meanwhile, beside files of earlier calls, void after this update; or nothing."""
        if self.events_folder is None or not self.first:
            return nullcontext()
        from tensorboardX import SummaryWriter  # type: ignore[import-not-found, import-untyped, unused-ignore]

        return SummaryWriter(logdir=self.events_folder, purge_step=self.progress.step + 1, write_to_disk=True)

    def _close_row(self) -> None:
        """Validate and add a row to the curve where one is due: before the first update, and then now and again."""
        step, begun = self.progress.step, self.progress.losses or not self.progress.curve
        validate = step % self.settings.validate_every == 0 or step == self.updates
        if not begun or not (validate or step % max(self.updates // POINTS_OF_CURVE, 1) == 0):
            return
        validation = self._or_anew(partial(self._validate, step)) if validate else None
        if not step:
            self.state.rewind()  # as if the start had not been validated
        seen = min(step * self.per_update, self.task.examples)
        point = self.state.close_row(seen / self.task.examples_per_epoch, validation)
        if self.events:
            for name, shown in NAMES.items():
                if (value := getattr(point, name)) is not None:
                    self.events.add_scalar(shown, value, step)
            self.events.flush()

    def _validate(self, step: int) -> Validation:
        self.model.eval()
        found = Validation(math.nan)
        watch = self.preemption.interruptible(self.task.model) if self.preemption else nullcontext()
        if self.first:
            with watch, torch.inference_mode():
                found = self.task.validate(self.alone)
        told = found.loss, math.nan if found.measure is None else found.measure
        if self.preemption:
            loss, measure = self.preemption.ask(*told)
            self.preemption.leave_if_asked()
        else:
            loss, measure = exchange(self.accelerator, *told)[0]
        if not math.isfinite(loss):
            raise diverged(step, f"the validation loss {loss}")
        also = f", {self.settings.best_model_metric} {measure:.4f}" if self.settings.by_measure else ""
        log.info("update %d of %d: validation loss %.5f%s", step, self.updates, loss, also)
        # Both as something that falls as the model gets better.
        self._judge(-measure if self.settings.by_measure else loss)
        return Validation(loss, measure if self.settings.by_measure else None)

    def _judge(self, value: float) -> None:
        """Keep the model of the lowest value."""
        now = self.progress
        now.stale += 1
        if now.best is None or value < now.best:
            now.best, now.best_step, now.stale = value, now.step, 0
            now.start = value if now.start is None else now.start
            if self.first:
                self.state.keep_best()
