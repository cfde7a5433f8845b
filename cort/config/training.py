"""Hyper-parameters of training."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from cort.config.fields import PrecisionOrAuto
from cort.runtime.sections import MEASURE, SPEED, Maybe, Section, Text


class Epochs(Section):
    """How often training examples are drawn."""

    epochs: int = Field(10, ge=1, le=100_000)
    """Passes over the training queries, each with newly drawn examples, or over a file of triples."""


class Optimization(Section):
    """Hyper-parameters that the stages of training take as options."""

    batch_size: int = Field(6, ge=1, le=100_000)
    """Examples per mini-batch; in CoRT the passages of the other examples are negatives, too."""
    gradient_accumulation: int = Field(100, ge=1, le=100_000)
    """Mini-batches per update."""
    learning_rate: float = Field(2e-05, gt=0, le=10)
    """Peak learning rate of AdamW."""
    weight_decay: float = Field(0.1, ge=0, le=100)
    """Decoupled weight decay."""
    decay: Literal["all", "weights"] = "all"
    """Parameters that decay: `all`, or `weights`, without biases and layer normalization."""
    warmup_updates: float = Field(20.0, ge=0, le=100_000_000)
    """Updates of linear warm-up; below 1, a share of all updates."""
    schedule: Literal["linear", "constant"] = "linear"
    """Learning rate after the warm-up: `linear` decay to 0, or `constant`."""
    validate_every: float = Field(100.0, gt=0, le=100_000_000)
    """Updates between validations; below 1, a share of all updates."""
    max_gradient_norm: float = Field(0.0, ge=0, le=1_000_000)
    """Clip gradients to this norm; 0: no clipping."""
    precision: PrecisionOrAuto = "fp32"
    """Arithmetic of training; losses are always computed in fp32. `tf32` is fp32 with products of 10-bit mantissas,
    on NVIDIA GPUs. `auto` is bf16 if the machine that begins the training has instructions for it, else fp32."""
    tokens_at_once: int | None = Field(None, ge=1, le=100_000_000)
    """Tokens encoded together on each GPU, with padding where layers read it, from as many mini-batches as fit.
    Activations take about 80 bytes per token, layer and hidden unit in fp32. null: 8192 or, on GPUs, what half of the
    memory holds."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass, as GradCache does: saves memory, takes a third longer;
    `tokens_at_once` no longer limits the mini-batch."""
    adam_epsilon: float = Field(1e-06, gt=0, le=1)
    """Epsilon of AdamW."""
    best_model_metric: Annotated[Text, MEASURE] = "loss"
    """How the best model is chosen: by validation `loss`, or by a measure such as RR@10 over validation queries and a
    pool of passages (for a re-ranker, over each query's candidates)."""
    pool_depth: int = Field(20, ge=1, le=100_000)
    """Results per validation query in the pool, besides all relevant passages, from the (first) run that provides the
    negatives."""
    patience: int = Field(0, ge=0, le=1_000_000)
    """Stop after this many validations without a better model, the initial one included; 0: never."""
    require_gain: bool = False
    """Fail if the best model does not beat the initial model or, for a re-ranker chosen by a measure, the candidates in
    their original order."""
    compile: bool = False
    """Use torch.compile, for GPUs."""
    deterministic: bool = True
    """The same machine gives the same weights; `false` lets GPUs take faster algorithms."""


class Lora(Section):
    """Low-rank adapters."""

    rank: int = Field(ge=1, le=4096)
    """Size of the adapters (LoRA; Hu et al., 2022) of all linear layers of the transformer, the only weights that are
    trained beside layers after it; needs the package peft. The saved model has them merged into its weights."""


class Training(Optimization, Epochs):
    """Hyper-parameters of the optimisation."""

    lora: Maybe[Lora] = None
    """Train adapters, with less memory, at a learning rate about ten times higher."""

    gpus: Annotated[int, SPEED] = Field(1, ge=1, le=1024)
    """GPUs of this training, one process each."""
