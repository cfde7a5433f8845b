"""Late interaction online: queries to a vector per token, and these to the passages that match them best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from cort.formats.records import Ranking
from cort.formats.token_embeddings import open_token_shards
from cort.formats.tokens import Tokens
from cort.models.late_interaction import QUERY, load_token_encoder, origin_of
from cort.online.manifest import Model
from cort.retrieval.max_similarity import TokenIndex
from cort.retrieval.token_scores import QueryVectors, by_query

TokenIds = npt.NDArray[np.int32]
Tokenize = Callable[[Sequence[str]], list[TokenIds]]


class TokenSearch:
    """A late-interaction model, and the token vectors of all passages, mapped from their files.

    Results are those of the stage `retrieve_tokens` but for the last bits of scores, as padding changes vectors.
    """

    def __init__(self, model: Model, make_tokenizer: Callable[[Path, str], Tokenize], device: torch.device) -> None:
        self.tokenize = make_tokenizer(model.model, model.cleaning)
        self._model, self._template = load_token_encoder(model.model)
        shards = open_token_shards(model.files, origin_of(model.model, self._model.settings))
        self._model.place(device, model.precision)
        self._device = device
        self._index = TokenIndex(shards, self._model.settings.similarity, device.type)

    def encode(self, tokens: Sequence[TokenIds]) -> list[QueryVectors]:
        """Vectors of the tokens of some queries."""
        texts = self._model.texts(Tokens.of_texts(tokens), self._template, QUERY)
        return by_query(texts.vectors(self._model, np.arange(len(tokens)), self._device))

    def search(self, vectors: Sequence[QueryVectors], depth: int) -> list[Ranking]:
        """Rank all passages for each query."""
        found = self._index.search(vectors, depth)
        return [Ranking("", self._index.ids(places), scores) for scores, places in found]
