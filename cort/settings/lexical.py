"""Term-based ranking, and what changes its texts: document expansion and term weighting."""

from __future__ import annotations

from typing import Literal

from cort.runtime.keys import section, setting
from cort.settings.fields import Cleaning, Precision, Released, as_key
from cort.settings.tuning import Folds

# fmt: off
Language = Literal[
    "en", "ar", "bn", "da", "de", "es", "fa", "fi", "fr", "hi", "hu", "id", "it",
    "ja", "ko", "nl", "no", "pl", "pt", "ru", "sv", "te", "th", "tr", "uk", "zh",
]
# fmt: on


@section
class GridSearch:
    """Choose k1 and b by grid search instead, as the mean of the best values on several samples of training queries."""

    k1: tuple[float, ...] = setting((0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2), metavar="X", ge=0, le=1000, least=1)
    """Values of k1 to try."""
    b: tuple[float, ...] = setting((0.5, 0.6, 0.7, 0.8, 0.9), metavar="X", ge=0, le=1, least=1)
    """Values of b to try."""
    samples: int = setting(5, metavar="N", ge=1, le=1000)
    """Samples of training queries."""
    sample_size: int = setting(10000, "queries per sample", "N", ge=1, le=1_000_000_000)
    """Queries per sample."""
    measure: str = as_key(Folds, "measure", default="R@1000")
    """Measure that the best k1 and b of a sample maximise."""
    folds: int | None = as_key(Folds, "folds", default=None)
    """Cross-validate instead: the values for each fold of an evaluated split's judged queries are chosen on (samples
    of) the other folds. Unjudged queries and searches use those chosen on all judged queries of the first such split.
    """


@section
class LexicalIndex:
    """An index for BM25, over the passages or over texts that are expanded or weighted."""

    expand: str | None = setting(None, names="expanders")
    """Name under `expanders`, whose queries are appended to each passage."""
    weigh: str | None = setting(None, names="weighers")
    """Name under `weighers`, whose weights replace term frequencies."""
    cleaning: Cleaning = "raw"
    """Preprocessing of passages and queries: none (`raw`), repair of wrongly decoded characters (`fixed`), or the
    filter of CoRT's authors, which keeps ASCII letters, digits and `.,!?;/:` (`cort`)."""
    language: Language = "en"
    """Language (ISO 639-1), which chooses Anserini's analyzer: tokens, stop words, stemming."""
    k1: float = setting(0.9, ge=0, le=1000)
    """Term frequency saturation."""
    b: float = setting(0.4, ge=0, le=1)
    """Length normalisation."""
    tune: GridSearch | None = None
    """Choose k1 and b by grid search: the mean of the best values on several samples of training queries."""


@section
class Changing(Released):
    """What document expansion and term weighting have in common."""

    precision: Precision = "fp32"
    """Arithmetic of the model."""


@section
class Expander(Changing):
    """Document expansion: predicted queries, and how they are made."""

    file: str | None = None
    """Published predictions for this collection: a line per passage, in their order (`.txt`, `.txt.gz`, or the only
    file of a `.tar.gz`), like doc2query's; or a `.zip` with files `*sample<number>.txt<part>-*`, like docTTTTTquery's.
    """
    pretrained: str | None = None
    """Or a released encoder-decoder such as T5: hub name or folder, safetensors only."""
    queries: int = setting(40, "per passage", "N", ge=1, le=1000)
    """Queries per passage; required with a `.zip`, of which the samples with the lowest numbers are used; with `beams`,
    the number of beams by default."""
    top_k: int = setting(10, "sample each token from the K most probable ones", "K", ge=1, le=1_000_000)
    """Sample each token from this many most probable ones."""
    beams: int | None = setting(None, "instead of sampling, use beam search of this width", "N", ge=1, le=1000)
    """Use beam search of this width instead of sampling; doc2query used 5."""
    passage_length: int = setting(512, "tokens, special tokens included", ge=3, le=65_536)
    """Tokens that a passage is truncated to, special tokens included."""
    query_length: int = setting(64, "tokens, including the one that ends it", ge=2, le=512)
    """Maximum tokens of a query, including its end token."""


@section
class Weigher(Changing):
    """Term weighting by a model."""

    pretrained: str = setting()
    """A released BERT-like token classifier with one label and a WordPiece tokenizer: hub name or folder,
    safetensors only."""
    passage_length: int = setting(128, "tokens, special tokens included", ge=3, le=65_536)
    """Tokens that a passage is truncated to, special tokens included."""
    scale: int = setting(100, "weight of a word with prediction 1", ge=1, le=10_000)
    """Weight of a word with prediction 1. Weights are rounded; words below 1 are left out."""
    square_root: bool = setting(False, "take the square root of the predictions first")
    """Take the square root of predictions before scaling."""
