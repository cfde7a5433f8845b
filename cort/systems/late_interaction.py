"""Late interaction end to end (ColBERT): exact search over all token vectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cort.settings.config import LATE_INTERACTION, Config
from cort.systems.base import Option, Rule, VectorSearch

if TYPE_CHECKING:
    from cort.online.neural import Opening, Retriever
    from cort.online.why import Case, Reason


class LateInteraction(VectorSearch):
    """Exact search over the token vectors of a re-ranker."""

    rule = Rule("retrieve_tokens", "retrieve tokens", threads=True, gpu=True, memory_mb=8000, per_mb=1, minutes=720)
    noun = f"a re-ranker of the kind {LATE_INTERACTION}"

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """Keys of this kind."""

        retrieve: str

    @classmethod
    def takes(cls, entry: Config, config: Config) -> bool:
        """Look for the name under `rerankers`; `check` refuses other kinds of re-rankers."""
        return entry.get("retrieve") in config["rerankers"]

    @property
    def kind(self) -> str:
        """Name the kind of its re-ranker."""
        return LATE_INTERACTION

    def models(self) -> list[tuple[str, str]]:
        """Name the re-ranker."""
        return [("rerankers", self.entry["retrieve"])]

    def check(self) -> Iterator[str]:
        """Check that the re-ranker can retrieve."""
        name = self.entry["retrieve"]
        if (kind := self.config["rerankers"][name]["kind"]) != LATE_INTERACTION:
            expected = f"{self.noun}, which alone retrieves"
            fix = "name an encoder or change the kind"
            yield f"{self.place}.retrieve: found {name!r}, a {kind}, expected {expected}; {fix}"

    def describe(self) -> str:
        """Name the re-ranker."""
        return f"late interaction {self.entry['retrieve']}, exact search"

    def inputs(self, split: str) -> dict[str, str | list[str]]:
        """Model, tokens of the queries, token vectors of all passages."""
        name = self.entry["retrieve"]
        return {
            "model": self.results.weights("rerankers", name),
            "queries": self.results.tokens("rerankers", name, f"queries.{split}"),
            "passages": self.results.vectors("rerankers", name),
        }

    def options(self, split: str) -> list[Option]:
        """Give the precision of the model."""
        name = self.entry["retrieve"]
        return [Option("precision", self.config["rerankers"][name]["precision"], f"rerankers.{name}.precision")]

    def retriever(self, opening: Opening) -> Retriever:
        """Open the model and the token vectors."""
        return opening.tokens(self.entry["retrieve"])

    def explain(self, case: Case) -> Reason:
        """Name the most similar token of the passage for each token of the query."""
        return case.matches()
