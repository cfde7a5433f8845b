"""Late interaction end to end (ColBERT): search over all token vectors, or over candidates of an IVF-PQ index."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from cort.retrieval.graphs import TOKEN_INDEXES
from cort.settings.config import LATE_INTERACTION, Config, token_encoders
from cort.settings.fields import setting
from cort.systems.approximate import ApproximateSearch, Width
from cort.systems.base import Option, VectorSearch

if TYPE_CHECKING:
    from cort.online.neural import Opening, Retriever
    from cort.online.why import Case, Reason


@dataclass(frozen=True, kw_only=True)
class IvfPqSearch(Width):
    """Search of an IVF-PQ index of token vectors."""

    probes: int | Literal["auto"] = setting(32, ge=1, le=100_000_000)
    """Width of the search, the lists that are read for each token of a query (nprobe). `auto` takes the smallest of
    `audit.probes` that reaches `recall`."""
    candidates: int = setting(1024, ge=1, le=10_000_000)
    """Nearest vectors taken for each token of a query; the passages of all are scored."""


class LateInteraction(VectorSearch):
    """Exact search over the token vectors of a re-ranker."""

    rules: ClassVar[tuple[str, ...]] = ("retrieve_tokens",)
    noun = f"a re-ranker of the kind {LATE_INTERACTION}"

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """Keys of this kind."""

        retrieve: str

    @classmethod
    def takes(cls, entry: Config, config: Config) -> bool:
        """Look for the name under `rerankers`; `check` refuses other kinds of re-rankers."""
        name = entry.get("retrieve")
        return name in config.get("rerankers", {}) and name not in config["encoders"]

    @classmethod
    def sound(cls, entry: Config, config: Config) -> Config | None:
        """Keep the entry if the re-ranker can retrieve."""
        return entry if entry["retrieve"] in token_encoders(config) else None

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
        reranker = self.config["rerankers"][name]
        if reranker is not None and (kind := reranker["kind"]) != LATE_INTERACTION:
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


class IvfPq(ApproximateSearch, LateInteraction):
    """Late interaction over the candidates of an IVF-PQ index."""

    rules: ClassVar[tuple[str, ...]] = ("retrieve_ivfpq",)
    indexes = tuple(TOKEN_INDEXES)

    @dataclass(frozen=True, kw_only=True)
    class Settings(LateInteraction.Settings):
        """Keys of this kind."""

        ivfpq: IvfPqSearch | None = None
        """With a re-ranker of the kind `late_interaction`, take the candidates from its IVF-PQ index and score these
        exactly, instead of all passages (ColBERT, end to end). Needs faiss, `pip install faiss-cpu==1.15.1`."""

    @classmethod
    def takes(cls, entry: Config, config: Config) -> bool:
        """Look for the key of the index."""
        return "ivfpq" in entry and super().takes(entry, config)

    def check(self) -> Iterator[str]:
        """Check that the index can be built, and audited as it is searched."""
        yield from LateInteraction.check(self)
        name, search = self.entry["retrieve"], self.entry["ivfpq"]
        # The dimension of a released model is only known to its files.
        if "dimension" in (reranker := self.config["rerankers"][name] or {}):
            yield from _check_index(f"rerankers.{name}.ivfpq", reranker["ivfpq"], reranker["dimension"])
        if self.chosen_by_audit() and self.config["audit"] is not None:
            candidates, audited = search["candidates"], self.config["audit"]["candidates"]
            if candidates != audited:
                found, expected = f"found {candidates} with probes auto", f"{audited} as in audit.candidates"
                yield f"{self.place}.ivfpq.candidates: {found}, expected {expected}; make them the same"

    def describe(self) -> str:
        """Name the re-ranker and the width."""
        return f"late interaction {self.entry['retrieve']}, IVF-PQ with {self.describe_width()}"

    def inputs(self, split: str) -> dict[str, str | list[str]]:
        """Name what exact search needs, the index, an audit."""
        return LateInteraction.inputs(self, split) | super().inputs(split)

    def options(self, split: str) -> list[Option]:
        """Give precision, width, and candidates per token."""
        candidates = Option("candidates", self.entry["ivfpq"]["candidates"], f"{self.place}.ivfpq.candidates")
        return [*LateInteraction.options(self, split), *super().options(split), candidates]

    def files(self) -> Iterator[str]:
        """Yield what exact search needs, the index, an audit."""
        yield from LateInteraction.files(self)
        yield from super().files()

    def retriever(self, opening: Opening) -> Retriever:
        """Open the model, the token vectors and the index."""
        folder, candidates = Path(self.index_folder()), self.entry["ivfpq"]["candidates"]
        return opening.ivfpq(self.entry["retrieve"], folder, self.opened_width, candidates)


def _check_index(place: str, index: Config, dimension: int) -> Iterator[str]:
    """Check that an index can be built as it is asked for."""
    if dimension % index["bytes"]:
        expected = f"a divisor of the dimension, {dimension}"
        yield f"{place}.bytes: found {index['bytes']}, expected {expected}; set bytes, or change the dimension"
    if index["sample"] is not None and index["sample"] < (index["lists"] or 0):
        found, expected = f"found {index['sample']}", f"{index['lists']} (lists) or more"
        yield f"{place}.sample: {found}, expected {expected}; raise it or lower lists"
