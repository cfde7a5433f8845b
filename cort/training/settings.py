"""Hyper-parameters of a training, objectives of encoders, and the options of the training stages; no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from cort.models.settings import EncoderSettings, PairSettings, Precision
from cort.system.errors import input_error
from cort.system.options import optional, required, thread_count

#: value of `best_model_metric` that is no measure
LOSS = "loss"
# What the options of files that are read show as their value.
FILES = ("PARQUET", "ARROW", "TREC")


def _count(value: float, updates: int) -> int:
    """Give a number of updates, or the number that a share below 1 means."""
    return round(value * updates) if value < 1 else int(value)


@dataclass(frozen=True)
class TrainingSettings:
    """Hyper-parameters of one training.

    In each process the activations of `tokens_at_once` padded tokens wait for their gradients; with
    `gradient_checkpointing` mini-batches may be of any size, for a third more of time.
    """

    batch_size: int = optional(6, "examples per mini-batch")
    gradient_accumulation: int = optional(100, "mini-batches per update")
    learning_rate: float = optional(2e-5)
    weight_decay: float = optional(0.1)
    decay: Literal["all", "weights"] = optional("all", "weights: no decay of biases and layer normalisation")
    warmup_updates: float = optional(20, "below 1: a share of all updates")
    validate_every: float = optional(100, "updates between validations; below 1: a share of all updates")
    max_gradient_norm: float = optional(0.0, "0: no clipping")
    precision: Precision = optional("fp32")
    seed: int = optional(42)
    tokens_at_once: int = optional(8_192, "whose activations are kept: memory and speed", "N")
    gradient_checkpointing: bool = optional(False, "compute activations twice, for less memory")
    adam_epsilon: float = optional(1e-6)
    schedule: Literal["linear", "constant"] = optional("linear", "learning rate after the warm-up; linear: down to 0")
    best_model_metric: str = optional(LOSS, "best model by: loss, RR@10, ...", "MEASURE")
    patience: int = optional(0, "validations without a better model that end the training; 0: any number", "N")
    require_gain: bool = optional(False, "fail if the best model is no better than its start, or than not re-ranking")
    compile: bool = optional(False, "with torch.compile")

    def of(self, updates: int, per_epoch: float) -> TrainingSettings:
        """Return the settings of a training of so many updates, shares of them as numbers.

        A share of few updates validates after every second one, unless an epoch has no second.
        """
        warmup, every = (_count(value, updates) for value in (self.warmup_updates, self.validate_every))
        least = 2 if self.validate_every < 1 < per_epoch else 1
        return replace(self, warmup_updates=warmup, validate_every=max(every, least))

    @property
    def by_measure(self) -> bool:
        """Whether the best model is chosen by a measure, not by the loss."""
        return self.best_model_metric != LOSS


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(TrainingSettings):
    """Options of training encoders and re-rankers."""

    base_model: str = required("FOLDER")
    passages: str = required("ARROW", "token cache")
    threads: int = thread_count()
    processes: int = optional(
        1,
        "GPUs to use, one process each; without any GPU N means 1, but if the environment has "
        "ACCELERATE_USE_CPU=true, N processes share the CPU",
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
    events: str | None = optional(None, "gets the curve for TensorBoard, while it grows", "FOLDER")
    queries: str = required("ARROW", "token cache of the training queries")
    validation_queries: str = required("ARROW")
    validation_run: str | None = optional(None, "with a measure: candidates for the pool", "TREC")
    validation_qrels: str | None = optional(None, "with a measure, or a loss that needs judgements", "PARQUET")
    relevance_level: int = optional(1, "lowest grade that counts as positive")
    pool_depth: int = optional(20, "candidates per validation query", "N")

    def files(self) -> list[str]:
        """Names of the options whose files decide what is trained."""
        return [
            field.name for field in fields(self) if field.metadata["metavar"] in FILES and getattr(self, field.name)
        ]


class Objective(NamedTuple):
    """A function of `cort.training.losses`, and its arguments before the similarity.

    These are properties of `cort.training.triples.Batch`, then fields of `ObjectiveSettings`.
    """

    loss: str
    of_batch: tuple[str, ...]
    of_settings: tuple[str, ...] = ()


#: an objective is added here, its settings below, its value in the experiment's schema
OBJECTIVES = {
    "triplet": Objective("batch_triplet_loss", ("queries", "positives", "negatives"), ("margin",)),
    "multilabel_margin": Objective("multilabel_margin_loss", ("queries", "passages", "relevant")),
    "info_nce": Objective("info_nce_loss", ("queries", "passages", "others"), ("temperature",)),
    "margin_mse": Objective("margin_mse_loss", ("queries", "positives", "negatives", "margins")),
}


class RerankingObjective(NamedTuple):
    """A function of `cort.training.losses` of logits and relevance, and settings of `RerankerTraining` that it takes.

    An example is a pair or, if `of_groups`, a positive and the negatives after it.
    """

    loss: str
    of_groups: bool
    of_settings: tuple[str, ...] = ()


RERANKING_OBJECTIVES = {
    "pointwise": RerankingObjective("pointwise_loss", False, ("pos_weight",)),
    "softmax": RerankingObjective("softmax_loss", True),
}

if TYPE_CHECKING:
    Loss: TypeAlias = str
    RerankingLoss: TypeAlias = str
else:
    Loss = Literal[tuple(OBJECTIVES)]
    RerankingLoss = Literal[tuple(RERANKING_OBJECTIVES)]


@dataclass(frozen=True)
class ObjectiveSettings:
    """Which objective, and the settings of those that have some."""

    loss: Loss = optional("triplet")
    margin: float = optional(0.1, "of the triplet loss")
    temperature: float = optional(0.05, "of InfoNCE")
    relative_margin: float | None = optional(
        None, "of InfoNCE: leave out passages that the start scores above 1 - this of the positive's score", "SHARE"
    )


COUNTS = (
    "batch_size",
    "gradient_accumulation",
    "validate_every",
    "tokens_at_once",
    "pool_depth",
    "processes",
    "dimension",
)
POSITIVE = ("learning_rate", "adam_epsilon", "temperature", "relevance_level")


@dataclass(frozen=True, kw_only=True)
class EncoderTraining(EncoderSettings, ObjectiveSettings, TrainingOptions):
    """Options of training an encoder on triples."""

    triples: str = required("PARQUET")
    validation_triples: str = required("PARQUET")
    qrels: str | None = optional(None, "for a loss that needs judgements", "PARQUET")
    teacher_scores: str | None = optional(None, "of the triples' pairs, for margin_mse", "PARQUET")
    validation_teacher_scores: str | None = optional(None, metavar="PARQUET")
    start: str | None = optional(None, "an encoder whose weights to start from", "FOLDER")


@dataclass(frozen=True, kw_only=True)
class RerankerTraining(PairSettings, TrainingOptions):
    """Options of training a re-ranker on pairs."""

    loss: RerankingLoss = optional("pointwise")
    pos_weight: float = optional(1.0, "of positives in the pointwise loss")
    pairs: str = required("PARQUET")
    validation_pairs: str = required("PARQUET")


def check_settings(options: TrainingOptions) -> None:
    """Refuse counts of nothing, and settings that nothing can be learned or divided by."""
    for name in (*COUNTS, *POSITIVE):
        value = getattr(options, name, 1)
        if value <= 0:
            raise input_error(f"--{name.replace('_', '-')}", str(value), "more than 0", "fix it")


def needs_judgements(loss: str) -> bool:
    """Whether a loss must know all relevant passages of a batch."""
    return not {"relevant", "others"}.isdisjoint(OBJECTIVES[loss].of_batch)


def leaves_out(loss: str) -> bool:
    """Whether a loss can leave out passages that may be relevant."""
    return "others" in OBJECTIVES[loss].of_batch


def needs_teacher(loss: str) -> bool:
    """Whether a loss learns from the scores of a cross-encoder."""
    return "margins" in OBJECTIVES[loss].of_batch


def check_files(options: TrainingOptions, needed: Mapping[str, bool]) -> None:
    """Refuse files that nothing needs, and settings without the files they need.

    :param needed: whether each option must name a file; that of a validation by a measure is known here.
    """
    chosen: dict[str, Any] = vars(options)
    for name, wanted in {**needed, "validation_run": options.by_measure}.items():
        given = bool(chosen[name])
        if given != wanted:
            settings = [key for key in ("loss", "best_model_metric") if key in chosen]
            place = " and ".join(f"--{key.replace('_', '-')} {chosen[key]}" for key in settings)
            found, expected = ("a file", "none") if given else ("none", "a file")
            fix = "name it" if wanted else "leave it out"
            raise input_error(f"--{name.replace('_', '-')}", found, f"{expected} with {place}", fix)
