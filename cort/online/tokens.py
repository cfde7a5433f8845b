"""Token ids of texts that are not in a token cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.formats.cleaning import convert
from cort.models.tokenizer import load_tokenizer

TokenIds = npt.NDArray[np.int32]


class Tokenizer:
    """Token ids as the stage `tokenize` makes them."""

    def __init__(self, folder: Path, form: str) -> None:
        self._tokenizer = load_tokenizer(folder)
        self._form = form

    def __call__(self, texts: Sequence[str]) -> list[TokenIds]:
        """Convert to the form of the model's texts and tokenize, without special tokens."""
        converted = convert(pa.array(texts, pa.string()), self._form).to_pylist()
        encodings = self._tokenizer.encode_batch_fast(converted, add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]
