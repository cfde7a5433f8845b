"""The training loop of encoders and re-rankers: AdamW on accelerate; the best and the last model are kept."""

from __future__ import annotations

import logging
import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from cort.formats.artifacts import write_artifact
from cort.models.card import Origin, write_card
from cort.models.layout import identity, model_fingerprint
from cort.models.modules import TextModel
from cort.models.precision import forget, products_in, settle
from cort.runtime.command_line import take
from cort.runtime.errors import InputError, input_error
from cort.runtime.files import atomic_folder
from cort.runtime.progress import Counter
from cort.training.checkpoints import Checkpoints
from cort.training.microbatches import (
    Forward,
    MicroBatch,
    Room,
    Rows,
    add_gradients,
    halve_transformers,
    make_accelerator,
    meet,
    tokens_kept,
)
from cort.training.outcome import CurvePoint, Selection, report_gain, write_curve
from cort.training.parallel import stage_name
from cort.training.selection import Validation
from cort.training.settings import TrainingOptions, TrainingSettings
from cort.training.state import PreemptionHandler, Progress, TrainingState

log = logging.getLogger(__name__)

Options = TypeVar("Options", bound=TrainingOptions)
Result = TypeVar("Result")

#: part of torch's message about an op without a deterministic CUDA kernel
NOT_DETERMINISTIC = "does not have a deterministic implementation"
POINTS_OF_CURVE = 200
# In a model card.
FIXED = "Fix wrongly decoded texts first, as in training: `ftfy.fix_encoding(text)`."


@dataclass(frozen=True)
class Task:
    """What is trained.

    `split` joins the mini-batches of an update, given as positions of their examples, into micro-batches while there is
    room. `losses` computes one number per mini-batch of a micro-batch, `validate` evaluates held-out examples, and
    `save` writes the model under a name, with measures of held-out queries for its card. `unranked` is the measure of
    the validation candidates in the order of the first stage, which a re-ranker should exceed.
    """

    model: nn.Module
    examples: int
    examples_per_epoch: int
    split: Callable[[Rows, int, Room], list[MicroBatch]]
    losses: Callable[[MicroBatch, Forward], Tensor]
    validate: Callable[[Forward], Validation]
    save: Callable[[str, Mapping[str, float]], None]
    unranked: float | None = None


def train(options: Options, make_task: Callable[[Options], Task]) -> None:
    """Train, write models and curve, and remove the checkpoints.

    :param make_task: called after the seed is set, because it draws new weights.
    """
    make_deterministic(options.seed, options.threads, options.deterministic)
    task = make_task(options)
    if options.lora_rank is not None:
        from cort.models.lora import adapt

        adapt(task.model, options.lora_rank, options.seed)
    checkpoints: Checkpoints | None = None
    if options.checkpoints is not None:
        checkpoints = Checkpoints(options.checkpoints, partial(_identity, options), options.checkpoint_every)
    precision: Any = settle(options.precision, meet().device, options.checkpoints)
    settings = take(TrainingSettings, options).model_copy(update={"precision": precision})
    curve, selection = fit(task, settings, checkpoints, options.events)
    if meet().is_main_process:
        write_curve(options.output_curve, curve)
        write_artifact(options.output_selection, selection)
        if checkpoints:
            forget(options.checkpoints)
            checkpoints.remove()


def make_deterministic(seed: int, threads: int, deterministic: bool = True) -> None:
    """Fix every source of randomness, so that the same machine gives the same weights.

    :param deterministic: without it, GPUs may add up in another order each time.
    """
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # Not `warn_only`: the backward pass of attention would then be nondeterministic on a GPU. `_run_or_rerun` warns.
    torch.use_deterministic_algorithms(deterministic)
    # Filling new tensors would halve the speed, and no stage reads memory that it has not written.
    filling: Any = torch.utils.deterministic
    filling.fill_uninitialized_memory = False


def _identity(options: TrainingOptions) -> str:
    """Identify a training by everything that affects its result; paths and the number of processes may change."""
    decisive = options.decisive()
    if start := vars(options).get("start"):
        decisive["start"] = model_fingerprint(start)
    inputs = [vars(options)[name] for name in options.files()]
    return identity(stage_name(options), decisive, inputs, options.base_model)


def save_trained(model: Any, options: TrainingOptions, name: str, measures: Mapping[str, float]) -> None:
    """Write the model folder of a name, "best" or "last", with its card, atomically."""
    output = Path(options.output)
    if options.lora_rank is not None:
        from cort.models.lora import merged

        model = merged(model)
    settings = {key: value for key, value in options.decisive().items() if value not in (None, ())}
    with atomic_folder(output / name) as folder:
        model.save(folder)
        others_load_it = hasattr(model, "saved") and not vars(options).get("term_weights")
        kind = type(model.saved).__name__ if others_load_it else None
        notes = [FIXED] if options.cleaning == "fixed" else []
        origin = Origin.of(Path(options.base_model))
        write_card(folder, output.name, kind, settings, notes, origin, options.data, measures)


def fit(
    task: Task, settings: TrainingSettings, checkpoints: Checkpoints | None = None, events: str | None = None
) -> tuple[list[CurvePoint], Selection]:
    """Train on each example once, in order, and save "best" and "last" at the end; the initial model may be the best.

    An incomplete last mini-batch is dropped, because its loss would have fewer terms than all others. With
    `checkpoints`, training resumes from the newest one.

    :param events: folder for TensorBoard.
    :raises Interrupted: a signal ended the training, after a checkpoint was written.
    :raises InputError: the training diverged, or it gained nothing although a gain is required.
    """
    if settings.precision in ("fp16", "tf32") and not torch.cuda.is_available():
        raise input_error("precision", f"{settings.precision} on a CPU", "fp32 or bf16", "change it")
    return _Loop(task, settings, checkpoints, events).run()


class _Loop:
    """One training. All processes make the same updates; the first one validates and writes."""

    def __init__(
        self, task: Task, settings: TrainingSettings, checkpoints: Checkpoints | None, events: str | None
    ) -> None:
        from accelerate.utils import broadcast
        from transformers import get_scheduler

        examples = task.examples // settings.batch_size * settings.batch_size or task.examples
        self.task, self.events_folder = replace(task, examples=examples), events
        self.per_update = settings.gradient_accumulation * settings.batch_size
        self.updates = math.ceil(examples / self.per_update)
        self.settings = settings = settings.of(self.updates, task.examples_per_epoch / self.per_update)
        self.accelerator = make_accelerator(settings.precision)
        kept = tokens_kept(settings, task.model, self.accelerator.device)
        self.settings = settings = settings.model_copy(update={"tokens_at_once": kept})
        self.model = task.model.to(self.accelerator.device)
        # All processes start from the same weights, even if each has made its own.
        broadcast(self.model.state_dict())
        halve_transformers(self.model, settings.precision, self.accelerator.device)
        groups = parameter_groups(task.model, settings)
        # On a GPU, one kernel updates all weights.
        fused = self.accelerator.device.type == "cuda"
        optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, eps=settings.adam_epsilon, fused=fused)
        if settings.compile:
            compile_layers(task.model)
        # Only for the scaler of fp16.
        optimizer = self.accelerator.prepare(optimizer)
        kind = "constant_with_warmup" if settings.schedule == "constant" else settings.schedule
        schedule = get_scheduler(kind, optimizer, settings.warmup_updates, self.updates)
        self.first = self.accelerator.is_main_process
        if rank := self.accelerator.process_index:
            torch.manual_seed(settings.seed + rank)
        self.state = TrainingState(task.model, optimizer, schedule, self.accelerator)
        self.forward = Forward(self.model, settings, self.accelerator)
        self.alone = Forward(self.model, settings, self.accelerator, alone=True)
        self.preemption = PreemptionHandler(checkpoints, self.state, self.updates)
        self.last_loss = math.nan

    @property
    def progress(self) -> Progress:
        return self.state.progress

    def run(self) -> tuple[list[CurvePoint], Selection]:
        settings, device = self.settings, self.accelerator.device
        log.info("%d examples in %d updates on %s in %s", self.task.examples, self.updates, device, settings.precision)
        every, warmup, rate = settings.validate_every, settings.warmup_updates, settings.learning_rate
        log.info("validation every %d updates, warm-up %d updates, learning rate %g", every, warmup, rate)
        with self.preemption.answering(), self._open_events() as self.events:
            self._train()
        now, sign = self.progress, -1.0 if settings.by_measure else 1.0
        # Adding 0 turns -0.0 into 0.0.
        start, best = (sign * (value or 0.0) + 0.0 for value in (now.start, now.best))
        selection = Selection(settings.best_model_metric, start, best, now.best_step, self.task.unranked)
        report_gain(selection, settings.require_gain)
        if self.first:
            metric, last = settings.best_model_metric, now.curve[-1].validation_measure
            self.task.save("last", {} if last is None else {metric: last})
            self.task.model.load_state_dict(self.state.best)
            self.task.save("best", {} if last is None else {metric: best})
        return now.curve, selection

    def _train(self) -> None:
        done = self.progress.step
        self.since = time.perf_counter()
        self._close_row()  # the one before the first update, or one that an interruption left open
        seen = min(done * self.per_update, self.task.examples)
        with Counter(self.task.examples, "examples", seen, self._note, shown=self.first) as self.counter:
            for step in range(done + 1, self.updates + 1):
                if 0 < self.settings.patience <= self.progress.stale:
                    log.info("no better model in %d validations: training ends", self.settings.patience)
                    break
                self._run_or_rerun(partial(self._update, step))
                self.preemption.leave_if_asked()
                self._close_row()
                if step < self.updates:
                    self.preemption.save_if_due()
                self.since = time.perf_counter()

    def _run_or_rerun(self, work: Callable[[], Result]) -> Result:
        """Run `work`; if an op has no deterministic CUDA kernel, warn and run it again without determinism."""
        with enough_memory(self.settings):
            try:
                return work()
            except RuntimeError as error:
                if NOT_DETERMINISTIC not in str(error):
                    raise
                op = str(error).partition(",")[0]
                log.warning("%s; another training with the same settings would give a slightly different model", op)
                torch.use_deterministic_algorithms(True, warn_only=True)
                self.state.optimizer.zero_grad()
                self.state.rewind()
                return work()

    def _update(self, step: int) -> None:
        computed: list[tuple[MicroBatch, Tensor]] = []
        self.model.train()
        # The last update may have fewer examples.
        examples = np.arange((step - 1) * self.per_update, min(step * self.per_update, self.task.examples))
        size = min(self.settings.batch_size, len(examples))
        batches = self.task.split(examples, size, self.forward.room)
        for batch in batches:
            losses = self.task.losses(batch, self.forward)  # (mini-batches,)
            if batch is not batches[-1]:
                self.preemption.leave_if_asked()
            with products_in(self.settings.precision):
                self.accelerator.backward(share_of(losses, batch, len(examples)))
            self.counter.advance(batch.size)
            computed.append((batch, losses.detach()))
        self.preemption.ask()
        add_gradients(self.model.parameters(), self.accelerator)
        self.last_loss = total_loss(step, computed, len(examples))
        limit = self.settings.max_gradient_norm or math.inf
        norm = self.accelerator.clip_grad_norm_(self.model.parameters(), limit)
        # In fp16, the gradient scaler skips such an update and scales the next losses down.
        if self.settings.precision != "fp16" and not math.isfinite(norm):
            raise diverged(step, f"gradients of norm {norm}")
        self.state.optimizer.step()
        self.state.schedule.step()
        self.state.optimizer.zero_grad()
        self.state.advance(step, self.last_loss, len(examples), time.perf_counter() - self.since)

    def _note(self) -> str:
        rate = self.state.schedule.get_last_lr()[0]
        loss = "" if math.isnan(self.last_loss) else f", loss {self.last_loss:.4f}"
        return f"update {self.progress.step} of {self.updates}{loss}, learning rate {rate:.2g}"

    def _open_events(self) -> Any:
        """Open a file for TensorBoard, if wanted; events that earlier calls wrote after this update become void."""
        if self.events_folder is None or not self.first:
            return nullcontext()
        from tensorboardX import SummaryWriter  # type: ignore[import-not-found, import-untyped, unused-ignore]

        return SummaryWriter(logdir=self.events_folder, purge_step=self.progress.step + 1, write_to_disk=True)

    def _close_row(self) -> None:
        """Validate and add a row to the curve if due; the first row is due before the first update."""
        step, begun = self.progress.step, self.progress.losses or not self.progress.curve
        validate = step % self.settings.validate_every == 0 or step == self.updates
        if not begun or not (validate or step % max(self.updates // POINTS_OF_CURVE, 1) == 0):
            return
        validation = self._run_or_rerun(partial(self._validate, step)) if validate else None
        if not step:
            self.state.rewind()  # validating the start must not change the updates
        seen = min(step * self.per_update, self.task.examples)
        point = self.state.close_row(seen / self.task.examples_per_epoch, validation)
        if self.events:
            for name, value in point._asdict().items():
                if name != "step" and value is not None:
                    self.events.add_scalar(name, value, step)
            self.events.flush()

    def _validate(self, step: int) -> Validation:
        self.model.eval()
        validation = Validation(math.nan)
        if self.first:
            with self.preemption.interruptible(self.task.model), torch.inference_mode():
                validation = self.task.validate(self.alone)
        loss, measure = self.preemption.ask(
            validation.loss, math.nan if validation.measure is None else validation.measure
        )
        self.preemption.leave_if_asked()
        if not math.isfinite(loss):
            raise diverged(step, f"the validation loss {loss}")
        by_measure = self.settings.by_measure
        also = f", {self.settings.best_model_metric} {measure:.4f}" if by_measure else ""
        log.info("update %d of %d: validation loss %.5f%s", step, self.updates, loss, also)
        self.state.keep_if_best(-measure if by_measure else loss)
        return Validation(loss, measure if by_measure else None)


def compile_layers(model: nn.Module) -> None:
    """Compile a transformer's layers, which are alike, so that one is compiled; or all of a model without any."""
    from torch._inductor import config

    config.deterministic = True
    transformers = model.transformers() if isinstance(model, TextModel) else []
    lists = [part for one in transformers for part in one.modules() if isinstance(part, nn.ModuleList)]
    for layer in [layer for layers in lists for layer in layers] or [model]:
        layer.compile(dynamic=True)


def parameter_groups(model: nn.Module, settings: TrainingSettings) -> list[dict[str, Any]]:
    """Group parameters by their weight decay; biases and the weights of layer normalisation are vectors."""
    groups: defaultdict[float, list[nn.Parameter]] = defaultdict(list)
    for parameter in filter(lambda one: one.requires_grad, model.parameters()):
        decays = settings.decay == "all" or parameter.dim() > 1
        groups[settings.weight_decay if decays else 0.0].append(parameter)
    return [{"params": parameters, "weight_decay": decay} for decay, parameters in groups.items()]


def share_of(losses: Tensor, batch: MicroBatch, examples: int) -> Tensor:
    """Contribution of a micro-batch to the loss of an update, which is the mean over all mini-batches."""
    share: Tensor = losses.sum() * (batch.shape[1] / examples)
    return share


def total_loss(step: int, losses: Sequence[tuple[MicroBatch, Tensor]], examples: int) -> float:
    """Add up the losses of an update; read them only once, because that synchronizes with the GPU.

    :raises InputError: for a NaN or infinite loss.
    """
    total = sum(torch.stack([share_of(values, batch, examples) for batch, values in losses]).tolist())
    if math.isfinite(total):
        return float(total)
    for batch, values in losses:
        for position in torch.nonzero(~torch.isfinite(values)).flatten().tolist():
            first, last = batch[position, [0, -1]]
            place = f"the examples {first} to {last}" if last > first else f"the example {first}"
            raise diverged(step, f"the loss {values[position].item()} on {place}")
    raise diverged(step, f"the loss {total}")


@contextmanager
def enough_memory(settings: TrainingSettings) -> Iterator[None]:
    """Turn out-of-memory errors into one that names the setting to lower."""
    try:
        yield
    except RuntimeError as error:
        if not (isinstance(error, torch.OutOfMemoryError) or "not enough memory" in str(error)):
            raise
        found = f"{settings.tokens_at_once}, too many for the memory that activations need"
        more = ", or set gradient_checkpointing if one mini-batch alone is too large"
        fix = "lower it" if settings.gradient_checkpointing else f"lower it{more}"
        raise input_error("tokens_at_once", found, "fewer tokens", fix) from error


def diverged(step: int, found: str) -> InputError:
    """Make the error for a NaN or infinite number in an update."""
    fix = "lower learning_rate, set max_gradient_norm, or train in fp32"
    return input_error(f"update {step}", found, "a finite number", fix)
