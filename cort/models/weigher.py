"""Term weighting with DeepCT (Dai & Callan, 2019): a weight for each word of a passage, predicted at its first subword.

On disk: a transformers token-classification folder with one label. A word is a WordPiece token and the following tokens
that begin with ``##``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

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


def words_of(subwords: Iterable[str]) -> tuple[list[str], list[int]]:
    """Join subwords: the words, and the position of the first subword of each."""
    words: list[str] = []
    first: list[int] = []
    for position, subword in enumerate(subwords):
        # A truncated text may begin within a word.
        if words and subword.startswith(CONTINUES):
            words[-1] += subword.removeprefix(CONTINUES)
        else:
            words.append(subword.removeprefix(CONTINUES))
            first.append(position)
    return words, first


def integer_weight(weight: float, scale: int = 100, square_root: bool = False) -> int:
    """Scale and round a weight; negative weights become 0, and halves are rounded to the even neighbour."""
    positive = max(weight, 0.0)
    return round(scale * (math.sqrt(positive) if square_root else positive))


def term_weights(
    words: Sequence[str], weights: Sequence[float], scale: int = 100, square_root: bool = False
) -> dict[str, int]:
    """Give each distinct word its greatest integer weight; words of weight 0 are left out."""
    greatest: dict[str, int] = {}
    for word, weight in zip(words, weights, strict=True):
        if (times := integer_weight(weight, scale, square_root)) >= 1:
            greatest[word] = max(times, greatest.get(word, 0))
    return greatest


def load_vocabulary(folder: str | Path) -> list[str]:
    """Read the subwords of a model folder's tokenizer, by id.

    :raises InputError: unless it is a WordPiece tokenizer, whose tokens show where words begin.
    """
    tokenizer = load_tokenizer(folder)
    model: Any = tokenizer.model
    prefix = getattr(model, "continuing_subword_prefix", None)
    if prefix != CONTINUES:
        found, expected = f"a tokenizer of type {type(model).__name__}", f"WordPiece with {CONTINUES}, as BERT's"
        found += f" with the prefix {prefix}"
        raise input_error(Path(folder) / "tokenizer.json", found, expected, "name another base model")
    return [tokenizer.id_to_token(number) or "" for number in range(tokenizer.get_vocab_size())]


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
