"""Keeping a training's checkpoints: going on from the newest, writing one now and then, and before leaving."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NoReturn

from cort.system.errors import InputError, input_error
from cort.system.interruption import Interrupted, Requests, exit_status
from cort.training.checkpoints import Checkpoints
from cort.training.state import TrainingState

log = logging.getLogger(__name__)


class PreemptionHandler:
    """While entered, requests to end are answered with a checkpoint; entering goes on from the newest one.

    Of several processes all call the same methods at the same time.
    """

    def __init__(self, checkpoints: Checkpoints, state: TrainingState, updates: int) -> None:
        self._checkpoints, self._state, self._group, self._updates = checkpoints, state, state.group, updates
        # Workers get every Ctrl-C from their launcher, which counts them.
        self._requests = Requests(patient=state.group.count > 1)
        self._signal, self._is_due = 0, False
        self._written: tuple[int, int] | None = None

    def __enter__(self) -> PreemptionHandler:
        found = self._checkpoints.newest() if self._group.first else None
        if self._state.restore(found):
            self._written = self._position()
            path = self._checkpoints.path(self._state.progress.step)
            log.info("resumed at update %d of %d from %s", self._state.progress.step, self._updates, path)
        self._last = time.monotonic()
        self._requests.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._requests.__exit__(kind, error, traceback)
        if self._group.count > 1 and self._requests.received == signal.SIGTERM and _is_consequence(error):
            signal.raise_signal(signal.SIGTERM)

    def wishes(self) -> tuple[float, float]:
        """Tell what this process wishes: to end because of a signal, or 0; and whether a checkpoint is due."""
        return self._requests.received or 0, time.monotonic() - self._last >= self._checkpoints.every

    def hear(self, wishes: list[list[float]]) -> None:
        """Take note of what all processes told, by rank."""
        self._signal = int(max(received for received, _ in wishes))
        self._is_due = bool(wishes[0][1])

    def save_if_due(self) -> None:
        """Write a checkpoint if it is time; without one the training goes on."""
        if self._is_due:
            failure = self._save()
            if failure is not None:
                log.warning("no checkpoint of update %d: %s; training goes on", self._state.progress.step, failure)
            self._last = time.monotonic()

    def leave_if_asked(self) -> None:
        """Write a checkpoint of the last update and leave if any process was asked to end.

        :raises Interrupted: with the exit status that makes a scheduler try again.
        """
        if self._group.count == 1:
            self.hear([list(self.wishes())])
        if self._signal:
            self._leave()

    @contextmanager
    def interruptible(self, model: Any) -> Iterator[None]:
        """Leave the body between two passes through `model` when a signal arrives; `hear` of it afterwards."""

        def check(*_: object) -> None:
            if self._requests.received:
                raise _AskedError

        hook = model.register_forward_pre_hook(check)
        try:
            yield
        except _AskedError:
            pass
        finally:
            hook.remove()

    def _leave(self) -> NoReturn:
        step, name = self._state.progress.step, signal.Signals(self._signal).name
        path = self._checkpoints.path(step)
        failure = self._save()
        if failure is not None:
            before = self._checkpoints.remaining()
            fix = "it starts anew" if before is None else f"it resumes at update {before}"
            found = f"{failure} at {name}"
            raise input_error(path, found, "room for a checkpoint", f"make room and call it again: {fix}")
        self._group.end()
        raise Interrupted(
            f"{name}: checkpoint written at update {step} of {self._updates}; call it again to resume from {path}",
            exit_status(self._signal),
        )

    def _save(self) -> str | None:
        """Write a checkpoint unless this very state is written already; why it failed, or None."""
        checkpoint = self._state.capture()
        failure: str | None = None
        if self._group.first and not self._is_written():
            try:
                self._checkpoints.write(checkpoint)
                self._written = self._position()
            except OSError as error:
                failure = error.strerror or str(error)
        # Nobody goes on, or leaves, before it is on the disk.
        told = self._group.exchange(failure is not None)[0][0]
        return failure or ("the first process could not write it" if told else None)

    def _position(self) -> tuple[int, int]:
        """Tell states apart: an update with and without its row in the curve."""
        return self._state.progress.step, len(self._state.progress.curve)

    def _is_written(self) -> bool:
        return self._written == self._position() and self._checkpoints.path(self._state.progress.step).exists()


def _is_consequence(error: BaseException | None) -> bool:
    """Whether the error may follow from the end of another process, after which the launcher ended this one."""
    return isinstance(error, Exception) and not isinstance(error, Interrupted | InputError)


class _AskedError(Exception):
    """Leaves a validation."""
