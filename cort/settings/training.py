"""Hyper-parameters of training."""

from __future__ import annotations

from typing import Literal

from cort.runtime.keys import section, setting
from cort.settings.fields import Precision


@section
class Epochs:
    """How often training examples are drawn."""

    epochs: int = setting(10, ge=1, le=100_000)
    """Passes over the training queries, each with newly drawn examples; with a file of triples, passes over the file.
    """


@section
class Optimization:
    """Hyper-parameters that the stages of training take as options."""

    batch_size: int = setting(6, "examples per mini-batch", ge=1, le=100_000)
    """Examples per mini-batch; in CoRT the passages of the other examples are negatives too."""
    gradient_accumulation: int = setting(100, "mini-batches per update", ge=1, le=100_000)
    """Mini-batches per update."""
    learning_rate: float = setting(2e-05, gt=0, le=10)
    """Peak learning rate of AdamW."""
    weight_decay: float = setting(0.1, ge=0, le=100)
    """Decoupled weight decay."""
    decay: Literal["all", "weights"] = setting("all", "weights: no decay of biases and layer normalisation")
    """Which parameters decay: `all`, or `weights`, that is, no biases and no layer normalisation."""
    warmup_updates: float = setting(20, "below 1: a share of all updates", ge=0, le=100_000_000)
    """Updates of linear warm-up; below 1, a share of all updates."""
    schedule: Literal["linear", "constant"] = setting("linear", "learning rate after the warm-up; linear: down to 0")
    """Learning rate after the warm-up: `linear` decay to 0, or `constant`."""
    validate_every: float = setting(
        100, "updates between validations; below 1: a share of all updates", gt=0, le=100_000_000
    )
    """Updates between two validations; below 1, a share of all updates."""
    max_gradient_norm: float = setting(0, "0: no clipping", ge=0, le=1_000_000)
    """Clip gradients to this norm; 0 for no clipping."""
    precision: Precision = "fp32"
    """Arithmetic of training; losses are always computed in single precision."""
    tokens_at_once: int = setting(8192, "whose activations are kept: memory and speed", "N", ge=1, le=100_000_000)
    """Padded tokens that are encoded together on each GPU, from as many mini-batches of an update as fit. Their
    activations take about 80 bytes per token, layer and hidden unit in single precision."""
    gradient_checkpointing: bool = setting(False, "compute activations twice, for less memory")
    """Recompute activations in the backward pass instead of keeping them: `tokens_at_once` no longer limits the size of
    mini-batches, and training takes a third longer."""
    adam_epsilon: float = setting(1e-06, gt=0, le=1)
    """Epsilon of AdamW."""
    best_model_metric: str = setting("loss", "best model by: loss, RR@10, ...", "MEASURE", measures=True)
    """How the best model is chosen: by validation `loss`, or by a measure such as RR@10 over the validation queries and
    a pool of passages (for a re-ranker, over each query's candidates)."""
    pool_depth: int = setting(20, "candidates per validation query", "N", ge=1, le=100_000)
    """Results of each validation query that are in the pool, besides all relevant passages; they come from the (first)
    run that provides the negatives."""
    patience: int = setting(
        0, "end after this many validations without a better model; 0: never", "N", ge=0, le=1_000_000
    )
    """End training after this many validations without a better model; the model before training counts, too. 0 for
    never."""
    require_gain: bool = setting(False, "fail if the best model is no better than its start, or than not re-ranking")
    """Fail if the best model is no better in validation than the model before training or, for a re-ranker chosen by a
    measure, than the candidates in their original order. `selection.json` next to the model records this in any case.
    """
    compile: bool = setting(False, "with torch.compile")
    """Use torch.compile, which can only pay off on GPUs."""


@section
class Training(Optimization, Epochs):
    """Hyper-parameters of the optimisation."""

    gpus: int = setting(1, ge=1, le=1024, affects_results=False)
    """GPUs of this training, one process each."""
