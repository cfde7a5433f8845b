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
from cort.formats.shards import Tokens
from cort.models.layout import (
    PAIR_PROMPT,
    PROMPTS,
    Settings,
    has_modules,
    model_max_length,
    modules_of,
    read_length,
    tokenizer_folder,
)
from cort.models.settings import PairSettings
from cort.models.tokenizer import Template, load_template

Counts: TypeAlias = npt.NDArray[np.integer]

PASSAGES, KERNEL_POOLING, UNLIMITED = "passages", ("knrm", "conv_knrm"), 1 << 30
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


@dataclass(frozen=True)
class Limits:
    """Tokens of a query and of a passage that fit, without special tokens; `together`: of the passage and the query."""

    query: int
    passage: int
    together: bool = False

    def of_passages(self, queries: Counts) -> int | Counts:
        """Count the tokens of passages that fit next to queries of these lengths."""
        return self.passage - np.minimum(queries, self.query) if self.together else self.passage


def limits_for(kind: str, lengths: tuple[int, int], template: Template) -> Limits:
    """Take the special tokens of a kind of model off the lengths of queries, and of passages or pairs."""
    if kind in KERNEL_POOLING:
        return Limits(*lengths)
    together = kind == "cross_encoder"
    return Limits(
        lengths[0] - template.extra, lengths[1] - (template.pair_extra if together else template.extra), together
    )


def read_limits(folder: str | Path) -> Limits | None:
    """Read how much of its texts a saved model reads; None for a base model."""
    path = Path(folder) / PairSettings.FILE
    tokens = Settings(Path(folder) / PAIR_PROMPT).limit("tokens")
    if path.is_file():
        node = read_json(path)
        query, longest = (node[key].read(int) for key in ("query_length", "max_length"))
        return Limits(query, longest - (tokens or 0), together=tokens is not None)
    if not has_modules(folder):
        return None
    lengths = [read_length(folder, kind) or UNLIMITED for kind in ("query", "passage")]
    if Settings(Path(folder) / PROMPTS).get("model_type", str) == "CrossEncoder":
        longest = model_max_length(tokenizer_folder(folder)) or UNLIMITED
        if tokens:
            return Limits(lengths[0], longest - tokens, together=True)
        return limits_for("cross_encoder", (lengths[0], longest), load_template(folder))
    if modules_of(folder)[0].name not in ("Transformer", "MLMTransformer"):
        return Limits(UNLIMITED, UNLIMITED)
    return limits_for("encoder", (lengths[0], lengths[1]), load_template(folder))


def measure_texts(limits: Limits, files: Mapping[str, str | Path]) -> dict[str, Truncation]:
    """Measure the token caches that a model reads, by content (passages, or queries of a split).

    Passages of a cross-encoder are paired with a query of mean length.
    """
    lengths = {text: Tokens(path).lengths for text, path in files.items()}
    queries = [counts for text, counts in lengths.items() if text != PASSAGES and len(counts)]
    mean = np.rint(np.concatenate(queries).mean(keepdims=True) if queries else np.zeros(1)).astype(np.int64)
    most = dict.fromkeys(lengths, limits.query)
    most[PASSAGES] = int(np.max(limits.of_passages(mean)))
    return {text: measure_truncation(counts, most[text]) for text, counts in lengths.items()}
