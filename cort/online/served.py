"""Encoders and re-rankers behind an API, for live queries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cort.config.collection import TextLimits
from cort.config.models import Service
from cort.models.embeddings import Vectors, embed_now, name_of
from cort.models.served_scores import score_now
from cort.online.passages import Texts
from cort.retrieval.vectors import open_vectors


class ServedEncoder:
    """An encoder behind an API, and the vectors of the passages. No query is kept."""

    def __init__(self, service: Service, files: Sequence[str]) -> None:
        self._service, self.fingerprint = service, name_of(service)
        self.vectors = open_vectors(files, model=self.fingerprint)

    @staticmethod
    def tokenize(texts: Sequence[str]) -> Sequence[str]:
        """Leave tokens to the service."""
        return texts

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Ask for vectors of shape (texts, e), rounded as those of the passages are stored."""
        vectors = embed_now([(self._service.query_prompt or "") + text for text in texts], self._service)  # (texts, e)
        return self.vectors.rounded(vectors)


class ServedReranker:
    """A re-ranker behind an API, and the passages. No score is kept."""

    def __init__(self, model: str, limits: TextLimits, passages: Path) -> None:
        self._model, self._limits, self._texts = model, limits, Texts(passages)

    def score(self, text: str, rows: Sequence[int]) -> npt.NDArray[np.float64]:
        """Ask for the scores of the passages in some rows of the collection for a query, (rows,)."""
        return score_now(text, self._texts.at(rows), self._model, self._limits).astype(np.float64)
