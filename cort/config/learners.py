"""The variants of encoders and re-rankers, with the settings of all losses."""

from __future__ import annotations

import inspect
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from cort.config import models
from cort.config.fields import PrecisionOrAuto
from cort.config.models import (
    AutoPrecise,
    Checkpoint,
    Described,
    DescribedLengths,
    FinishedVectors,
    Hub,
    Lengths,
    PairLearning,
    Precise,
    Prompts,
    QueryEncoding,
    ReleasedScoring,
    Representation,
    Service,
    Sparse,
    Sparsity,
    Started,
    Vectors,
)
from cort.config.training import Training
from cort.runtime.sections import FIRST_FITTING, Maybe, Section, Text
from cort.training.losses import ENCODER_OBJECTIVES, RERANKER_OBJECTIVES, Objectives, classes_of


def loss_of(objectives: Objectives) -> Any:
    """Declare the choice of an objective, of which the first is the default."""
    meanings = [
        f"`{name}`: {inspect.getdoc(objective.loss)}".partition("\n")[0] for name, objective in objectives.items()
    ]
    return Field(next(iter(objectives)), description=" ".join(["Objective.", *meanings]))


class EncoderLoss(*classes_of(ENCODER_OBJECTIVES)):  # type: ignore[misc]
    """The loss of an encoder, and the settings of all losses."""

    loss: Literal[*ENCODER_OBJECTIVES] = loss_of(ENCODER_OBJECTIVES)  # type: ignore[valid-type]


class RerankerLoss(*classes_of(RERANKER_OBJECTIVES)):  # type: ignore[misc]
    """The loss of a re-ranker, and the settings of all losses."""

    loss: Literal[*RERANKER_OBJECTIVES] = loss_of(RERANKER_OBJECTIVES)  # type: ignore[valid-type]


class LearningEncoder(EncoderLoss, models.Learning):
    """An encoder that is trained."""


class LearningReranker(RerankerLoss, PairLearning):
    """A re-ranker that is trained."""


#: a model that is trained here, not used as released
Learner: TypeAlias = LearningEncoder | LearningReranker


# Encoders.


class ReleasedDense(FinishedVectors, Described, DescribedLengths, Hub, Prompts, AutoPrecise):
    """A released dense encoder."""


class RetrainedDense(LearningEncoder, Vectors, Described, DescribedLengths, Hub, Prompts, Precise):
    """A released dense encoder with training."""

    training: Training


class TrainedDense(LearningEncoder, Vectors, Representation, Started, Precise):
    """A trained dense encoder."""


class ImportedDense(Checkpoint, FinishedVectors, Representation, Started, Precise):
    """An imported encoder."""

    released: Text
    """Take all weights from this file instead of training: a Lightning checkpoint or state_dict of CoRT's authors, of
    which only tensors are read, or the `.safetensors` of a transformers model without projection; `dimension` must
    match."""


class ServedDense(FinishedVectors, Service):
    """An encoder behind an API."""


class ReleasedSparse(Sparse, DescribedLengths, Hub, AutoPrecise):
    """A released sparse encoder."""


class RetrainedSparse(LearningEncoder, QueryEncoding, Sparsity, Sparse, DescribedLengths, Hub, Precise):
    """A released sparse encoder with training."""

    training: Training


class TrainedSparse(LearningEncoder, QueryEncoding, Sparsity, Sparse, Lengths, Started, Precise):
    """A trained sparse encoder."""


#: a model that encodes queries and passages as vectors
Encoder: TypeAlias = Annotated[
    RetrainedDense
    | ReleasedDense
    | ServedDense
    | ImportedDense
    | TrainedDense
    | RetrainedSparse
    | ReleasedSparse
    | TrainedSparse,
    FIRST_FITTING,
]


# Re-rankers.


class TrainedScoring(LearningReranker, models.Scored, Started, Precise):
    """A trained re-ranker."""

    depth: int = Field(1000, ge=1, le=100_000)
    """Candidates re-ranked per query, for systems that set no `depth` of their own."""


class TokenIndex(Section):
    """Token vectors are indexed."""

    ivfpq: models.IvfPq = Field(default_factory=models.IvfPq)
    """Late interaction: IVF-PQ index of the token vectors."""


class ReleasedCrossEncoder(ReleasedScoring):
    """A released cross_encoder."""

    kind: Literal["cross_encoder"] = "cross_encoder"


class ServedCrossEncoder(models.ServedScoring):
    """A re-ranker behind an API."""

    kind: Literal["cross_encoder"] = "cross_encoder"


class RetrainedCrossEncoder(LearningReranker, ReleasedCrossEncoder):
    """A released cross_encoder with training."""

    precision: PrecisionOrAuto = "fp32"
    training: Training


class ReleasedLate(TokenIndex, ReleasedScoring):
    """A released late_interaction."""

    kind: Literal["late_interaction"]
    similarity: Maybe[Literal["cosine", "dot", "l2"]] = None


class RetrainedLate(LearningReranker, ReleasedLate):
    """A released late_interaction with training."""

    precision: PrecisionOrAuto = "fp32"
    training: Training


class TrainedCrossEncoder(models.Head, TrainedScoring):
    """A trained cross_encoder."""

    kind: Literal["cross_encoder"] = "cross_encoder"
    """`cross_encoder` reads query and passage together; `late_interaction` (ColBERT) compares their token vectors,
    needs far less training data, and can retrieve, too; `knrm` and `conv_knrm` count similar words or n-grams by
    kernels."""


class TrainedLate(models.TokenSettings, TokenIndex, TrainedScoring):
    """A trained late_interaction."""

    kind: Literal["late_interaction"]


class TrainedKnrm(TrainedScoring):
    """A trained knrm."""

    kind: Literal["knrm"]


class TrainedConvKnrm(models.Filters, TrainedScoring):
    """A trained conv_knrm."""

    kind: Literal["conv_knrm"]


#: a model that scores pairs of a query and a passage
Reranker: TypeAlias = Annotated[
    RetrainedCrossEncoder
    | ReleasedCrossEncoder
    | ServedCrossEncoder
    | RetrainedLate
    | ReleasedLate
    | TrainedCrossEncoder
    | TrainedLate
    | TrainedKnrm
    | TrainedConvKnrm,
    FIRST_FITTING,
]

Model: TypeAlias = Encoder | Reranker
