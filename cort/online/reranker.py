"""Scores of a query's candidates by a cross-encoder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from cort.formats.tokens import Tokens
from cort.models.batching import Frame, Sequences, frame_pair
from cort.models.cross_encoder import load_cross_encoder
from cort.models.tokenizer import fingerprint
from cort.models.transformer import TOKEN_BUDGETS, forward_by_length
from cort.online.tokens import TokenIds, Tokenizer


class Reranker:
    """A cross-encoder, its tokenizer, and the token ids of all passages, mapped from their cache."""

    def __init__(self, folder: Path, form: str, precision: str, passages: Path, device: torch.device) -> None:
        """Load the model folder.

        :param form: form of the texts (`cort.formats.cleaning`).
        :param passages: the token cache, of this model's tokenizer.
        """
        self.passages = Tokens(passages, fingerprint(folder))
        self._model, self._template = load_cross_encoder(folder)
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
        settings, template = self._model.settings, self._template

        def frame(position: int) -> Frame:
            passage = self.passages[rows[position]]
            return frame_pair(query, passage, template, settings.query_length, settings.max_length)

        first = min(len(query), settings.query_length - template.extra) + template.pair_extra
        lengths = np.minimum(first + self.passages.lengths[np.asarray(rows)], settings.max_length)
        with torch.inference_mode():
            sequences = Sequences(lengths, frame, template.pad)
            logits = forward_by_length(
                self._model, sequences, self._device, TOKEN_BUDGETS[self._device.type]
            )  # (rows,)
        return logits.float().cpu().numpy().astype(np.float64)
