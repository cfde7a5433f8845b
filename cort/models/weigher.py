"""Term weighting with DeepCT (Dai & Callan, 2019): a weight for each word of a passage, predicted at its first subword.

On disk: a transformers token-classification folder with one label. A word is a WordPiece token and the following tokens
that begin with ``##``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from cort.models.batching import FramedTexts, Ids
from cort.models.loading import load_transformer
from cort.models.precision import place
from cort.models.tokenizer import Template, load_template, load_tokenizer
from cort.models.transformer import check_length, count_tokens, heads_of, in_single_precision, reads_segments
from cort.runtime.errors import input_error

CLASSIFIER = "AutoModelForTokenClassification"
CONTINUES = "##"


class Weigher(nn.Module):
    """Map passages to a number for each of their tokens."""

    def __init__(self, classifier: Any, length: int) -> None:
        super().__init__()
        self.classifier, self.length = classifier, length
        self.inputs = ("input_ids", "attention_mask", *["token_type_ids"] * reads_segments(classifier))
        for head in heads_of(classifier):
            in_single_precision(head)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Weigh ``input_ids`` and their masks of shape (batch, length); returns (batch, maximum length)."""
        logits = self.classifier(**{name: batch[name] for name in self.inputs}).logits  # (batch, length, 1)
        return functional.pad(logits[..., 0], (0, self.length - logits.shape[1]))

    def place(self, device: torch.device, precision: str) -> None:
        """Move to a device for inference: the transformer in `precision`, the head in fp32 to avoid ties."""
        place(self, device, precision, [self.classifier.base_model])


@dataclass(frozen=True)
class Vocabulary:
    """Subwords by id, and which of them continue a word."""

    subwords: Sequence[str]
    continues: npt.NDArray[np.bool_]

    def words(self, ids: Ids) -> tuple[list[str], list[int]]:
        """Join subwords: the words, and the position of the first subword of each."""
        first = [place for place, token in enumerate(ids) if not place or not self.continues[token]]
        ends = [*first[1:], len(ids)][: len(first)]
        subwords = [self.subwords[token].removeprefix(CONTINUES) for token in ids]
        return ["".join(subwords[start:end]) for start, end in zip(first, ends, strict=True)], first


def words_of(texts: FramedTexts, vocabulary: Vocabulary, row: int) -> tuple[list[str], list[int]]:
    """Return the words of a truncated text, and the position of the first subword of each among the framed tokens."""
    kept = texts.tokens[row][: texts.max_length - texts.template.extra]
    words, first = vocabulary.words(kept)
    return words, [place + len(texts.template.before) for place in first]


def quantised(weight: float, scale: int = 100, square_root: bool = False) -> int:
    """Scale and round a weight; negative weights become 0, and halves are rounded to the even neighbour."""
    positive = max(weight, 0.0)
    return round(scale * (math.sqrt(positive) if square_root else positive))


def term_weights(
    words: Sequence[str], weights: Sequence[float], scale: int = 100, square_root: bool = False
) -> dict[str, int]:
    """Give each distinct word its greatest quantized weight; words of weight 0 are left out."""
    greatest: dict[str, int] = {}
    for word, weight in zip(words, weights, strict=True):
        if (times := quantised(weight, scale, square_root)) >= 1:
            greatest[word] = max(times, greatest.get(word, 0))
    return greatest


def load_vocabulary(folder: str | Path) -> Vocabulary:
    """Read the subwords of a model folder's tokenizer.

    :raises InputError: unless it is a WordPiece tokenizer, whose tokens show where words begin.
    """
    tokenizer = load_tokenizer(folder)
    model: Any = tokenizer.model
    prefix = getattr(model, "continuing_subword_prefix", None)
    if prefix != CONTINUES:
        found, expected = f"a tokenizer of type {type(model).__name__}", f"WordPiece with {CONTINUES}, as BERT's"
        found += f" with the prefix {prefix}"
        raise input_error(Path(folder) / "tokenizer.json", found, expected, "name another base model")
    vocabulary = tokenizer.get_vocab(with_added_tokens=False)
    subwords = [""] * (max(vocabulary.values()) + 1)
    for subword, number in vocabulary.items():
        subwords[number] = subword
    return Vocabulary(subwords, np.array([subword.startswith(CONTINUES) for subword in subwords]))


def load_weigher(folder: str | Path, length: int) -> tuple[Weigher, Template]:
    """Load a model folder in evaluation mode, with its tokenizer's template.

    :param length: tokens that a passage is truncated to, special tokens included.
    """
    classifier: Any = load_transformer(folder, CLASSIFIER, trained=True)
    if (labels := classifier.config.num_labels) != 1:
        raise input_error(folder, f"{labels} labels per token", "1, its weight", "name a term weighting model")
    template = load_template(folder, count_tokens(classifier))
    check_length("--passage-length", length, template.extra + 1, classifier)
    return Weigher(classifier, length).eval(), template
