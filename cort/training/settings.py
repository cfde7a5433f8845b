"""Hyper-parameters of a training, and the options of the training stages except those of their losses; no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from cort.models.settings import EncoderSettings, PairSettings
from cort.settings.collection import Split
from cort.settings.fields import SEED, Precision
from cort.settings.training import Training
from cort.system.errors import input_error
from cort.system.options import optional, required, thread_count
from cort.training.losses import ENCODER_OBJECTIVES, RERANKER_OBJECTIVES
from cort.training.outcome import LOSS

#: metavars of the options that name input files
FILES = ("PARQUET", "ARROW", "TREC")


@dataclass(frozen=True)
class TrainingSettings:
    """Hyper-parameters of one training.

    Each process keeps the activations of `tokens_at_once` padded tokens for the backward pass. With
    `gradient_checkpointing`, which takes a third more time, mini-batches may be of any size.
    """

    batch_size: int = optional(Training.batch_size, "examples per mini-batch")
    gradient_accumulation: int = optional(Training.gradient_accumulation, "mini-batches per update")
    learning_rate: float = optional(Training.learning_rate)
    weight_decay: float = optional(Training.weight_decay)
    decay: Literal["all", "weights"] = optional(Training.decay, "weights: no decay of biases and layer normalisation")
    warmup_updates: float = optional(Training.warmup_updates, "below 1: a share of all updates")
    validate_every: float = optional(
        Training.validate_every, "updates between validations; below 1: a share of all updates"
    )
    max_gradient_norm: float = optional(Training.max_gradient_norm, "0: no clipping")
    precision: Precision = optional(Training.precision)
    seed: int = optional(SEED)
    tokens_at_once: int = optional(Training.tokens_at_once, "whose activations are kept: memory and speed", "N")
    gradient_checkpointing: bool = optional(
        Training.gradient_checkpointing, "compute activations twice, for less memory"
    )
    adam_epsilon: float = optional(Training.adam_epsilon)
    schedule: Literal["linear", "constant"] = optional(
        Training.schedule, "learning rate after the warm-up; linear: down to 0"
    )
    best_model_metric: str = optional(Training.best_model_metric, "best model by: loss, RR@10, ...", "MEASURE")
    patience: int = optional(Training.patience, "end after this many validations without a better model; 0: never", "N")
    require_gain: bool = optional(
        Training.require_gain, "fail if the best model is no better than its start, or than not re-ranking"
    )
    compile: bool = optional(Training.compile, "with torch.compile")

    def of(self, updates: int, per_epoch: float) -> TrainingSettings:
        """Return the settings of a training of this many updates, with shares turned into numbers of updates.

        A share of a short training validates after every second update, unless an epoch is a single update.
        """
        warmup, every = (
            round(value * updates) if value < 1 else int(value) for value in (self.warmup_updates, self.validate_every)
        )
        least = 2 if self.validate_every < 1 < per_epoch else 1
        return replace(self, warmup_updates=warmup, validate_every=max(every, least))

    @property
    def by_measure(self) -> bool:
        """Whether a measure, not the loss, chooses the best model."""
        return self.best_model_metric != LOSS


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(TrainingSettings):
    """Options that encoders and re-rankers share."""

    base_model: str = required("FOLDER")
    passages: str = required("ARROW", "token cache")
    threads: int = thread_count()
    processes: int = optional(
        1,
        "GPUs to use, one process each; without any GPU N means 1, but with ACCELERATE_USE_CPU=true in the "
        "environment N processes share the CPU",
        "N",
    )
    checkpoints: str | None = optional(
        None,
        "write checkpoints here, resume from the newest, and remove them at the end; SIGTERM and SIGUSR1 then "
        "end the training with a checkpoint and status 75, Ctrl-C with status 130",
        "FOLDER",
    )
    checkpoint_every: float = optional(600.0, "time between two checkpoints", "SECONDS")
    output: str = required("FOLDER", "gets best/ and last/")
    output_curve: str = required("CSV")
    output_selection: str = required("JSON", "how the best model was chosen, and what it gained")
    events: str | None = optional(None, "gets the curve for TensorBoard during the training", "FOLDER")
    queries: str = required("ARROW", "token cache of the training queries")
    validation_queries: str = required("ARROW")
    validation_run: str | None = optional(None, "with a measure: candidates for the pool", "TREC")
    validation_qrels: str | None = optional(None, "with a measure, or a loss that needs judgements", "PARQUET")
    relevance_level: int = optional(Split.relevance_level, "lowest grade that counts as positive")
    pool_depth: int = optional(Training.pool_depth, "candidates per validation query", "N")

    def files(self) -> list[str]:
        """Names of the options whose files affect the result."""
        return [
            option.name
            for option in fields(self)
            if option.metadata.get("metavar") in FILES and getattr(self, option.name)
        ]


@dataclass(frozen=True, kw_only=True)
class EncoderTraining(EncoderSettings, TrainingOptions):
    """Options of training an encoder on triples."""

    loss: str = field(default=next(iter(ENCODER_OBJECTIVES)), metadata={"choices": tuple(ENCODER_OBJECTIVES)})
    triples: str = required("PARQUET")
    validation_triples: str = required("PARQUET")
    qrels: str | None = optional(None, "for a loss that needs judgements", "PARQUET")
    teacher_scores: str | None = optional(None, "of the triples' pairs, for margin_mse", "PARQUET")
    validation_teacher_scores: str | None = optional(None, metavar="PARQUET")
    start: str | None = optional(None, "an encoder whose weights to start from", "FOLDER")


@dataclass(frozen=True, kw_only=True)
class RerankerTraining(PairSettings, TrainingOptions):
    """Options of training a re-ranker on pairs."""

    loss: str = field(default=next(iter(RERANKER_OBJECTIVES)), metadata={"choices": tuple(RERANKER_OBJECTIVES)})
    pairs: str = required("PARQUET")
    validation_pairs: str = required("PARQUET")


def check_options(options: TrainingOptions, needed: Mapping[str, bool]) -> None:
    """Refuse numbers that must be positive but are not, missing files, and files that have no effect.

    :param needed: for each optional file, whether the chosen loss and metric need it.
    """
    counts = ("batch_size", "gradient_accumulation", "validate_every", "tokens_at_once", "pool_depth", "processes")
    rates = ("dimension", "learning_rate", "adam_epsilon", "temperature", "relevance_level")
    chosen: dict[str, Any] = vars(options)
    for name in (*counts, *rates):
        if chosen.get(name, 1) <= 0:
            raise input_error(_option(name), str(chosen[name]), "more than 0", "fix it")
    for name, wanted in {**needed, "validation_run": options.by_measure}.items():
        given = bool(chosen[name])
        if given != wanted:
            place = " and ".join(f"{_option(key)} {chosen[key]}" for key in ("loss", "best_model_metric"))
            found, expected = ("a file", "none") if given else ("none", "a file")
            fix = "name it" if wanted else "leave it out"
            raise input_error(_option(name), found, f"{expected} with {place}", fix)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def needs_judgements(loss: str) -> bool:
    """Whether a loss must know all relevant passages of a batch."""
    return ENCODER_OBJECTIVES[loss].judgements


def leaves_out(loss: str) -> bool:
    """Whether a loss can leave out negatives that may be relevant."""
    return ENCODER_OBJECTIVES[loss].guided


def needs_teacher(loss: str) -> bool:
    """Whether a loss learns from the scores of a cross-encoder."""
    return ENCODER_OBJECTIVES[loss].teacher
