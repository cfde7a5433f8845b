"""An encoder behind an API, for live queries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cort.config.models import Service
from cort.formats.shards import STORAGE, open_shards
from cort.models.embeddings import Vectors, embed_now, name_of


class ServedEncoder:
    """An encoder behind an API, and the shards of the passages' vectors. No query is kept."""

    def __init__(self, service: Service, files: Sequence[str]) -> None:
        self._service, self.fingerprint = service, name_of(service)
        self.shards = open_shards(files, self.fingerprint)

    @staticmethod
    def tokenize(texts: Sequence[str]) -> Sequence[str]:
        """Leave tokens to the service."""
        return texts

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Ask for vectors of shape (texts, e), rounded as those of the passages are stored."""
        vectors = embed_now([(self._service.query_prompt or "") + text for text in texts], self._service)  # (texts, e)
        return vectors.astype(STORAGE[self.shards[0].storage].to_pandas_dtype()).astype(np.float32)
