"""Learned sparse retrieval: search for the tokens to which a sparse encoder gives weights (SPLADE)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cort.settings import paths
from cort.settings.config import Config, is_sparse
from cort.systems.base import LuceneIndex, Rule
from cort.systems.dense import Dense

if TYPE_CHECKING:
    from cort.online.neural import Opening, Retriever
    from cort.online.why import Case, Reason

COLUMNS = ["token", "expansion of", "in the query", "in the passage", "adds"]


class Sparse(Dense):
    """Exact search over the impacts of a sparse encoder, with Lucene."""

    rule = Rule("retrieve_impacts", "retrieve impacts", threads=True, java=True, memory_mb=3500, per_mb=0)
    noun = "a sparse encoder"
    divisible = False

    @classmethod
    def takes(cls, entry: Config, config: Config) -> bool:
        """Look for a sparse encoder of the name."""
        return is_sparse(config["encoders"].get(entry.get("retrieve"), {}))

    @property
    def kind(self) -> str:
        """Name learned sparse retrieval."""
        return "sparse"

    def lucene_index(self) -> LuceneIndex:
        """Describe the index of the impacts."""
        from cort.retrieval.anserini import IMPACTS

        encoder = self.entry["retrieve"]
        return LuceneIndex(encoder, self.results.at(paths.IMPACT_INDEX, encoder=encoder), (IMPACTS, ""))

    def describe(self) -> str:
        """Name the encoder, and how queries are encoded."""
        encoder = self.config["encoders"][self.entry["retrieve"]]
        without = ", queries without a model" if encoder.get("queries") == "none" else ""
        return f"sparse encoder {self.entry['retrieve']}, exact search with Lucene{without}"

    def inputs(self, split: str) -> dict[str, str | list[str]]:
        """Impacts of the queries, and the index."""
        queries = self.results.at(paths.QUERY_IMPACTS, encoder=self.entry["retrieve"], split=split)
        return {"queries": queries, "index": self.lucene_index().manifest}

    def files(self) -> Iterator[str]:
        """Yield the encoder, a shard of impacts, which says in what precision queries are encoded, and the index."""
        for model in self.models():
            yield self.results.weights(*model)
            yield self.results.vectors(*model)[0]
        yield self.lucene_index().manifest

    def retriever(self, opening: Opening) -> Retriever:
        """Open the encoder; the index is open."""
        return opening.sparse(self.entry["retrieve"])

    def explain(self, case: Case) -> Reason:
        """List the tokens that query and passage share, and which of them expansion has added."""
        rows = sorted(case.shared_tokens(), key=lambda row: -float(row[-1] or 0))
        if not rows:
            return case.reason("Query and passage share no token.")
        about = (
            "Each token adds the product of its weights in query and passage, which are 100 times the model's. A "
            "text that does not contain a token was expanded by it. The score is the sum, slightly lowered among ties."
        )
        return case.reason(about, columns=COLUMNS, rows=rows, total=True)
