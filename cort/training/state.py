"""Everything that a training needs to resume exactly where it was interrupted, and when checkpoints are written."""

from __future__ import annotations

import logging
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cort.runtime.errors import InputError, input_error
from cort.runtime.interruption import Interrupted, Requests, exit_status
from cort.training.checkpoints import Checkpoint, Checkpoints
from cort.training.microbatches import exchange
from cort.training.outcome import CurvePoint
from cort.training.selection import Validation

log = logging.getLogger(__name__)

MODEL, OPTIMIZER, BEST = "model", "optimizer", "best"


@dataclass
class Progress:
    """Progress of a training; `losses`, `examples` and `seconds` belong to the updates since the last row of the curve.

    `start` and `best` are the loss, or the negated measure, before the first update and after update `best_step`, which
    gave the best model; `stale` counts the validations since then.
    """

    step: int = 0
    curve: list[CurvePoint] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    examples: int = 0
    seconds: float = 0.0
    start: float | None = None
    best: float | None = None
    best_step: int = 0
    stale: int = 0


class TrainingState:
    """Weights, optimizer, schedule, progress and random states of a training.

    During an update, only random states and gradients change. Random states are marked after each update, so that a
    checkpoint can be written in the middle of the next one.
    """

    def __init__(self, model: nn.Module, optimizer: Any, schedule: Any, accelerator: Any) -> None:
        self.model, self.optimizer, self.schedule, self.accelerator = model, optimizer, schedule, accelerator
        self.progress = Progress()
        #: weights of the best model, in the first process only
        self.best: dict[str, Tensor] = {}
        self.mark()

    def advance(self, step: int, loss: float, examples: int, seconds: float) -> None:
        """Record that update `step` is complete."""
        self.progress.step = step
        self.progress.losses.append(loss)
        self.progress.examples += examples
        self.progress.seconds += seconds
        self.mark()

    def close_row(self, epoch: float, validation: Validation | None) -> CurvePoint:
        """Add a row to the curve and begin the next one."""
        now = self.progress
        loss, speed = None, None
        if now.losses:
            loss, speed = sum(now.losses) / len(now.losses), now.examples / now.seconds
        validation_loss, measure = validation or (None, None)
        point = CurvePoint(now.step, epoch, loss, validation_loss, measure, self.schedule.get_last_lr()[0], speed)
        now.curve.append(point)
        now.losses, now.examples, now.seconds = [], 0, 0.0
        self.mark()  # validating may have drawn random numbers
        return point

    def mark(self) -> None:
        """Remember the current random states."""
        self._random = random_states(self.accelerator.device)

    def rewind(self) -> None:
        """Go back to the marked random states."""
        restore_random_states(self._random, self.accelerator.device)

    def keep_if_best(self, value: float) -> None:
        """Remember the current model if it is the best so far.

        :param value: a loss or a negated measure, which falls as the model gets better.
        """
        now = self.progress
        now.stale += 1
        if now.best is None or value < now.best:
            now.best, now.best_step, now.stale = value, now.step, 0
            now.start = value if now.start is None else now.start
            if self.accelerator.is_main_process:
                self.best = {name: weights.detach().cpu().clone() for name, weights in self.model.state_dict().items()}

    def capture(self) -> Checkpoint:
        """Capture a checkpoint of the last complete update; all processes must call this together."""
        from accelerate.utils import gather_object

        scaler = self.accelerator.scaler
        state = {
            "progress": asdict(self.progress),
            "schedule": self.schedule.state_dict(),
            "scaler": scaler.state_dict() if scaler else None,
            "random": gather_object([self._random]),
        }
        tensors = _with_prefix(MODEL, self.model.state_dict()) | _with_prefix(BEST, self.best)
        for index, moments in self.optimizer.state_dict()["state"].items():
            tensors |= _with_prefix(f"{OPTIMIZER}.{index}", moments)
        return Checkpoint(tensors, state)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore what `capture` returned; all processes must call this together."""
        tensors, state = checkpoint
        self.best = _part(BEST, tensors) if self.accelerator.is_main_process else {}
        self.progress = Progress(**state["progress"])
        self.progress.curve = [CurvePoint(*point) for point in state["progress"]["curve"]]
        self.model.load_state_dict(_part(MODEL, tensors))
        self.schedule.load_state_dict(state["schedule"])
        self._restore_optimizer(_part(OPTIMIZER, tensors))
        if self.accelerator.scaler:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        # If there are more processes than before, the new ones keep their initial states.
        if self.accelerator.process_index < len(state["random"]):
            restore_random_states(state["random"][self.accelerator.process_index], self.accelerator.device)
        self.mark()

    def _restore_optimizer(self, moments: dict[str, Tensor]) -> None:
        state = self.optimizer.state_dict()
        state["state"] = {int(index): _part(index, moments) for index in {name.split(".")[0] for name in moments}}
        for group, rate in zip(state["param_groups"], self.schedule.get_last_lr(), strict=True):
            group["lr"] = rate
        self.optimizer.load_state_dict(state)


def shared(checkpoint: Checkpoint | None, accelerator: Any) -> Checkpoint | None:
    """Send what the first process has read to all others, but for the best model's weights, which only it needs."""
    if accelerator.num_processes == 1:
        return checkpoint
    from accelerate.utils import broadcast_object_list

    read = checkpoint.tensors if checkpoint else {}
    needed = [name for name in read if not name.startswith(f"{BEST}.")]
    state, needed = broadcast_object_list([checkpoint and checkpoint.state, needed])
    # One by one, as all together may not fit into a GPU's memory.
    tensors = {name: broadcast_object_list([read.get(name)])[0] for name in needed}
    return None if state is None else Checkpoint(read or tensors, state)


def random_states(device: torch.device) -> dict[str, Any]:
    """Return the random states of this process: torch's on CPU and `device`, Python's, and numpy's legacy generator."""
    states = {
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state(),  # noqa: NPY002 - libraries still draw from it
        "python": random.getstate(),
    }
    return states | ({"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {})


def restore_random_states(states: dict[str, Any], device: torch.device) -> None:
    """Restore what `random_states` returned, also after a round trip through JSON or on another type of device."""
    torch.set_rng_state(torch.as_tensor(states["torch"], dtype=torch.uint8))
    np.random.set_state(states["numpy"])  # noqa: NPY002
    version, words, normal = states["python"]
    random.setstate((version, tuple(words), normal))
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(torch.as_tensor(states["cuda"], dtype=torch.uint8), device)


def _with_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def _part(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Select the tensors whose name starts with ``prefix.``, and drop it."""
    start = f"{prefix}."
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}


class PreemptionHandler:
    """Resumes from the newest checkpoint; writes one from time to time, and when a signal asks to end the training.

    All processes call the same methods at the same time. Without `checkpoints`, signals are not handled.
    """

    def __init__(self, checkpoints: Checkpoints | None, state: TrainingState, updates: int) -> None:
        self._checkpoints, self._state, self._updates = checkpoints, state, updates
        self._accelerator, self._several = state.accelerator, state.accelerator.num_processes > 1
        # With several processes, the launcher counts each Ctrl-C and passes it on.
        self._requests = Requests(patient=self._several)
        self._signal, self._is_due = 0, False

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Resume from the newest checkpoint; treat signals as requests to end with a checkpoint."""
        if self._checkpoints is None:
            yield
            return
        first = self._accelerator.is_main_process
        if checkpoint := shared(self._checkpoints.newest() if first else None, self._accelerator):
            self._state.restore(checkpoint)
            step, path = self._state.progress.step, self._checkpoints.path
            log.info("resumed at update %d of %d from %s", step, self._updates, path)
        self._last = time.monotonic()
        try:
            with self._requests:
                yield
        except (Interrupted, InputError):
            raise
        except Exception:
            # Perhaps a consequence of another process's end, after which the launcher terminated this one.
            if self._several and self._requests.received == signal.SIGTERM:
                signal.raise_signal(signal.SIGTERM)
            raise

    def ask(self, *values: float) -> list[float]:
        """Find out whether any process was asked to end or a checkpoint is due; return the first process's `values`."""
        if self._checkpoints is None:
            return exchange(self._accelerator, *values)[0] if values else []
        due = time.monotonic() - self._last >= self._checkpoints.every
        answers = exchange(self._accelerator, self._requests.received or 0, due, *values)
        self._signal = int(max(received for received, *_ in answers))
        self._is_due = bool(answers[0][1])
        return answers[0][2:]

    def save_if_due(self) -> None:
        """Write a checkpoint if one is due; if that fails, training continues."""
        if self._is_due:
            if failure := self._save():
                log.warning("no checkpoint of update %d: %s; training continues", self._state.progress.step, failure)
            self._last = time.monotonic()

    def leave_if_asked(self) -> None:
        """If any process was asked to end, write a checkpoint of the last complete update and leave.

        :raises Interrupted: with the exit status after which a scheduler tries again.
        """
        if not self._several:
            self.ask()
        if not self._signal or self._checkpoints is None:
            return
        step, name = self._state.progress.step, signal.Signals(self._signal).name
        path = self._checkpoints.path
        if failure := self._save():
            raise input_error(path, f"{failure} at {name}", "room for a checkpoint", "make room and call it again")
        raise Interrupted(
            f"{name}: checkpoint written at update {step} of {self._updates}; call it again to resume from {path}",
            exit_status(self._signal),
        )

    @contextmanager
    def interruptible(self, model: Any) -> Iterator[None]:
        """Leave the block before the next pass through `model` after a signal; the caller then calls `ask`."""

        def check(*_: object) -> None:
            if self._requests.received:
                raise _AskedError

        hook = model.register_forward_pre_hook(check)
        try:
            with suppress(_AskedError):
                yield
        finally:
            hook.remove()

    def _save(self) -> str | None:
        """Write a checkpoint; return why that failed, or None."""
        assert self._checkpoints  # noqa: S101 - callers have checked
        checkpoint = self._state.capture()
        failure: str | None = None
        if self._accelerator.is_main_process:
            try:
                self._checkpoints.write(checkpoint)
            except OSError as error:
                failure = error.strerror or str(error)
        # No process continues or leaves before the checkpoint is on disk.
        failed = exchange(self._accelerator, failure is not None)[0][0]
        return failure or ("the first process could not write it" if failed else None)


class _AskedError(Exception):
    """Ends a validation early."""
