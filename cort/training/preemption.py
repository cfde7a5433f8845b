"""Keeping a training's checkpoints: going on from the newest, writing one now and then, and before leaving."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from cort.system.errors import InputError, input_error
from cort.system.interruption import Interrupted, Requests, exit_status
from cort.training.accelerator import exchange
from cort.training.checkpoints import Checkpoints
from cort.training.state import TrainingState

log = logging.getLogger(__name__)


class PreemptionHandler:
    """Writes and finds the checkpoints of a training. Of several processes all call the same methods at once."""

    def __init__(self, checkpoints: Checkpoints, state: TrainingState, updates: int) -> None:
        self._checkpoints, self._state, self._updates = checkpoints, state, updates
        self._accelerator, self._several = state.accelerator, state.accelerator.num_processes > 1
        # Workers get every Ctrl-C from their launcher, which counts them.
        self._requests = Requests(patient=self._several)
        self._signal, self._is_due = 0, False
        self._written: tuple[int, int] | None = None

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Go on from the newest checkpoint, and answer requests to end with one."""
        if self._state.restore(self._checkpoints.newest() if self._accelerator.is_main_process else None):
            self._written = self._position()
            step = self._state.progress.step
            log.info("resumed at update %d of %d from %s", step, self._updates, self._checkpoints.path(step))
        self._last = time.monotonic()
        try:
            with self._requests:
                yield
        except (Interrupted, InputError):
            raise
        except Exception:
            # It may follow from the end of another process, after which the launcher ended this one.
            if self._several and self._requests.received == signal.SIGTERM:
                signal.raise_signal(signal.SIGTERM)
            raise

    def ask(self, *values: float) -> list[float]:
        """Ask all processes whether they should end, and the first one whether a checkpoint is due; its values."""
        due = time.monotonic() - self._last >= self._checkpoints.every
        told = exchange(self._accelerator, self._requests.received or 0, due, *values)
        self._signal = int(max(received for received, *_ in told))
        self._is_due = bool(told[0][1])
        return told[0][2:]

    def save_if_due(self) -> None:
        """Write a checkpoint if it is time; without one the training goes on."""
        if self._is_due:
            if failure := self._save():
                log.warning("no checkpoint of update %d: %s; training goes on", self._state.progress.step, failure)
            self._last = time.monotonic()

    def leave_if_asked(self) -> None:
        """Write a checkpoint of the last update and leave if any process was asked to end.

        :raises Interrupted: with the exit status that makes a scheduler try again.
        """
        if not self._several:
            self.ask()
        if not self._signal:
            return
        step, name = self._state.progress.step, signal.Signals(self._signal).name
        path = self._checkpoints.path(step)
        if failure := self._save():
            before = self._checkpoints.remaining()
            fix = "it starts anew" if before is None else f"it resumes at update {before}"
            found = f"{failure} at {name}"
            raise input_error(path, found, "room for a checkpoint", f"make room and call it again: {fix}")
        self._accelerator.end_training()
        raise Interrupted(
            f"{name}: checkpoint written at update {step} of {self._updates}; call it again to resume from {path}",
            exit_status(self._signal),
        )

    @contextmanager
    def interruptible(self, model: Any) -> Iterator[None]:
        """Leave the body between two passes through `model` when a signal arrives; `ask` afterwards."""

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
        """Write a checkpoint unless this very state is written already; why it failed, or None."""
        checkpoint = self._state.capture()
        written = self._written == self._position() and self._checkpoints.path(checkpoint.step).exists()
        failure: str | None = None
        if self._accelerator.is_main_process and not written:
            try:
                self._checkpoints.write(checkpoint)
                self._written = self._position()
            except OSError as error:
                failure = error.strerror or str(error)
        # Nobody goes on, or leaves, before it is on the disk.
        told = exchange(self._accelerator, failure is not None)[0][0]
        return failure or ("the first process could not write it" if told else None)

    def _position(self) -> tuple[int, int]:
        """Tell states apart: an update with and without its row in the curve."""
        return self._state.progress.step, len(self._state.progress.curve)


class _AskedError(Exception):
    """Leaves a validation."""
