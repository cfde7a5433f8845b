"""What both training stages do around the loop: chance fixed, checkpoints found, models and curve written."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from cort.formats.artifacts import write_artifact
from cort.models.transformer import identity, model_fingerprint
from cort.system.files import atomic_file
from cort.system.options import read_options
from cort.training.checkpoints import Checkpoints
from cort.training.loop import Task, fit
from cort.training.settings import TrainingOptions, TrainingSettings
from cort.training.state import CurvePoint

# Options that say where things are, how fast they go and what is remembered.
NOT_DECISIVE = (
    *("output", "output_curve", "output_selection", "events", "threads", "processes"),
    *("checkpoints", "checkpoint_every", "require_gain"),
)


def train(module: str, options: TrainingOptions, make_task: Callable[[Any], Task]) -> None:
    """Train as the options say, write models and curve, and remove the checkpoints.

    :param module: the stage; `make_task` makes its model, after chance was fixed.
    """
    from accelerate import PartialState

    make_deterministic(options.seed, options.threads)
    task = make_task(options)
    checkpoints: Checkpoints | None = None
    if options.checkpoints is not None:
        identify = partial(_identity, module, options, task.examples)
        checkpoints = Checkpoints(options.checkpoints, identify, options.checkpoint_every)
    curve, selection = fit(task, read_options(TrainingSettings, options), checkpoints, options.events)
    if PartialState().is_main_process:
        write_curve(options.output_curve, curve)
        write_artifact(options.output_selection, selection)
        if checkpoints:
            checkpoints.remove()


def make_deterministic(seed: int, threads: int) -> None:
    """Fix every source of randomness; the same machine then gives the same weights."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    # Not `warn_only`: attention then has no deterministic way back on a GPU (`_Loop._or_anew` warns in its stead).
    torch.use_deterministic_algorithms(True)
    # Filling new tensors halves the speed here, and no stage reads memory it did not write.
    deterministic: Any = torch.utils.deterministic
    deterministic.fill_uninitialized_memory = False


def write_curve(path: str | Path, curve: list[CurvePoint]) -> None:
    """Write the curve as CSV, absent values empty."""
    with atomic_file(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as handle:
        csv.writer(handle, lineterminator="\n").writerows([CurvePoint._fields, *curve])


def _identity(module: str, options: TrainingOptions, examples: int) -> str:
    """Name the training by all that decides its result; where it runs, and on how many processes, may change."""
    values: dict[str, Any] = vars(options)
    files = options.files()
    decisive = {name: value for name, value in values.items() if name not in {*files, *NOT_DECISIVE, "base_model"}}
    if decisive.get("start"):
        decisive["start"] = model_fingerprint(decisive["start"])
    return identity(module, decisive | {"examples": examples}, [values[name] for name in files], options.base_model)
