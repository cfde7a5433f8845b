"""How much of its texts a model truncates; imports no torch."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cort.formats.artifacts import read_json
from cort.formats.tokens import Tokens
from cort.models.settings import EncoderSettings, PairSettings
from cort.models.tokenizer import Template, load_template

Settings: TypeAlias = EncoderSettings | PairSettings
Counts: TypeAlias = npt.NDArray[np.integer]

# Settings that determine how much of a text a model reads.
LENGTHS = frozenset({"query_length", "passage_length", "max_length", "kind"})
PASSAGES = "passages"
# Share of truncated texts above which the log has a warning.
MANY = 0.1


@dataclass(frozen=True)
class Truncation:
    """Number and mean length of texts without special tokens, the limit, and shares of truncated texts and tokens."""

    texts: int
    mean_tokens: float
    limit: int
    cut_texts: float
    cut_tokens: float

    def __str__(self) -> str:
        cut = f"{self.cut_texts:.1%} truncated to {self.limit}, {self.cut_tokens:.1%} of all tokens lost"
        return f"{self.texts:,} texts, {self.mean_tokens:.1f} tokens on average, {cut}"


def measure_truncation(lengths: Counts, limit: int | Counts) -> Truncation:
    """Measure texts of these lengths; if each text has its own limit, `limit` is their mean."""
    over = np.maximum(lengths - limit, 0)
    texts, tokens = max(len(lengths), 1), max(int(lengths.sum()), 1)
    shown = round(float(np.mean(limit))) if np.size(limit) else 0
    return Truncation(len(lengths), float(lengths.sum() / texts), shown, (over > 0).sum() / texts, over.sum() / tokens)


def log_truncation(log: logging.Logger, source: str, lengths: Counts, limit: int | Counts) -> None:
    """Log how much is truncated, as a warning if the share of texts exceeds `MANY`."""
    truncation = measure_truncation(lengths, limit)
    log.log(logging.WARNING if truncation.cut_texts > MANY else logging.INFO, "%s: %s", source, truncation)


def query_limit(settings: Settings, template: Template) -> int:
    """Count the tokens of a query that fit."""
    return settings.query_length - _special(settings, template)


def passage_limit(settings: Settings, template: Template, queries: Counts) -> int | Counts:
    """Count the tokens of a passage that fit; in a cross-encoder, next to queries of these lengths."""
    if isinstance(settings, EncoderSettings):
        return settings.passage_length - template.extra
    if settings.kind != "cross_encoder":
        return settings.max_length - _special(settings, template)
    return settings.max_length - template.pair_extra - np.minimum(queries, query_limit(settings, template))


def measure_texts(settings: Settings, tokenizer: str | Path, files: Mapping[str, str | Path]) -> dict[str, Truncation]:
    """Measure the token caches that a model reads, by content (passages, or queries of a split).

    Passages of a cross-encoder are paired with a query of mean length.

    :param tokenizer: folder of the model, or of another model with the same tokenizer.
    """
    template, lengths = load_template(tokenizer), {text: Tokens(path).lengths for text, path in files.items()}
    queries = [counts for text, counts in lengths.items() if text != PASSAGES and len(counts)]
    mean = np.rint(np.concatenate(queries).mean(keepdims=True) if queries else np.zeros(1)).astype(np.int64)
    limits = dict.fromkeys(lengths, query_limit(settings, template))
    limits[PASSAGES] = int(np.max(passage_limit(settings, template, mean)))
    return {text: measure_truncation(counts, limits[text]) for text, counts in lengths.items()}


def read_lengths(folder: str | Path) -> Settings | None:
    """Read the kind and the maximum lengths of a model folder; None for a base model."""
    for kind in (EncoderSettings, PairSettings):
        if (path := Path(folder) / kind.FILE).is_file():
            node = read_json(path)
            keys = node.of(dict).keys() & LENGTHS
            return kind(**{key: node[key].read(str if key == "kind" else int) for key in keys})
    return None


def _special(settings: Settings, template: Template) -> int:
    """Count the special tokens around a text; kernel pooling adds none."""
    return 0 if isinstance(settings, PairSettings) and settings.kind.endswith("knrm") else template.extra
