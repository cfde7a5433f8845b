"""Late interaction online: queries to a vector per token, and these to the passages that match them best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from cort.formats.records import Ranking
from cort.formats.token_embeddings import open_token_shards
from cort.formats.tokens import Tokens
from cort.models.late_interaction import QUERY, InteractingPairs, load_token_encoder, origin_of
from cort.online.manifest import Model
from cort.online.tokenizer import TokenIds, Tokenizer
from cort.retrieval.ivfpq import IvfPqSearch
from cort.retrieval.max_similarity import QueryVectors, Search, TokenIndex, by_query


class TokenSearch:
    """A late-interaction model, and the token vectors of all passages, mapped from their files.

    Results are those of the stage `retrieve_tokens` but for the last bits of scores, as padding changes vectors.
    """

    def __init__(self, model: Model, device: torch.device) -> None:
        self.tokenize = Tokenizer(model.model, model.cleaning)
        self.model, self._template = load_token_encoder(model.model)
        self.shards = open_token_shards(model.files, origin_of(model.model, self.model.settings))
        self.model.place(device, model.precision)
        self.device = device
        self.index = TokenIndex(self.shards, self.model.settings.similarity, device.type)

    def encode(self, tokens: Sequence[TokenIds]) -> list[QueryVectors]:
        """Vectors of the tokens of some queries."""
        texts = self.model.texts(Tokens.of_texts(tokens), self._template, QUERY)
        return by_query(texts.vectors(self.model, np.arange(len(tokens)), self.device))

    def pairs(self, query: str, passage: str) -> InteractingPairs:
        """Pair a query with a passage, each being row 0."""
        queries, passages = self.tokenize([query]), self.tokenize([passage], "passage")
        return self.model.pairs(Tokens.of_texts(queries), Tokens.of_texts(passages), self._template)

    def search(self, vectors: Sequence[QueryVectors], depth: int) -> list[Ranking]:
        """Rank all passages for each query."""
        return ranked(self.index, vectors, depth)


@dataclass(frozen=True)
class TokenCandidates:
    """An IVF-PQ index of token vectors, and how a system searches it, with the results of `retrieve_ivfpq`."""

    index: IvfPqSearch

    def search(self, vectors: Sequence[QueryVectors], depth: int) -> list[Ranking]:
        """Rank the passages that the index finds for each query."""
        return ranked(self.index, vectors, depth)


def ranked(search: Search, vectors: Sequence[QueryVectors], depth: int) -> list[Ranking]:
    """Rank passages for queries without ids."""
    return [Ranking("", search.ids(places), scores) for scores, places in search.search(vectors, depth)]
