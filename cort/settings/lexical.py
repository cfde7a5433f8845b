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
    """Instead of training queries, use the judged queries of each evaluated split, in this many folds: k1 and b for the
    queries of a fold are chosen on (samples of) the queries of the other folds. Queries without judgements, and
    searches, get the values chosen on all judged queries (of the first evaluated split)."""


@section
class LexicalIndex:
    """An index for BM25, over the passages or over texts that are expanded or weighted."""

    expand: str | None = setting(None, names="expanders")
    """Name under `expanders`; its queries are appended to each passage."""
    weigh: str | None = setting(None, names="weighers")
    """Name under `weighers`; its weights replace the passages' term frequencies."""
    cleaning: Cleaning = "raw"
    """Preprocessing of passages (with expansions) and queries: none (`raw`), wrongly decoded characters fixed
    (`fixed`), or the filter of CoRT's authors, which keeps ASCII letters, digits and `.,!?;/:` (`cort`)."""
    language: Language = "en"
    """Language of passages and queries (ISO 639-1), which chooses Anserini's analyser for both: how texts are divided
    into words, stop words, stemming."""
    k1: float = setting(0.9, ge=0, le=1000)
    """Term frequency saturation."""
    b: float = setting(0.4, ge=0, le=1)
    """Length normalisation."""
    tune: GridSearch | None = None
    """Choose k1 and b by grid search instead, as the mean of the best values on several samples of training queries."""


@section
class Changing(Released):
    """What document expansion and term weighting have in common."""

    precision: Precision = "fp32"
    """Arithmetic of the model."""


@section
class Expander(Changing):
    """Document expansion: predicted queries, and how they are made."""

    file: str | None = None
    """Published predictions for this collection: a line per passage, in the order of the passages (`.txt`, `.txt.gz`,
    or the only file of a `.tar.gz`), as doc2query's were published; or a `.zip` of such files, one per sample and part
    of the collection, named `*sample<number>.txt<part>-*`, as docTTTTTquery's were."""
    pretrained: str | None = None
    """Or hub name or local folder of a released model: a T5 or another encoder-decoder, safetensors only."""
    queries: int = setting(40, "per passage", "N", ge=1, le=1000)
    """Queries appended to each passage. With a `.zip`, this must be set: the samples with the lowest numbers are used.
    With a model, the number it predicts; with `beams`, as many as there are beams if not set."""
    top_k: int = setting(10, "sample each token from the K most probable ones", "K", ge=1, le=1_000_000)
    """Sample each token from this many most probable ones, by their probabilities."""
    beams: int | None = setting(None, "instead of sampling, use beam search of this width", "N", ge=1, le=1000)
    """Instead of sampling, take the most probable queries of a beam search of this width; doc2query used 5."""
    passage_length: int = setting(512, "tokens, special tokens included", ge=3, le=65_536)
    """Tokens that a passage is truncated to, special tokens included."""
    query_length: int = setting(64, "tokens, including the one that ends it", ge=2, le=512)
    """Maximum length of a query in tokens, including the one that ends it."""


@section
class Weigher(Changing):
    """Term weighting: weights, and how they are made."""

    file: str | None = None
    """Published weighted documents of this collection: JSON lines of `id` and `contents`, in which each word is
    repeated as often as its weight says (`.jsonl`, `.jsonl.gz`, or a `.zip` of such files), as DeepCT's were published.
    Passages without such a document match no query."""
    pretrained: str | None = None
    """Or hub name or local folder of a released model: BERT-like with a WordPiece tokenizer, for token classification
    with one label, safetensors only."""
    passage_length: int = setting(128, "tokens, special tokens included", ge=3, le=65_536)
    """Tokens that a passage is truncated to, special tokens included."""
    scale: int = setting(100, "weight of a word with prediction 1", ge=1, le=10_000)
    """Weight of a word for which the model predicts 1. Weights are rounded, and words with weights below 1 left out."""
    square_root: bool = setting(False, "take the square root of the predictions first")
    """Take the square root of the model's predictions before scaling."""
