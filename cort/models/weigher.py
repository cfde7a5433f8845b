"""The model of DeepCT (Dai & Callan, 2019): a weight for each word of a passage, read off its first subword.

On disk a transformers token-classification folder of one label. Words are what the tokenizer cuts into subwords: of a
WordPiece vocabulary, a token and those after it that begin with ``##``.
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

from cort.formats.artifacts import read_json
from cort.formats.tokens import Tokens
from cort.models.batching import Frame, Ids, Sequences, frame_text
from cort.models.loading import load_transformer
from cort.models.settings import FIX
from cort.models.tokenizer import Template, load_template
from cort.models.transformer import accepted_inputs, check_length, count_tokens, place, single
from cort.system.errors import input_error

CLASSIFIER = "AutoModelForTokenClassification"
CONTINUES = "##"


class Weigher(nn.Module):
    """Map passages to a number for each of their tokens."""

    def __init__(self, classifier: Any, length: int) -> None:
        super().__init__()
        self.classifier, self.length = classifier, length
        self.inputs = accepted_inputs(classifier, segments=False)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Weigh ``input_ids`` and their masks of shape (batch, length); returns (batch, the greatest length)."""
        found = self.classifier(**{name: batch[name] for name in self.inputs}).logits  # (batch, length, 1)
        return functional.pad(single(found[..., 0]), (0, self.length - found.shape[1]))

    def place(self, device: torch.device, precision: str) -> None:
        """Move to a device to be used, in `precision`."""
        place(self, self.classifier, device, precision)


@dataclass(frozen=True)
class Vocabulary:
    """Subwords by their ids, and which of them go on with a word."""

    subwords: Sequence[str]
    continues: npt.NDArray[np.bool_]

    def words(self, ids: Ids) -> tuple[list[str], list[int]]:
        """Put subwords together: words, and the place of the first subword of each."""
        first = [place for place, token in enumerate(ids) if not place or not self.continues[token]]
        ends = [*first[1:], len(ids)][: len(first)]
        return ["".join(map(self._text, ids[start:end])) for start, end in zip(first, ends, strict=True)], first

    def _text(self, token: int) -> str:
        return self.subwords[token].removeprefix(CONTINUES)


@dataclass(frozen=True)
class Words:
    """Passages cut to `length` tokens, special ones included, and their words."""

    tokens: Tokens
    template: Template
    vocabulary: Vocabulary
    length: int

    def sequences(self, rows: npt.NDArray[np.int64]) -> Sequences:
        """Frame the passages of some rows."""

        def frame(row: int) -> Frame:
            return frame_text(self.tokens[rows[row]], self.template, self.length, 0)

        return Sequences(self.lengths(rows), frame, self.template, str(self.tokens.path))

    def lengths(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.integer]:
        """Count the tokens of framed passages."""
        return np.clip(self.tokens.lengths[rows] + self.template.extra, 1, self.length)

    def of(self, row: int) -> tuple[list[str], list[int]]:
        """Words of a passage, and the place of the first subword of each in its framed tokens."""
        kept = self.tokens[row][: self.length - self.template.extra]
        words, first = self.vocabulary.words(kept)
        return words, [place + len(self.template.before) for place in first]


def quantised(weight: float, scale: int = 100, square_root: bool = False) -> int:
    """Make a whole number of a weight: 0 of a negative one, halves to the even neighbour."""
    positive = max(weight, 0.0)
    return round(scale * (math.sqrt(positive) if square_root else positive))


def term_weights(
    words: Sequence[str], weights: Sequence[float], scale: int = 100, square_root: bool = False
) -> dict[str, int]:
    """Weigh each different word as its heaviest occurrence; those of less than 1 are left out."""
    found: dict[str, int] = {}
    for word, weight in zip(words, weights, strict=True):
        if (times := quantised(weight, scale, square_root)) >= 1:
            found[word] = max(times, found.get(word, 0))
    return found


def load_vocabulary(folder: str | Path) -> Vocabulary:
    """Read the subwords of a model folder's tokenizer.

    :raises InputError: for another tokenizer than WordPiece's, whose tokens do not say where words begin.
    """
    path = Path(folder) / "tokenizer.json"
    model = read_json(path, FIX)["model"]
    kind, prefix = (model.of(dict).get(key) for key in ("type", "continuing_subword_prefix"))
    if (kind, prefix) != ("WordPiece", CONTINUES):
        found, expected = f"a tokenizer of the kind {kind}", f"WordPiece with {CONTINUES}, as BERT's"
        raise input_error(path, found, expected, "name another base model")
    ids = model["vocab"].read(dict[str, int])
    subwords = [""] * (max(ids.values()) + 1)
    for subword, number in ids.items():
        subwords[number] = subword
    return Vocabulary(subwords, np.array([one.startswith(CONTINUES) for one in subwords]))


def load_weigher(folder: str | Path, length: int) -> tuple[Weigher, Template]:
    """Load a model folder in evaluation mode, with its tokenizer's template.

    :param length: tokens a passage is cut to, special ones included.
    """
    classifier: Any = load_transformer(folder, CLASSIFIER, trained=True)
    if classifier.config.num_labels != 1:
        found = f"{classifier.config.num_labels} labels of each token"
        raise input_error(folder, found, "1, its weight", "name a model that weighs terms")
    template = load_template(folder, count_tokens(classifier))
    check_length("--passage-length", length, template.extra + 1, classifier)
    return Weigher(classifier, length).eval(), template
