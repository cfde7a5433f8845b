"""Gradients of an update of several trainings, in this process or shared with others.

As a program, ``python -m tests.support.gradients TRAININGS FOLDER`` is one of several processes; TRAININGS is a JSON
file, name -> (stage, options).
"""

import importlib
import json
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from cort.runtime.cli import parser_of
from cort.runtime.command_line import parse_options, take
from cort.training import guide, microbatches
from cort.training.loop import make_deterministic, share_of
from cort.training.microbatches import Forward, add_gradients, make_accelerator
from cort.training.settings import TrainingSettings

EXAMPLES = 20


def gradients_of(stage, argv):
    """Compute the loss of an update, and the gradients of all weights that have one, without dropout."""
    options_class = importlib.import_module(f"cort.{stage}").Options
    options = parse_options(options_class, parser_of(options_class).parse_args(argv))
    make_deterministic(options.seed, 1)
    module = importlib.import_module(f"cort.training.{'triples' if stage == 'train' else 'pairs'}")
    # Several parts for each process.
    with patch.object(guide, "TEXTS_AT_ONCE", 7):
        task = module.make_task(options)
    model, accelerator = task.model.double().train(), make_accelerator("fp32")
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    forward = Forward(model, take(TrainingSettings, options), accelerator)
    total = torch.zeros((), dtype=torch.float64)
    for batch in task.split(np.arange(EXAMPLES), options.batch_size, forward.room):
        share = share_of(task.losses(batch, forward), batch, EXAMPLES)
        accelerator.backward(share)
        total += share.detach()
    add_gradients(model.parameters(), accelerator)
    return {"loss": total} | {name: one.grad for name, one in model.named_parameters() if one.grad is not None}


def sums_of_some(accelerator):
    """Add gradients that all processes have, all but the first, or none; of two types, and more than fit at once."""
    rank, shapes = accelerator.process_index, {"all": (3, 2), "some": (4,), "none": (2,), "half": (2, 2), "long": (9,)}
    weights = {name: nn.Parameter(torch.zeros(shape)) for name, shape in shapes.items()}
    weights["half"] = nn.Parameter(torch.zeros(2, 2, dtype=torch.bfloat16))
    for name, weight in weights.items():
        if name != "none" and (rank or name != "some"):
            weight.grad = torch.full_like(weight, rank + 1.0)
    microbatches.ADDED_AT_ONCE = 8
    add_gradients(weights.values(), accelerator)
    return {name: weight.grad for name, weight in weights.items() if weight.grad is not None}


def main(trainings, folder):
    computed = {name: gradients_of(*training) for name, training in json.loads(Path(trainings).read_text()).items()}
    accelerator = make_accelerator("fp32")
    computed["sums"] = sums_of_some(accelerator)
    for name, gradients in computed.items():
        save_file(gradients, Path(folder) / f"{name}.{accelerator.process_index}.safetensors")


if __name__ == "__main__":
    main(*sys.argv[1:])
