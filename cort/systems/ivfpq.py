"""Search over the candidates of an IVF-PQ index: of an encoder's vectors, or of token vectors for late interaction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cort.retrieval.graphs import TOKEN_INDEXES
from cort.settings.config import Config, is_sparse
from cort.systems.approximate import ApproximateSearch, IvfPqSearch
from cort.systems.base import Option, Results, Rule, VectorSearch
from cort.systems.dense import Dense, Graph
from cort.systems.late_interaction import LateInteraction

if TYPE_CHECKING:
    from cort.online.neural import Opening, Retriever
    from cort.online.why import Case, Reason


def exact_search(config: Config, system: str, results: Results | None = None) -> Dense | LateInteraction:
    """Return the search of all vectors that a system searches."""
    of_encoder = config["systems"][system]["retrieve"] in config["encoders"]
    return (Dense if of_encoder else LateInteraction)(config, system, results)


class IvfPq(ApproximateSearch, VectorSearch):
    """Candidates of an IVF-PQ index with the scores of exact search."""

    # Files of vectors are mapped; ids are in memory.
    rule = Rule("retrieve_ivfpq", "retrieve ivfpq", threads=True, memory_mb=8000, per_mb=0.2, minutes=720)
    noun = LateInteraction.noun
    indexes = tuple(TOKEN_INDEXES)

    @dataclass(frozen=True, kw_only=True)
    class Settings(LateInteraction.Settings):
        """Keys of this kind."""

        ivfpq: IvfPqSearch | None = None

    @property
    def exact(self) -> Dense | LateInteraction:
        """The same search without the index."""
        return exact_search(self.config, self.name, self.results)

    @classmethod
    def takes(cls, entry: Config, config: Config) -> bool:
        """Look for the key of the index alone, and a name that an index can be built for."""
        known = entry.get("retrieve") in config["encoders"] or LateInteraction.takes(entry, config)
        return "ivfpq" in entry and known and not Graph.takes(entry, config)

    def models(self) -> list[tuple[str, str]]:
        """Name the encoder or re-ranker."""
        return self.exact.models()

    def check(self) -> Iterator[str]:
        """Check that the index can be built, and audited as it is searched."""
        yield from self.exact.check()
        ((section, name),) = self.models()
        search, model = self.entry["ivfpq"], self.config[section][name]
        if is_sparse(model):
            yield f"{self.place}.ivfpq: found a sparse encoder, expected a dense one; remove ivfpq"
        # The dimension of a released model is only known to its files.
        elif "dimension" in model:
            yield from _check_index(f"{section}.{name}.ivfpq", model["ivfpq"], model["dimension"])
        if self.chosen_by_audit():
            candidates, audited = search["candidates"], self.config["audit"]["candidates"]
            if candidates != audited:
                found, expected = f"found {candidates} with probes auto", f"{audited} as in audit.candidates"
                yield f"{self.place}.ivfpq.candidates: {found}, expected {expected}; make them the same"

    def kept(self) -> Option | None:
        """Give the candidates of an encoder's vectors; those of late interaction are of each token."""
        of_encoder = isinstance(self.exact, Dense)
        return Option(None, self.entry["ivfpq"]["candidates"], f"{self.place}.ivfpq.candidates") if of_encoder else None

    def describe(self) -> str:
        """Name the model and the width."""
        return self.exact.describe().replace("exact search", f"IVF-PQ with {self.describe_width()}")

    def inputs(self, split: str) -> dict[str, str | list[str]]:
        """Name what exact search needs, the index, an audit."""
        return self.exact.inputs(split) | super().inputs(split)

    def options(self, split: str) -> list[Option]:
        """Give precision, width, and candidates."""
        candidates = Option("candidates", self.entry["ivfpq"]["candidates"], f"{self.place}.ivfpq.candidates")
        return [*self.exact.options(split), *super().options(split), candidates]

    def files(self) -> Iterator[str]:
        """Yield what exact search needs, the index, an audit."""
        yield from self.exact.files()
        yield from super().files()

    def retriever(self, opening: Opening) -> Retriever:
        """Open the model, the vectors and the index."""
        folder, candidates = Path(self.index_folder()), self.entry["ivfpq"]["candidates"]
        return opening.ivfpq(self.entry["retrieve"], folder, self.opened_width, candidates)

    def explain(self, case: Case) -> Reason:
        """Explain a score as exact search does."""
        return self.exact.explain(case)


def _check_index(place: str, index: Config, dimension: int) -> Iterator[str]:
    """Check that an index can be built as it is asked for."""
    if dimension % index["bytes"]:
        expected = f"a divisor of the dimension, {dimension}"
        yield f"{place}.bytes: found {index['bytes']}, expected {expected}; set bytes, or change the dimension"
    if index["sample"] is not None and index["sample"] < (index["lists"] or 0):
        found, expected = f"found {index['sample']}", f"{index['lists']} (lists) or more"
        yield f"{place}.sample: {found}, expected {expected}; raise it or lower lists"
