"""Check and measure in a process that may die of it; its standard output has a line for each start and each result.

Usage: python -m scripts.gpu.worker --folder FOLDER --device cuda --size full [--only NAME... | --left NAME...]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from cort.training.parallel import die_with
from scripts.gpu.results import Result

# A machine on which the checks themselves are tried is a slow one.
PATIENCE = {"full": 1, "small": 5}


def main(argv: Sequence[str] | None = None) -> int:
    """Work through items; what libraries print goes to standard error."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("folder", "device", "size"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--only", nargs="*", default=[], help="items whose name begins so; without any, all")
    parser.add_argument("--left", nargs="*", default=[], help="items by their whole names")
    args = parser.parse_args(argv)
    die_with(os.getppid())
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as lines:
        os.dup2(2, 1)
        work(args, lines)
    return 0


def work(args: argparse.Namespace, lines: TextIO) -> None:
    """Tell what there is, then go from item to item."""
    # Before libraries read it: nothing is asked of a network.
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # As a training sets it, which here is not what uses the GPU first.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    say(lines, start="the program")
    from scripts.gpu.plan import ITEMS
    from scripts.gpu.world import SIZES, World, make_world

    begins = tuple(args.only) or ("",)
    say(lines, machine=machine(args.device))
    if missing := without_device(args.device):
        say(lines, missing=missing)
        return
    world = World(Path(args.folder), args.device, SIZES[args.size])
    if not world.path("made").exists():
        make_world(world.folder, world.size)
        world.path("made").touch()
    chosen = [one for one in ITEMS if one.name in args.left or (not args.left and one.name.startswith(begins))]
    say(lines, items=[(one.name, one.kind, one.seconds * PATIENCE[args.size]) for one in chosen])
    for item in chosen:
        say(lines, start=item.name)
        free(args.device)
        started = time.perf_counter()
        try:
            result = Result.of(item.name, item.kind, item.work(world), time.perf_counter() - started)
        except Exception:
            error = "\n".join(traceback.format_exc().strip().splitlines()[-12:])
            result = Result.failed(item.name, item.kind, error, time.perf_counter() - started)
        say(lines, result=asdict(result))
        if "CUDA error" in result.error:
            # After one of these, nothing works in this process any more.
            return


def without_device(device: str) -> str:
    """Say that torch finds no GPU where one is to be checked."""
    import torch

    if device == "cpu" or torch.cuda.is_available():
        return ""
    return f"torch {torch.__version__} finds no CUDA device; --device cpu --size small tries the checks themselves"


def free(device: str) -> None:
    """Give back the memory of what went before."""
    gc.collect()
    if device != "cpu":
        import torch

        torch.cuda.empty_cache()


def say(lines: TextIO, **what: Any) -> None:
    """Write a line."""
    lines.write(json.dumps(what) + "\n")
    lines.flush()


def machine(device: str) -> dict[str, Any]:
    """Versions of libraries, and the GPU."""
    import accelerate
    import numpy
    import pyarrow
    import torch
    import transformers

    modules = (torch, transformers, accelerate, numpy, pyarrow)
    found: dict[str, Any] = {module.__name__: module.__version__ for module in modules}
    if device != "cpu" and torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        found |= {"device": properties.name, "memory, GB": round(properties.total_memory / 2**30, 1)}
        found |= {"CUDA": torch.version.cuda, "capability": ".".join(map(str, torch.cuda.get_device_capability(0)))}
    return found


if __name__ == "__main__":
    sys.exit(main())
