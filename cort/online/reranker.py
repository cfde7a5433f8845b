"""Scores of a query's candidates by a cross-encoder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from cort.formats.tokens import Tokens
from cort.models.cross_encoder import Pairs
from cort.models.rerankers import load_reranker
from cort.models.tokenizer import fingerprint
from cort.online.tokens import TokenIds, Tokenizer


class Reranker:
    """A cross-encoder, its tokenizer, and the token ids of all passages, mapped from their cache."""

    def __init__(self, folder: Path, form: str, precision: str, passages: Path, device: torch.device) -> None:
        """Load the model folder.

        :param form: form of the texts (`cort.formats.cleaning`).
        :param passages: the token cache, of this model's tokenizer.
        """
        self.passages = Tokens(passages, fingerprint(folder))
        self._model, self._template = load_reranker(folder)
        self._model.place(device, precision)
        self._tokenizer = Tokenizer(folder, form)
        self._device = device

    def tokenize(self, text: str) -> TokenIds:
        """Token ids of a query."""
        return self._tokenizer([text])[0]

    def score(self, query: TokenIds, rows: Sequence[int]) -> npt.NDArray[np.float64]:
        """Score the passages of some rows of the collection."""
        if not len(rows):
            return np.empty(0)
        pairs = Pairs(Tokens.of_texts([query]), self.passages, self._template, self._model.settings)
        with torch.inference_mode():
            logits = pairs.score(self._model, np.zeros(len(rows), np.int64), np.asarray(rows), self._device)  # (rows,)
        return logits.float().cpu().numpy().astype(np.float64)
