"""Term-based ranking, and what changes its texts: document expansion and term weighting."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from cort.config.fields import Cleaning, Precision, Revision
from cort.runtime.sections import FIRST_FITTING, MEASURE, Maybe, Names, Section, Several, Text

# fmt: off
Language = Literal[
    "en", "ar", "bn", "da", "de", "es", "fa", "fi", "fr", "hi", "hu", "id", "it",
    "ja", "ko", "nl", "no", "pl", "pt", "ru", "sv", "te", "th", "tr", "uk", "zh",
]
# fmt: on


def _norwegian(value: object) -> object:
    # YAML takes the code of Norwegian for false.
    return "no" if value is False else value


class Parameters(Section):
    """Parameters of BM25."""

    k1: float = Field(0.9, ge=0, le=1000)
    """Term frequency saturation."""
    b: float = Field(0.4, ge=0, le=1)
    """Length normalisation."""


class GridSearch(Section):
    """Choose k1 and b by grid search instead, as the mean of the best values on several samples of training queries."""

    k1: Several[Annotated[float, Field(ge=0, le=1000)]] = Field((0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2), min_length=1)
    """Values of k1 to try."""
    b: Several[Annotated[float, Field(ge=0, le=1)]] = Field((0.5, 0.6, 0.7, 0.8, 0.9), min_length=1)
    """Values of b to try."""
    samples: int = Field(5, ge=1, le=1000)
    """Samples of training queries."""
    sample_size: int = Field(10000, ge=1, le=1_000_000_000)
    """Queries per sample."""
    measure: Annotated[Text, MEASURE] = "R@1000"
    """Measure that the best k1 and b of a sample maximise."""
    folds: Maybe[int] = Field(None, ge=2, le=1000)
    """Cross-validate instead: the values for each fold of an evaluated split's judged queries are chosen on (samples
    of) the other folds. Unjudged queries and searches use those chosen on all judged queries of the first such split.
    """


class Index(Section):
    """An index for BM25, over the passages or over texts that are expanded or weighted."""

    expand: Annotated[Maybe[Text], Names("expanders")] = None
    """Name under `expanders`, whose queries are appended to each passage."""
    weigh: Annotated[Maybe[Text], Names("weighers")] = None
    """Name under `weighers`, whose weights replace term frequencies."""
    cleaning: Cleaning = "raw"
    """Preprocessing of passages and queries: none (`raw`), repair of wrongly decoded characters (`fixed`), or the
    filter of CoRT's authors, which keeps ASCII letters, digits and `.,!?;/:` (`cort`)."""
    language: Annotated[Language, BeforeValidator(_norwegian)] = "en"
    """Language (ISO 639-1), which chooses Anserini's analyzer: tokens, stop words, stemming."""


class FixedIndex(Parameters, Index):
    """An index without tune."""


class TunedIndex(Index):
    """An index with tune."""

    tune: GridSearch
    """Choose k1 and b by grid search: the mean of the best values on several samples of training queries."""


LexicalIndex: TypeAlias = Annotated[TunedIndex | FixedIndex, FIRST_FITTING]


class PredictionFile(Section):
    """An expander from a file."""

    file: Text
    """Published predictions for this collection: a line per passage, in their order (`.txt`, `.txt.gz`, or the only
    file of a `.tar.gz`), like doc2query's; or a `.zip` with files `*sample<number>.txt<part>-*`, like docTTTTTquery's.
    """
    queries: Maybe[int] = Field(None, ge=1, le=1000)
    """Queries per passage; required with a `.zip`, of which the samples with the lowest numbers are used; with `beams`,
    the number of beams by default."""


class Predicting(Revision):
    """A released model that predicts queries."""

    precision: Precision = "fp32"
    """Arithmetic of the model."""
    pretrained: Text
    """Or a released encoder-decoder such as T5: hub name or folder, safetensors only."""
    passage_length: int = Field(512, ge=3, le=65_536)
    """Tokens that a passage is truncated to, special tokens included."""
    query_length: int = Field(64, ge=2, le=512)
    """Maximum tokens of a query, including its end token."""


class BeamSearch(Predicting):
    """A released expander with beams."""

    beams: int = Field(ge=1, le=1000)
    """Use beam search of this width instead of sampling; doc2query used 5."""
    queries: int = Field(40, ge=1, le=1000)
    """Queries per passage; required with a `.zip`, of which the samples with the lowest numbers are used; with `beams`,
    the number of beams by default."""


class Sampling(Predicting):
    """A released expander."""

    queries: int = Field(40, ge=1, le=1000)
    """Queries per passage; required with a `.zip`, of which the samples with the lowest numbers are used; with `beams`,
    the number of beams by default."""
    top_k: int = Field(10, ge=1, le=1_000_000)
    """Sample each token from this many most probable ones."""


Expander: TypeAlias = Annotated[PredictionFile | BeamSearch | Sampling, FIRST_FITTING]


class Weigher(Revision):
    """A released weigher."""

    precision: Precision = "fp32"
    """Arithmetic of the model."""
    pretrained: Text
    """A released BERT-like token classifier with one label and a WordPiece tokenizer: hub name or folder,
    safetensors only."""
    passage_length: int = Field(128, ge=3, le=65_536)
    """Tokens that a passage is truncated to, special tokens included."""
    scale: int = Field(100, ge=1, le=10_000)
    """Weight of a word with prediction 1. Weights are rounded; words below 1 are left out."""
    square_root: bool = False
    """Take the square root of predictions before scaling."""
