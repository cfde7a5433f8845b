"""Texts to token ids, one at a time, as the stage `tokenize` makes them of many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.formats.cleaning import convert
from cort.models.tokenizer import load_tokenizer, read_prompts

TokenIds = npt.NDArray[np.int32]


class Tokenizer:
    """Token ids of texts as the stage `tokenize` makes them."""

    def __init__(self, folder: Path, form: str) -> None:
        self._tokenizer, self._form, self._prompts = load_tokenizer(folder), form, read_prompts(folder)

    def __call__(self, texts: Sequence[str], kind: str = "query") -> list[TokenIds]:
        """Convert texts to the form of the model's and tokenize, without special tokens."""
        prompt = self._prompts[kind]
        converted = [f"{prompt}{text}" for text in convert(pa.array(texts, pa.string()), self._form).to_pylist()]
        encodings = self._tokenizer.encode_batch_fast(converted, add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]

    def names(self, tokens: Iterable[int]) -> list[str]:
        """Tokens as the vocabulary has them."""
        return [self._tokenizer.id_to_token(int(token)) or "" for token in tokens]
