"""Term-based ranking, and what changes its texts: document expansion and term weighting."""

from __future__ import annotations

from cort.settings.fields import Cleaning, Precision, Released, section, setting


@section
class GridSearch:
    """Choose k1 and b by a grid search over samples of training queries instead, and average the winners."""

    k1: tuple[float, ...] = setting((0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2), ge=0, le=1000, least=1)
    """Values of k1 to try."""
    b: tuple[float, ...] = setting((0.5, 0.6, 0.7, 0.8, 0.9), ge=0, le=1, least=1)
    """Values of b to try."""
    samples: int = setting(5, ge=1, le=1000)
    """Samples of training queries."""
    sample_size: int = setting(10000, ge=1, le=1_000_000_000)
    """Queries per sample."""
    measure: str = "R@1000"
    """Measure that the best (k1, b) of a sample maximises."""


@section
class LexicalIndex:
    """An index for BM25, over the passages or over texts that are expanded or weighted."""

    expand: str | None = None
    """Name under `expanders`; its queries are appended to each passage."""
    weigh: str | None = None
    """Name under `weighers`; its weights take the place of the passages' term frequencies."""
    cleaning: Cleaning = "raw"
    """Preprocessing of passages (with what is appended) and queries: none (`raw`), wrongly decoded characters fixed
    (`fixed`), or the filter of CoRT's authors, which keeps ASCII letters, digits and `.,!?;/:` (`cort`)."""
    k1: float = setting(0.9, ge=0, le=1000)
    """Term frequency saturation."""
    b: float = setting(0.4, ge=0, le=1)
    """Length normalisation."""
    tune: GridSearch | None = None
    """Choose k1 and b by a grid search over samples of training queries instead, and average the winners."""


@section
class ExpansionFilter:
    """Append only the queries that a re-ranker finds relevant to their passage (Doc2Query--)."""

    reranker: str
    """Name under `rerankers`, which scores every predicted query with its passage."""
    keep: float = setting(0.3, gt=0, le=1)
    """Share of all predicted queries of the collection that is kept, those with the best scores."""


@section
class Changing(Released):
    """What document expansion and term weighting have in common."""

    precision: Precision = "fp32"
    """Arithmetic of the model."""


@section
class Expander(Changing):
    """Document expansion: predicted queries, and how they are made or filtered."""

    file: str | None = None
    """Predictions somebody made for this collection: a line per passage, in the order of the passages (`.txt`,
    `.txt.gz`, or the only file of a `.tar.gz`), as doc2query's were published; or a `.zip` of such files, one per
    sample and part of the collection, named `*sample<number>.txt<part>-*` as docTTTTTquery's were."""
    pretrained: str | None = None
    """Or hub name or local folder of a released model: a T5 or another encoder-decoder, safetensors only."""
    queries: int = setting(40, ge=1, le=1000)
    """Queries of each passage that are appended: with a `.zip` how many samples, those of the lowest numbers, and it
    must be set; of a model how many it predicts, with `beams` as many as these if not set."""
    top_k: int = setting(10, ge=1, le=1_000_000)
    """Each token is drawn from so many most probable ones, by their probabilities."""
    beams: int | None = setting(None, ge=1, le=1000)
    """Instead of drawing, take the most probable queries of a beam search so wide; doc2query's was 5."""
    filter: ExpansionFilter | None = None
    """Append only the queries that a re-ranker finds relevant to their passage (Doc2Query--)."""
    passage_length: int = setting(512, ge=3, le=65_536)
    """Tokens a passage is cut to, special tokens included."""
    query_length: int = setting(64, ge=2, le=512)
    """Most tokens of a query, its end included."""


@section
class Weigher(Changing):
    """Term weighting: weights, and how they are made."""

    file: str | None = None
    """Weighted documents somebody made of this collection: JSON lines of `id` and `contents`, each word as often as it
    weighs (`.jsonl`, `.jsonl.gz`, or a `.zip` of such files), as DeepCT's were published. A passage without any has no
    words that weigh something."""
    pretrained: str | None = None
    """Or hub name or local folder of a released model: BERT-like with a WordPiece tokenizer, for the classification of
    tokens, with one label, safetensors only."""
    passage_length: int = setting(128, ge=3, le=65_536)
    """Tokens a passage is cut to, special tokens included."""
    scale: int = setting(100, ge=1, le=10_000)
    """Weight of a word that the model gives 1; weights are rounded, and those below 1 left out."""
    square_root: bool = False
    """Take the square root of the model's numbers before they are scaled."""
