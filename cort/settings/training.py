"""Hyper-parameters of training."""

from __future__ import annotations

from typing import Literal

from cort.settings.fields import Precision, section, setting


@section
class Training:
    """Hyper-parameters of the optimisation."""

    epochs: int = setting(10, ge=1, le=100_000)
    """Times each training query is seen, with newly drawn examples; with a file of triples, passes over it."""
    batch_size: int = setting(6, ge=1, le=100_000)
    """Examples per mini-batch; in CoRT the passages of the other examples are negatives too."""
    gradient_accumulation: int = setting(100, ge=1, le=100_000)
    """Mini-batches per update."""
    learning_rate: float = setting(2e-05, gt=0, le=10)
    """Peak learning rate of AdamW."""
    weight_decay: float = setting(0.1, ge=0, le=100)
    """Decoupled weight decay."""
    decay: Literal["all", "weights"] = "all"
    """What it applies to: `all` parameters, or `weights`, without biases and layer normalisation."""
    warmup_updates: float = setting(20, ge=0, le=100_000_000)
    """Updates of linear warm-up, below 1 a share of all."""
    schedule: Literal["linear", "constant"] = "linear"
    """Learning rate after the warm-up: `linear` decay to 0, or `constant`."""
    validate_every: float = setting(100, gt=0, le=100_000_000)
    """Updates between two validations, below 1 a share of all."""
    max_gradient_norm: float = setting(0, ge=0, le=1_000_000)
    """Clip gradients to this norm; 0 does not clip."""
    precision: Precision = "fp32"
    """Arithmetic of training; losses are always in single precision."""
    tokens_at_once: int = setting(8192, ge=1, le=100_000_000)
    """Padded tokens that are encoded together on each GPU, from as many mini-batches of an update as fit. Their
    activations take about 80 bytes per token, layer and unit of width in single precision."""
    gradient_checkpointing: bool = False
    """Recompute activations for the gradients instead of keeping them: mini-batches of any size fit into
    `tokens_at_once`, for a third more time."""
    adam_epsilon: float = setting(1e-06, gt=0, le=1)
    """Added to the root of AdamW's second moment."""
    best_model_metric: str = "loss"
    """Criterion for the best model: `loss`, or a measure such as RR@10 over validation queries and a pool of passages
    (for a re-ranker, each query's candidates)."""
    pool_depth: int = setting(20, ge=1, le=100_000)
    """First results of each validation query, in the (first) run that provides the negatives, that form the pool with
    the relevant passages."""
    patience: int = setting(0, ge=0, le=1_000_000)
    """End training after so many validations without a better model than before, the start included; 0 for never."""
    require_gain: bool = False
    """Fail if the best model is no better in validation than before training or, for a re-ranker chosen by a measure,
    than leaving the candidates in their order. `selection.json` beside the model says so in any case."""
    compile: bool = False
    """Use torch.compile, which can only pay off on GPUs."""
    gpus: int = setting(1, ge=1, le=1024, affects_results=False)
    """GPUs of this training, one process each."""
