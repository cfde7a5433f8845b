"""Hyper-parameters of training, and options of the training stages except those of losses; imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from cort.config.collection import AnySplit
from cort.config.fields import Seed
from cort.config.models import Cleaned, DrawnTriples, QueryEncoding, Sparsity, Width
from cort.config.training import Lora, Optimization
from cort.formats.cleaning import Form
from cort.models.settings import EncoderSettings, PairSettings
from cort.runtime.command_line import option_of, places_of
from cort.runtime.errors import input_error
from cort.runtime.sections import (
    INCREASING,
    ArrowFile,
    CsvFile,
    FolderPath,
    JsonFile,
    Maybe,
    ParquetFile,
    Several,
    Text,
    Threads,
    TrecFile,
    same_as,
)
from cort.training.losses import ENCODER_OBJECTIVES, RERANKER_OBJECTIVES
from cort.training.outcome import LOSS

#: what is in the files that options name as inputs
FILES = ("PARQUET", "ARROW", "TREC")
#: options that affect paths, speed, checkpoints and failure, but not the weights, and those that name folders
NOT_DECISIVE = (
    *("output", "output_curve", "output_selection", "events", "threads", "processes"),
    *("checkpoints", "checkpoint_every", "require_gain", "base_model", "start", "data"),
)


class TrainingSettings(Optimization):
    """Hyper-parameters of one training.

    Each process keeps the activations of `tokens_at_once` padded tokens for the backward pass. With
    `gradient_checkpointing`, which takes a third more time, mini-batches may be of any size.
    """

    seed: int = same_as(Seed, "seed")

    def of(self, updates: int, per_epoch: float) -> TrainingSettings:
        """Return the settings of a training of this many updates, with shares turned into numbers of updates.

        In a short training, a share means at least every second update, unless an epoch is a single update.
        """
        warmup, every = (
            round(value * updates) if value < 1 else int(value) for value in (self.warmup_updates, self.validate_every)
        )
        least = 2 if self.validate_every < 1 < per_epoch else 1
        return self.model_copy(update={"warmup_updates": warmup, "validate_every": max(every, least)})

    @property
    def by_measure(self) -> bool:
        """Whether a measure, not the loss, chooses the best model."""
        return self.best_model_metric != LOSS


class TrainingOptions(TrainingSettings):
    """Options that encoders and re-rankers share."""

    base_model: FolderPath
    cleaning: Form = same_as(Cleaned, "cleaning")
    """Of all texts, which the saved tokenizer does, too."""
    passages: ArrowFile
    """Token cache."""
    threads: Threads = 1
    processes: int = Field(1, ge=1)
    """GPUs to use, one process each; without any GPU N means 1, but with ACCELERATE_USE_CPU=true in the environment N
    processes share the CPU."""
    checkpoints: Maybe[FolderPath] = None
    """Write checkpoints here, resume from the newest, and remove them at the end; SIGTERM and SIGUSR1 then end the
    training with a checkpoint and status 75, Ctrl-C with status 130."""
    checkpoint_every: float = 600.0
    """Time between two checkpoints."""
    output: FolderPath
    """Gets best/ and last/."""
    data: Maybe[Text] = None
    """Name of the data, for the models' cards."""
    output_curve: CsvFile
    output_selection: JsonFile
    """How the best model was chosen, and what it gained."""
    events: Maybe[FolderPath] = None
    """Gets the curve for TensorBoard during the training."""
    queries: ArrowFile
    """Token cache of the training queries."""
    validation_queries: ArrowFile
    lora_rank: Maybe[int] = same_as(Lora, "rank", default=None)
    validation_run: Maybe[TrecFile] = None
    """With a measure: candidates for the pool."""
    validation_qrels: Maybe[ParquetFile] = None
    """With a measure, or a loss that needs judgements."""
    relevance_level: int = same_as(AnySplit, "relevance_level")

    def decisive(self) -> dict[str, Any]:
        """Return the options that affect the weights, but for files and folders."""
        others = {*self.files(), *NOT_DECISIVE}
        return {name: value for name, value in self if name not in others}

    def files(self) -> list[str]:
        """List the options whose files affect the result."""
        return [place.option for place in places_of(self) if place.form in FILES]


class EncoderTraining(EncoderSettings, Sparsity, TrainingOptions):
    """Options of training an encoder on triples."""

    kind: Literal["dense", "sparse"] = "dense"
    """One vector per text, or weights of the vocabulary's tokens."""
    query_encoder: Literal["model", "none"] = same_as(QueryEncoding, "queries")
    """Of a sparse encoder."""
    loss: Literal[*ENCODER_OBJECTIVES] = next(iter(ENCODER_OBJECTIVES))  # type: ignore[valid-type]
    matryoshka: Annotated[Several[Width], INCREASING] = ()
    """The loss is added up over so many first numbers of the vectors, and over all."""
    triples: ParquetFile
    validation_triples: ParquetFile
    negatives: int = same_as(DrawnTriples, "negatives")
    qrels: Maybe[ParquetFile] = None
    """For a loss that needs judgements."""
    teacher_scores: Maybe[ParquetFile] = None
    """Of the triples' pairs, for margin_mse and kl."""
    validation_teacher_scores: Maybe[ParquetFile] = None
    start: Maybe[FolderPath] = None
    """An encoder whose weights to start from."""


class RerankerTraining(PairSettings, TrainingOptions):
    """Options of training a re-ranker on pairs."""

    loss: Literal[*RERANKER_OBJECTIVES] = next(iter(RERANKER_OBJECTIVES))  # type: ignore[valid-type]
    pairs: ParquetFile
    validation_pairs: ParquetFile


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
