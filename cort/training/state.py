"""All that a training must remember to go on as if nothing had happened: taken from its objects, and put back."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from cort.training.accelerator import share
from cort.training.checkpoints import Checkpoint
from cort.training.selection import Validation

MODEL, OPTIMIZER, BEST = "model", "optimizer", "best"


class CurvePoint(NamedTuple):
    """One row of the curve: `loss` is a mean since the row before, what is validated None between validations.

    The row of step 0, before the first update, has neither loss nor speed.
    """

    step: int
    epoch: float
    loss: float | None
    validation_loss: float | None
    validation_measure: float | None
    learning_rate: float
    examples_per_second: float | None


@dataclass
class Progress:
    """How far a training is; `losses`, `examples` and `seconds` are of the updates since the last row of the curve.

    `start` is the loss, or the measure with a minus, before the first update, `best` that of the best model, which was
    found after `best_step` updates, `stale` the number of validations since.
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

    Between two updates only the random states change, so these are marked when an update is done: a checkpoint can be
    written in the middle of the next one.
    """

    def __init__(self, model: nn.Module, optimizer: Any, schedule: Any, accelerator: Any) -> None:
        self.model, self.optimizer, self.schedule, self.accelerator = model, optimizer, schedule, accelerator
        self.progress = Progress()
        #: weights of the best model, of the first process only
        self.best: dict[str, Tensor] = {}
        self.mark()

    def advance(self, step: int, loss: float, examples: int, seconds: float) -> None:
        """Note that update `step` is done."""
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
        found, measure = validation or (None, None)
        point = CurvePoint(now.step, epoch, loss, found, measure, self.schedule.get_last_lr()[0], speed)
        now.curve.append(point)
        now.losses, now.examples, now.seconds = [], 0, 0.0
        self.mark()  # validating may have drawn numbers
        return point

    def mark(self) -> None:
        """Remember the random states of this moment."""
        self._random = random_states(self.accelerator.device)

    def rewind(self) -> None:
        """Go back to the random states that were marked."""
        restore_random_states(self._random, self.accelerator.device)

    def keep_best(self) -> None:
        """Remember the weights of this moment as the best so far."""
        self.best = {name: value.detach().cpu().clone() for name, value in self.model.state_dict().items()}

    def capture(self) -> Checkpoint:
        """Take a checkpoint of the last update; all processes must ask for it together."""
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
        return Checkpoint(self.progress.step, tensors, state)

    def restore(self, found: Checkpoint | None) -> bool:
        """Go back to the checkpoint that the first process found, if it found one."""
        tensors, state = (found.tensors, found.state) if found else ({}, None)
        self.best = _part(BEST, tensors)
        others = {name: one for name, one in tensors.items() if not name.startswith(f"{BEST}.")}
        tensors, state = share(self.accelerator, others, state)
        if state is None:
            return False
        self.progress = Progress(**state["progress"])
        self.progress.curve = [CurvePoint(*point) for point in state["progress"]["curve"]]
        self.model.load_state_dict(_part(MODEL, tensors))
        self.schedule.load_state_dict(state["schedule"])
        self._restore_optimizer(_part(OPTIMIZER, tensors))
        if self.accelerator.scaler:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        # With more processes than before, the new ones keep the states they started with.
        if self.accelerator.process_index < len(state["random"]):
            restore_random_states(state["random"][self.accelerator.process_index], self.accelerator.device)
        self.mark()
        return True

    def _restore_optimizer(self, moments: dict[str, Tensor]) -> None:
        indices = {name.split(".")[0] for name in moments}
        groups, rates = self.optimizer.state_dict()["param_groups"], self.schedule.get_last_lr()
        state = {
            "state": {int(index): _part(index, moments) for index in indices},
            "param_groups": [{**group, "lr": rate} for group, rate in zip(groups, rates, strict=True)],
        }
        self.optimizer.load_state_dict(state)


def random_states(device: torch.device) -> dict[str, Any]:
    """Random states of a process: of torch on the CPU and on `device`, of Python, and of numpy's legacy generator."""
    states = {
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state(),  # noqa: NPY002 - libraries still draw from it
        "python": random.getstate(),
    }
    return states | ({"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {})


def restore_random_states(states: dict[str, Any], device: torch.device) -> None:
    """Put back what `random_states` returned, by way of JSON; a GPU's state is left out where there is none."""
    torch.set_rng_state(torch.as_tensor(states["torch"], dtype=torch.uint8))
    np.random.set_state(states["numpy"])  # noqa: NPY002
    version, words, normal = states["python"]
    random.setstate((version, tuple(words), normal))
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(torch.as_tensor(states["cuda"], dtype=torch.uint8), device)


def _with_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def _part(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors whose name starts with ``prefix.``, without it."""
    return {name.removeprefix(f"{prefix}."): one for name, one in tensors.items() if name.startswith(f"{prefix}.")}
