"""What both training stages do around the loop: files checked, chance fixed, checkpoints found, the curve written."""

from __future__ import annotations

import argparse
import csv
import os
from collections.abc import Sequence
from dataclasses import astuple, fields
from functools import partial
from pathlib import Path
from typing import Any

import torch

from cort.models.cache_key import identity
from cort.models.transformer import model_fingerprint
from cort.system.files import atomic_file
from cort.training.checkpoints import Checkpoints
from cort.training.loop import Task, fit
from cort.training.settings import settings_from
from cort.training.state import CurvePoint

# Options that say where things are, how fast they go and what is remembered.
NOT_DECISIVE = ("log", "output", "output_curve", "events", "threads", "processes", "checkpoints", "checkpoint_every")


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
    curve = fit(task, settings_from(args), checkpoints, args.events)
    if PartialState().is_main_process:
        write_curve(args.output_curve, curve)
        if checkpoints:
            checkpoints.remove()


def _identity(task: Task, args: argparse.Namespace, module: str, files: Sequence[str]) -> str:
    """Name the training by all that decides its result; where it runs, and on how many processes, may change."""
    others = {*files, *NOT_DECISIVE, "base_model", "start"}
    options = {name: value for name, value in vars(args).items() if name not in others}
    options |= {"examples": task.examples}
    if getattr(args, "start", None):
        options["start"] = model_fingerprint(args.start)
    return identity(module, options, [getattr(args, name) for name in files], args.base_model)
