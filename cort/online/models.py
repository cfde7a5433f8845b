"""What of a searcher computes, by name; nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from cort.online.manifest import System

if TYPE_CHECKING:
    from cort.online.neural import ExactSearch, GraphSearch, QueryEncoder, Reranker
    from cort.online.token_vectors import TokenCandidates, TokenSearch

#: what makes vectors of queries, and what searches with them; both are one where a vector is made of each token
Retriever: TypeAlias = (
    "tuple[QueryEncoder, ExactSearch | GraphSearch] | tuple[TokenSearch, TokenSearch | TokenCandidates]"
)


@dataclass(frozen=True)
class Models:
    """What computes: by name of the encoder or re-ranker; graphs and candidates by name of the system."""

    encoders: Mapping[str, QueryEncoder] = field(default_factory=dict)
    exact: Mapping[str, ExactSearch] = field(default_factory=dict)
    graphs: Mapping[str, GraphSearch] = field(default_factory=dict)
    rerankers: Mapping[str, Reranker] = field(default_factory=dict)
    token_encoders: Mapping[str, TokenSearch] = field(default_factory=dict)
    candidates: Mapping[str, TokenCandidates] = field(default_factory=dict)

    def retriever(self, name: str, system: System) -> Retriever:
        """Return what a system that retrieves by vectors does it with."""
        if "token_encoder" in system:
            found = self.token_encoders[system["token_encoder"]]
            return found, self.candidates.get(name, found)
        return self.encoders[system["encoder"]], self.graphs.get(name) or self.exact[system["encoder"]]
