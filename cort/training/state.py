"""All that a training must remember to go on as if nothing had happened: taken from its objects, and put back."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor, nn

from cort.training.checkpoints import Checkpoint, part, with_prefix
from cort.training.parallel.process_group import Ranks
from cort.training.random_states import random_states, restore_random_states
from cort.training.selection import Validation

MODEL, OPTIMIZER, BEST, RANDOM = "model", "optimizer", "best", "random"


@dataclass(frozen=True)
class CurvePoint:
    """One row of the curve: `loss` is a mean since the row before, what is validated None between validations."""

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
        self.ranks = Ranks(accelerator)
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
            for rank, one in enumerate(self.ranks.gather(mine)):
                tensors[f"{RANDOM}.{rank}.{name}"] = one.cpu()
        return Checkpoint(self.progress.step, tensors, state)

    def restore(self, found: Checkpoint | None) -> bool:
        """Go back to the checkpoint that the first process found, if it found one."""
        best = part(BEST, found.tensors) if found else {}
        shared = {name: one for name, one in found.tensors.items() if not name.startswith(f"{BEST}.")} if found else {}
        tensors, state = self.ranks.share(shared, found.state if found else None)
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
        mine = part(f"{RANDOM}.{self.ranks.rank}", tensors)
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
