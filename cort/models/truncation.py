"""How much of its texts a model truncates; imports no torch."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cort.formats.artifacts import read_artifact, write_artifact
from cort.formats.records import Integers
from cort.models.layout import (
    PAIR_PROMPT,
    PROMPTS,
    Settings,
    has_modules,
    model_max_length,
    modules_of,
    read_length,
    tokenizer_folder,
    transformer_settings,
)
from cort.models.settings import PairSettings
from cort.models.tokenizer import load_template

PASSAGES, UNLIMITED = "passages", 1 << 30
# Share of truncated texts above which the log has a warning.
MANY = 0.1


@dataclass(frozen=True)
class Lengths:
    """How many `texts` have each of the `lengths` in tokens, without special tokens; written beside a token cache."""

    lengths: list[int]
    texts: list[int]


def write_lengths(path: str | Path, lengths: Integers) -> None:
    """Write how many texts have each length."""
    write_artifact(path, Lengths(*(counts.tolist() for counts in np.unique(lengths, return_counts=True))))


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


def measure_truncation(lengths: Integers, limit: int | Integers) -> Truncation:
    """Measure texts of these lengths; if each text has its own limit, `limit` is their mean."""
    over = np.maximum(lengths - limit, 0)
    texts, tokens = max(len(lengths), 1), max(int(lengths.sum()), 1)
    shown = round(float(np.mean(limit))) if np.size(limit) else 0
    return Truncation(len(lengths), float(lengths.sum() / texts), shown, (over > 0).sum() / texts, over.sum() / tokens)


def log_truncation(log: logging.Logger, source: str, lengths: Integers, limit: int | Integers) -> None:
    """Log how much is truncated, as a warning if the share of texts exceeds `MANY`."""
    truncation = measure_truncation(lengths, limit)
    log.log(logging.WARNING if truncation.cut_texts > MANY else logging.INFO, "%s: %s", source, truncation)


@dataclass(frozen=True)
class Limits:
    """Tokens of a query and of a passage that fit, without special tokens; `together`: of the passage and the query.

    If queries have no limit of their own, it is that of both, and the longer text of a pair is truncated.
    """

    query: int
    passage: int
    together: bool = False

    @property
    def shared(self) -> bool:
        """Whether queries have no limit of their own."""
        return self.together and self.query == self.passage

    def of_queries(self, passages: Integers) -> int | Integers:
        """Count the tokens of queries that fit next to passages of these lengths."""
        return np.maximum(self.query - passages, self.query // 2) if self.shared else self.query

    def of_passages(self, queries: Integers) -> int | Integers:
        """Count the tokens of passages that fit next to queries of these lengths."""
        if self.shared:
            return np.maximum(self.passage - queries, self.passage - self.passage // 2)
        return self.passage - np.minimum(queries, self.query) if self.together else self.passage


def read_limits(folder: str | Path) -> Limits | None:
    """Read how much of its texts a saved model reads; None for a base model."""
    if (path := Path(folder) / PairSettings.FILE).is_file():
        settings = read_artifact(path, PairSettings)
        return Limits(settings.query_length, settings.max_length)
    if not has_modules(folder):
        return None
    query, passage = (read_length(folder, kind) or UNLIMITED for kind in ("query", "passage"))
    if Settings(Path(folder) / PROMPTS).get("model_type", str) != "CrossEncoder":
        if modules_of(folder)[0].name not in ("Transformer", "MLMTransformer"):
            return Limits(UNLIMITED, UNLIMITED)
        extra = load_template(folder).extra
        return Limits(query - extra, passage - extra)
    own = tokenizer_folder(folder)
    longest = model_max_length(own) or UNLIMITED
    if tokens := Settings(Path(folder) / PAIR_PROMPT).get("tokens", int):
        return Limits(query, longest - tokens, together=True)
    template = load_template(folder)
    passage = longest - template.pair_extra
    has_own = transformer_settings(own).get("query_length", int)
    return Limits(query - template.extra if has_own else passage, passage, together=True)


def measure_texts(limits: Limits, files: Mapping[str, str | Path]) -> dict[str, Truncation]:
    """Measure the texts that a model reads from files of their lengths, by content (passages, or queries of a split).

    Passages of a cross-encoder are paired with a query of mean length, and queries with such a passage.
    """
    counted = {text: read_artifact(path, Lengths) for text, path in files.items()}
    lengths = {text: np.repeat(np.array(one.lengths, np.int64), one.texts) for text, one in counted.items()}

    def mean(of_passages: bool) -> Integers:
        counts = [counts for text, counts in lengths.items() if (text == PASSAGES) is of_passages and len(counts)]
        return np.rint(np.concatenate(counts).mean(keepdims=True) if counts else np.zeros(1)).astype(np.int64)

    most = dict.fromkeys(lengths, int(np.max(limits.of_queries(mean(True)))))
    most[PASSAGES] = int(np.max(limits.of_passages(mean(False))))
    return {text: measure_truncation(counts, most[text]) for text, counts in lengths.items()}
