"""All that a training must remember to go on as if nothing had happened: taken from its objects, and put back."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cort.training.checkpoints import Checkpoint, part, with_prefix
from cort.training.curve import CurvePoint
from cort.training.parallel.process_group import ProcessGroup
from cort.training.selection import Validation

MODEL, OPTIMIZER, BEST, RANDOM = "model", "optimizer", "best", "random"
# What numpy and Python call the words of the Mersenne twister's state; the position follows them.
NUMPY_WORDS = 624
PYTHON_WORDS = 625
PYTHON_VERSION = 3


@dataclass
class Progress:
    """How far a training is; `losses`, `examples` and `seconds` are of the updates since the last row of the curve.

    `best` is the loss or measure of the best model, `stale` the number of validations since.
    """

    step: int = 0
    curve: list[CurvePoint] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    examples: int = 0
    seconds: float = 0.0
    best: float | None = None
    stale: int = 0


class TrainingState:
    """Weights, optimizer, schedule, progress and random states of a training.

    Between two updates only the random states change, so these are marked when an update is done: a checkpoint can be
    written in the middle of the next one.
    """

    def __init__(self, model: nn.Module, optimizer: Any, schedule: Any, accelerator: Any) -> None:
        self.model, self.optimizer, self.schedule = model, optimizer, schedule
        self.group = ProcessGroup(accelerator)
        self.progress = Progress()
        #: weights of the best model, of the first process only
        self.best: dict[str, Tensor] = {}
        self._scaler, self._device = accelerator.scaler, accelerator.device
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
        loss, speed = sum(now.losses) / len(now.losses), now.examples / now.seconds
        found, measure = validation or (None, None)
        point = CurvePoint(now.step, epoch, loss, found, measure, self.schedule.get_last_lr()[0], speed)
        now.curve.append(point)
        now.losses, now.examples, now.seconds = [], 0, 0.0
        self.mark()  # validating may have drawn numbers
        return point

    def mark(self) -> None:
        """Remember the random states of this moment."""
        self._random = random_states(self._device)

    def keep_best(self) -> None:
        """Remember the weights of this moment as the best so far."""
        self.best = {name: value.detach().cpu().clone() for name, value in self.model.state_dict().items()}

    def capture(self) -> Checkpoint:
        """Take a checkpoint of the last update; all processes must ask for it together."""
        optimizer = self.optimizer.state_dict()
        state = {
            "progress": asdict(self.progress),
            "learning_rates": [group["lr"] for group in optimizer["param_groups"]],
            "schedule": self.schedule.state_dict(),
            "scaler": self._scaler.state_dict() if self._scaler else None,
        }
        tensors = with_prefix(MODEL, self.model.state_dict()) | with_prefix(BEST, self.best)
        for index, moments in optimizer["state"].items():
            tensors |= with_prefix(f"{OPTIMIZER}.{index}", moments)
        for name, mine in self._random.items():
            for rank, one in enumerate(self.group.gather(mine)):
                tensors[f"{RANDOM}.{rank}.{name}"] = one.cpu()
        return Checkpoint(self.progress.step, tensors, state)

    def restore(self, found: Checkpoint | None) -> bool:
        """Go back to the checkpoint that the first process found, if it found one."""
        best = part(BEST, found.tensors) if found else {}
        shared = {name: one for name, one in found.tensors.items() if not name.startswith(f"{BEST}.")} if found else {}
        tensors, state = self.group.share(shared, found.state if found else None)
        if state is None:
            return False
        self.best = best
        self.progress = Progress(**state["progress"])
        self.progress.curve = [CurvePoint(**point) for point in state["progress"]["curve"]]
        self.model.load_state_dict(part(MODEL, tensors))
        self._restore_optimizer(part(OPTIMIZER, tensors), state["learning_rates"])
        self.schedule.load_state_dict(state["schedule"])
        if self._scaler:
            self._scaler.load_state_dict(state["scaler"])
        # With more processes than before, the new ones keep the states they started with.
        mine = part(f"{RANDOM}.{self.group.rank}", tensors)
        if mine:
            restore_random_states(mine, self._device)
        self.mark()
        return True

    def _restore_optimizer(self, moments: dict[str, Tensor], learning_rates: list[float]) -> None:
        current = self.optimizer.state_dict()
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in moments.items():
            index, moment = name.split(".")
            state.setdefault(int(index), {})[moment] = tensor
        groups = [{**group, "lr": rate} for group, rate in zip(current["param_groups"], learning_rates, strict=True)]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})


def random_states(device: torch.device) -> dict[str, Tensor]:
    """Random states of a process as tensors, to be stored without pickle and put back bit by bit.

    Those of torch on the CPU and on `device`, of Python's `random`, and of numpy's legacy generator.
    """
    _, words, position, has_normal, normal = np.random.get_state()  # noqa: NPY002 - libraries still draw from it
    _, python_words, python_normal = random.getstate()
    # Doubles hold 32-bit words exactly.
    numbers = [*words, position, has_normal, normal]
    python_numbers = [*python_words, python_normal is not None, python_normal or 0.0]
    states = {
        "torch": torch.get_rng_state(),
        "numpy": torch.tensor(numbers, dtype=torch.float64),
        "python": torch.tensor(python_numbers, dtype=torch.float64),
    }
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore_random_states(states: dict[str, Tensor], device: torch.device) -> None:
    """Put back what `random_states` returned; a GPU's state is left out where there is none."""
    torch.set_rng_state(states["torch"])
    words = states["numpy"][:NUMPY_WORDS].numpy().astype(np.uint32)
    position, has_normal, normal = states["numpy"][NUMPY_WORDS:].tolist()
    np.random.set_state(("MT19937", words, int(position), int(has_normal), normal))  # noqa: NPY002
    python_words = tuple(map(int, states["python"][:PYTHON_WORDS].tolist()))
    has_normal, normal = states["python"][PYTHON_WORDS:].tolist()
    random.setstate((PYTHON_VERSION, python_words, normal if has_normal else None))
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
