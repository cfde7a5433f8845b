"""Hyper-parameters of training, and options of the training stages except those of losses; imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from cort.formats.cleaning import Form
from cort.models.settings import EncoderSettings, PairSettings
from cort.runtime.errors import input_error
from cort.runtime.options import option_of, optional, options_class, required, thread_count
from cort.settings.collection import Split
from cort.settings.fields import General, as_key
from cort.settings.models import BaseModel, Encoder, Sparsity
from cort.settings.training import Optimization
from cort.training.losses import ENCODER_OBJECTIVES, RERANKER_OBJECTIVES
from cort.training.outcome import LOSS

#: metavars of the options that name input files
FILES = ("PARQUET", "ARROW", "TREC")
#: options that affect paths, speed, checkpoints and failure, but not the weights, and those that name folders
NOT_DECISIVE = (
    *("output", "output_curve", "output_selection", "events", "threads", "processes"),
    *("checkpoints", "checkpoint_every", "require_gain", "base_model", "start"),
)


@dataclass(frozen=True)
class TrainingSettings(Optimization):
    """Hyper-parameters of one training.

    Each process keeps the activations of `tokens_at_once` padded tokens for the backward pass. With
    `gradient_checkpointing`, which takes a third more time, mini-batches may be of any size.
    """

    seed: int = as_key(General, "seed")

    def of(self, updates: int, per_epoch: float) -> TrainingSettings:
        """Return the settings of a training of this many updates, with shares turned into numbers of updates.

        In a short training, a share means at least every second update, unless an epoch is a single update.
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


@options_class
class TrainingOptions(TrainingSettings):
    """Options that encoders and re-rankers share."""

    base_model: str = required("FOLDER")
    cleaning: Form = as_key(BaseModel, "cleaning", "of all texts, which the saved tokenizer does, too")
    passages: str = required("ARROW", "token cache")
    threads: int = thread_count()
    processes: int = optional(
        1,
        "GPUs to use, one process each; without any GPU N means 1, but with ACCELERATE_USE_CPU=true in the "
        "environment N processes share the CPU",
        "N",
        ge=1,
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
    relevance_level: int = as_key(Split, "relevance_level")

    def decisive(self) -> dict[str, Any]:
        """Return the options that affect the weights, but for files and folders."""
        others = {*self.files(), *NOT_DECISIVE}
        return {option.name: getattr(self, option.name) for option in fields(self) if option.name not in others}

    def files(self) -> list[str]:
        """List the options whose files affect the result."""
        return [
            option.name
            for option in fields(self)
            if option.metadata.get("metavar") in FILES and getattr(self, option.name)
        ]


@options_class
class EncoderTraining(EncoderSettings, Sparsity, TrainingOptions):
    """Options of training an encoder on triples."""

    kind: Literal["dense", "sparse"] = as_key(Encoder, "kind")
    query_encoder: Literal["model", "none"] = as_key(Encoder, "queries", "of a sparse encoder")
    loss: str = optional(next(iter(ENCODER_OBJECTIVES)), choices=tuple(ENCODER_OBJECTIVES))
    triples: str = required("PARQUET")
    validation_triples: str = required("PARQUET")
    qrels: str | None = optional(None, "for a loss that needs judgements", "PARQUET")
    teacher_scores: str | None = optional(None, "of the triples' pairs, for margin_mse", "PARQUET")
    validation_teacher_scores: str | None = optional(None, metavar="PARQUET")
    start: str | None = optional(None, "an encoder whose weights to start from", "FOLDER")


@options_class
class RerankerTraining(PairSettings, TrainingOptions):
    """Options of training a re-ranker on pairs."""

    loss: str = optional(next(iter(RERANKER_OBJECTIVES)), choices=tuple(RERANKER_OBJECTIVES))
    pairs: str = required("PARQUET")
    validation_pairs: str = required("PARQUET")


def check_options(options: TrainingOptions, needed: Mapping[str, bool]) -> None:
    """Refuse missing files, and files that have no effect.

    :param needed: for each optional file, whether the chosen loss and metric need it.
    """
    chosen: dict[str, Any] = vars(options)
    for name, wanted in {**needed, "validation_run": options.by_measure}.items():
        if bool(chosen[name]) != wanted:
            found, expected, fix = ("none", "a file", "name it") if wanted else ("a file", "none", "leave it out")
            choices = f"--loss {chosen['loss']} and --best-model-metric {options.best_model_metric}"
            raise input_error(option_of(name), found, f"{expected} with {choices}", fix)
