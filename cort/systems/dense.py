"""Search over the vectors of an encoder: of all of them, or through a graph index."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cort.retrieval.graphs import GRAPHS, INDEXES
from cort.settings import paths
from cort.settings.config import Config, is_sparse, listed
from cort.settings.fields import setting
from cort.systems.approximate import ApproximateSearch, IvfPqSearch, Width
from cort.systems.base import Option, Rule, VectorSearch

if TYPE_CHECKING:
    from cort.online.neural import Opening, Retriever
    from cort.online.why import Case, Reason


@dataclass(frozen=True, kw_only=True)
class OnngSearch(Width):
    """Search of an ONNG."""

    epsilon: float | Literal["auto"] = setting(0.1, ge=-1, le=100)
    """Width of the search; the distance explored is (1 + epsilon) times that of the worst result. `auto` takes the
    smallest of `audit.epsilons` that reaches `recall`."""


@dataclass(frozen=True, kw_only=True)
class HnswSearch(Width):
    """Search of an HNSW index."""

    ef: int | Literal["auto"] = setting(1000, ge=1, le=1_000_000)
    """Width of the search, the number of candidates it keeps; `depth` or more. `auto` takes the smallest of `audit.efs`
    that reaches `recall`."""


class Dense(VectorSearch):
    """Exact search over the vectors of an encoder."""

    rule = Rule("retrieve", "retrieve exact", threads=True, gpu=True, devices=True, memory_mb=4000, per_mb=2)
    noun = "an encoder"
    divisible = True

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """Keys of this kind."""

        retrieve: str

    @property
    def kind(self) -> str:
        """Name exact search."""
        return "exact"

    def fits_engines(self) -> bool:
        """Tell whether all vectors are searched."""
        return self.divisible

    def models(self) -> list[tuple[str, str]]:
        """Name the encoder."""
        name: str = self.entry["retrieve"]
        return [("encoders", name)] if name in self.config["encoders"] else []

    def describe(self) -> str:
        """Name the encoder."""
        return f"encoder {self.entry['retrieve']}, exact search"

    def inputs(self, split: str) -> dict[str, str | list[str]]:
        """Vectors of the queries and of all passages."""
        encoder = self.entry["retrieve"]
        queries = self.results.at(paths.QUERY_VECTORS, encoder=encoder, split=split)
        return {"queries": queries, "passages": self.results.vectors("encoders", encoder)}

    def retriever(self, opening: Opening) -> Retriever:
        """Open the encoder and the vectors."""
        return opening.exact(self.entry["retrieve"])

    def explain(self, case: Case) -> Reason:
        """Show the most similar passage token for each query token, because a vector has no parts."""
        matches, similarity = case.nearest_tokens()
        about = (
            f"The score is the similarity ({similarity.replace('_', ' ')}) of one vector of the query and one of the "
            "passage, which has no parts. For orientation, the table shows the passage token with the most similar "
            "vector (cosine) for each query token. These values do not add up to the score."
        )
        rows: list[list[str | float | int | None]] = [[match.token, match.match, match.similarity] for match in matches]
        return case.reason(about, columns=["token", "nearest in the passage", "cosine"], rows=rows)


class Graph(ApproximateSearch, Dense):
    """Approximate search over the vectors of an encoder, through a graph index."""

    rule = Rule("retrieve_graph", "retrieve graph", threads=True, memory_mb=8000, per_mb=0)
    divisible = False
    needs_all = True
    indexes = tuple(GRAPHS)

    @dataclass(frozen=True, kw_only=True)
    class Settings(Dense.Settings):
        """Keys of this kind."""

        onng: OnngSearch | None = None
        """With an encoder, search its graph index instead of all vectors."""
        hnsw: HnswSearch | None = None
        """With an encoder, search its HNSW index instead of all vectors."""
        ivfpq: IvfPqSearch | None = None
        """With an encoder, or a re-ranker of the kind `late_interaction`, take the candidates from its IVF-PQ index and
        score these exactly, instead of all passages. Needs faiss, `pip install faiss-cpu==1.15.1`."""

    @classmethod
    def takes(cls, entry: Config, config: Config) -> bool:
        """Look for the key of an index."""
        return "retrieve" in entry and any(name in entry for name in GRAPHS)

    def check(self) -> Iterator[str]:
        """Check that there is one index, over angles, and that its search is wide enough."""
        indexes = [name for name in INDEXES if name in self.entry]
        if len(indexes) > 1:
            yield f"{self.place}: found {listed(indexes)}, expected one of them; make two systems"
        encoder = self.config["encoders"].get(self.entry["retrieve"], {})
        for name in indexes:
            if is_sparse(encoder):
                yield f"{self.place}.{name}: found a sparse encoder, expected a dense one; remove {name}"
            if encoder.get("similarity") == "inner_product":
                yield f"{self.place}.{name}: found an encoder of inner products, expected one of angles; remove {name}"
        if "hnsw" in self.entry and (largest := max(self.config["audit"]["efs"])) < (depth := self.config["depth"]):
            yield f"audit.efs: found {largest} at most, expected one of {depth} (depth) or more; add it"

    def kept(self) -> Option | None:
        """Give the candidates that a search of an HNSW index keeps."""
        ef = self.entry.get("hnsw", {}).get("ef")
        return Option(None, ef, f"{self.place}.hnsw.ef") if isinstance(ef, int) else None

    def describe(self) -> str:
        """Name the encoder and the index."""
        return f"encoder {self.entry['retrieve']}, {self.index.upper()} with {self.describe_width()}"

    def inputs(self, split: str) -> dict[str, str | list[str]]:
        """Vectors of the queries, the index, an audit."""
        queries = Dense.inputs(self, split)["queries"]
        return {"queries": queries, **super().inputs(split)}

    def files(self) -> Iterator[str]:
        """Yield the encoder, its vectors, which scores are taken from, and the index."""
        yield from Dense.files(self)
        yield from super().files()

    def retriever(self, opening: Opening) -> Retriever:
        """Open the encoder and the graph."""
        return opening.graph(self.entry["retrieve"], self.index, Path(self.index_folder()), self.opened_width)
