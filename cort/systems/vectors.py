"""Search over what models make of the passages: types of models times types of indexes.

`VectorSearch` has what all have in common, and what searches of dense encoders do. Its subclasses are for other models
(`TokenSearch`, `Sparse`) or for approximate indexes (`Graph`, `IvfPq`); `TokenIvfPq` has one of both, the model first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from cort.config import models, paths
from cort.config.entries import LATE_INTERACTION, Config, listed
from cort.config.systems import WHOLE, ExactSearch, HnswSearch, IvfPqSearch, OnngSearch, Reduced, Retrieving
from cort.retrieval.indexes import GRAPHS, INDEXES, RECALL
from cort.runtime.sections import Maybe, Section
from cort.systems.base import LuceneIndex, System

if TYPE_CHECKING:
    from cort.config.learners import Model
    from cort.formats.records import Ranking
    from cort.systems.live import Batch, Opening, Retriever
    from cort.systems.results import Results

Files: TypeAlias = "dict[str, str | list[str]]"


class Compressed(Retrieving):
    """Keys of every search that can have an IVF-PQ index."""

    ivfpq: Maybe[IvfPqSearch] = None
    """Take candidates from the model's IVF-PQ index and score them exactly, instead of all passages."""


class Indexed(Compressed):
    """Keys with a dense encoder, which can have every index."""

    onng: Maybe[OnngSearch] = None
    """With an encoder, search its graph index instead of all vectors."""
    hnsw: Maybe[HnswSearch] = None
    """With an encoder, search its HNSW index instead of all vectors."""


class VectorSearch(System):
    """A search of all that a model makes of the passages.

    :cvar section: of the model in the config; `sparse` tells whether it is sparse, and descriptions use `word`.
    :cvar indexes: the types of approximate index, of which the entry names one; none with exact search.
    :cvar reads_passages: whether runs are made from the vectors of the passages, and not from an index alone.
    """

    noun = "a dense encoder"
    any_depth = True
    section: ClassVar[str] = "encoders"
    sparse: ClassVar[bool] = False
    word: ClassVar[str] = "encoder"
    indexes: ClassVar[tuple[str, ...]] = ()
    reads_passages: ClassVar[bool] = True

    entry: Retrieving

    @classmethod
    def takes(cls, entry: Mapping[str, Any], results: Results) -> bool:
        """Look for the type of the model, and for a key of an index."""
        model = results.models[cls.section].get(entry.get("retrieve", ""))
        has_index = not cls.indexes or not entry.keys().isdisjoint(cls.indexes)
        return model is not None and isinstance(model, models.Sparse) == cls.sparse and has_index

    @property
    def encoder(self) -> str:
        """Name of the model, by which the files of its vectors are called."""
        return self.entry.retrieve

    @property
    def model(self) -> Model:
        """Settings of the model."""
        return self.results.models[self.section][self.encoder]

    def queries(self, split: str) -> Files:
        """Name what passages are searched with."""
        return {"queries": self.results.at(paths.QUERY_VECTORS, encoder=self.encoder, split=split)}

    def models(self) -> list[tuple[str, str]]:
        """Name the model."""
        return [(self.section, self.encoder)]

    def describe(self) -> str:
        """Name the model, and say how it is searched."""
        return f"{self.word} {self.encoder}, {self.describe_search()}"

    def describe_search(self) -> str:
        """Say how the vectors are searched."""
        return "exact search"

    def inputs(self, split: str) -> Files:
        """Name what is searched, and with what."""
        passages = self.results.vectors(self.section, self.encoder)
        return self.queries(split) | ({"passages": passages} if self.reads_passages else {})

    def files(self) -> Iterator[str]:
        """Yield the model, and what it makes of the passages."""
        if not self.results.is_served(self.section, self.encoder):
            yield self.results.weights(self.section, self.encoder)
        yield from self.results.vectors(self.section, self.encoder)

    def stored(self) -> Iterator[str]:
        """Yield the vectors, if they are searched."""
        yield from super().stored()
        yield from self.results.vectors(self.section, self.encoder) if self.reads_passages else ()

    def search(self, batch: Batch, depth: int) -> list[Ranking]:
        """Encode the queries, unless another system of the batch has, and search."""
        encoder, index = batch.searcher.models.retrievers[self.name]
        vectors = batch.vectors(encoder)
        with batch.timed("search"):
            rankings: list[Ranking] = index.search(vectors, depth)
        return rankings


class Dense(VectorSearch):
    """Exact search over the vectors of an encoder."""

    rule = "retrieve"
    divisible = True
    noun = "a dense encoder and exact search"
    method = "exact"

    Settings = ExactSearch
    entry: ExactSearch

    @property
    def reduced(self) -> Reduced:
        """Return what the entry and its encoder say."""
        dimension, storage = self.entry.dimension, self.entry.storage
        first = isinstance(self.model, models.Vectors) and bool(self.model.matryoshka)
        return Reduced(dimension, storage, first) if dimension or storage else WHOLE

    def fits_engines(self) -> bool:
        """Engines have exact search; only stored vectors are written for them."""
        return self.reduced == WHOLE

    def check(self) -> Iterator[str]:
        """Check that a vector has so many numbers."""
        yield from super().check()
        # The dimension of a released model is only known to its files.
        most = getattr(self.model, "dimension", None) or 65_536
        if (dimension := self.entry.dimension or 1) > most:
            expected = f"at most {most}, those of {self.encoder}"
            yield f"{self.place}.dimension: found {dimension}, expected {expected}; lower it"

    def describe_search(self) -> str:
        """Say what is searched, too."""
        dimension, storage, first = self.reduced
        how = f"{dimension} {'first numbers' if first else 'principal components'} of each vector" if dimension else ""
        return ", ".join(filter(None, ["exact search", how, storage]))

    def options(self, split: str) -> Config:
        """Give how vectors are made smaller, if they are."""
        reduced = self.reduced
        how = {"dimension": reduced.dimension, "storage": reduced.storage, "matryoshka": reduced.first}
        return {key: value for key, value in how.items() if value}

    def retriever(self, opening: Opening) -> Retriever:
        """Open the encoder and the vectors."""
        return opening.exact(self.encoder, self.reduced)


class Sparse(VectorSearch):
    """Exact search over the impacts of a sparse encoder, with Lucene (SPLADE)."""

    rule = "retrieve_impacts"
    noun = "a sparse encoder"
    sparse = True
    word = "sparse encoder"
    method = "sparse"
    reads_passages = False

    Settings = Retrieving

    def lucene_index(self) -> LuceneIndex:
        """Describe the index of impacts."""
        from cort.retrieval.anserini import IMPACTS

        manifest = self.results.at(paths.IMPACT_INDEX, encoder=self.encoder)
        return LuceneIndex(self.encoder, manifest, (IMPACTS, ""))

    def describe_search(self) -> str:
        """Say how queries are encoded, too."""
        return "exact search with Lucene" + ", queries without a model" * (getattr(self.model, "queries", "") == "none")

    def queries(self, split: str) -> Files:
        """Name the impacts of the queries, and the index."""
        queries = self.results.at(paths.QUERY_IMPACTS, encoder=self.encoder, split=split)
        return {"queries": queries, "index": self.lucene_index().manifest}

    def files(self) -> Iterator[str]:
        """Yield the encoder, a shard of impacts, which says in what precision queries are encoded, and the index."""
        encoder, shard, *_ = super().files()
        yield from (encoder, shard, self.lucene_index().manifest)

    def retriever(self, opening: Opening) -> Retriever:
        """Open the encoder; the index is open."""
        return opening.sparse(self.encoder)


class TokenSearch(VectorSearch):
    """What searches of the token vectors of a re-ranker have in common."""

    noun = f"a re-ranker of the kind {LATE_INTERACTION}"
    section = "rerankers"
    word = "late interaction"

    Settings: ClassVar[type[Section]] = Compressed
    entry: Compressed

    def check(self) -> Iterator[str]:
        """Refuse other types of re-rankers."""
        yield from super().check()
        if (model_type := self.model.kind) != LATE_INTERACTION:
            expected, fix = f"{self.noun}, which alone retrieves", "name an encoder or change the kind"
            yield f"{self.place}.retrieve: found {self.encoder!r}, a {model_type}, expected {expected}; {fix}"

    def queries(self, split: str) -> Files:
        """Name the model, and the tokens of the queries, which it encodes during the search."""
        tokens = self.results.tokens(self.section, self.encoder, f"queries.{split}")
        return {"model": self.results.weights(self.section, self.encoder), "queries": tokens}

    def options(self, split: str) -> Config:
        """Give the precision of the model, too."""
        return {"precision": self.model.precision, **super().options(split)}


class LateInteraction(TokenSearch):
    """Late interaction end to end (ColBERT): exact search over all token vectors."""

    rule = "retrieve_tokens"
    method = LATE_INTERACTION

    def retriever(self, opening: Opening) -> Retriever:
        """Open the model and the token vectors."""
        return opening.tokens(self.encoder)


class ApproximateSearch(VectorSearch):
    """A search of an approximate index, of a given width or of one that an audit chooses by its recall."""

    any_depth = False

    @property
    def method(self) -> str:
        """Name the type of the index."""
        return next(name for name in self.indexes if getattr(self.entry, name))

    @property
    def searching(self) -> OnngSearch | HnswSearch | IvfPqSearch:
        """How the index is searched."""
        settings: OnngSearch | HnswSearch | IvfPqSearch = getattr(self.entry, self.method)
        return settings

    @property
    def width(self) -> float | str:
        """Width of the search: a number, or auto."""
        width: float | str = getattr(self.searching, INDEXES[self.method].parameter)
        return width

    @property
    def recall(self) -> float:
        """Recall to reach with the width auto."""
        return self.searching.recall or RECALL

    @property
    def index(self) -> str:
        """Path of the index's meta.json, which stands for its folder."""
        return self.results.at(paths.GRAPH, index=self.method, encoder=self.encoder) + "meta.json"

    def approximate_index(self) -> tuple[str, str]:
        """Name the model and the type of the index."""
        return self.encoder, self.method

    def chosen_by_audit(self) -> bool:
        """Tell whether the width is auto."""
        return self.width == "auto"

    def audit_on(self, split: str) -> str:
        """Path of the audit that chooses the width: on validation queries, or else on the split's own.

        :param split: if it is not evaluated (or ""), the first split that is evaluated, or else ranked, is used.
        """
        splits = self.results.evaluated_splits or self.results.ranked_splits
        own = split if split in splits else splits[0]
        chosen = "validation" if "validation" in self.results.splits else own
        return self.results.at(paths.AUDIT, split=chosen, encoder=self.encoder, index=self.method)

    def fill(self, entry: Config) -> None:
        """Add the recall to reach."""
        if self.chosen_by_audit():
            entry[self.method].setdefault("recall", self.recall)

    def describe_search(self) -> str:
        """Name the index and the width."""
        name = {"ivfpq": "IVF-PQ"}.get(self.method, self.method.upper())
        if self.chosen_by_audit():
            return f"{name} with recall {self.recall:g} of exact search"
        return f"{name} with {INDEXES[self.method].parameter} {self.width}"

    def inputs(self, split: str) -> Files:
        """Name the index, too, and the audit if it chooses the width."""
        audit: str | list[str] = self.audit_on(split) if self.chosen_by_audit() else []
        return super().inputs(split) | {"index": self.index, "audit": audit}

    def options(self, split: str) -> Config:
        """Give the type of the index, and the width or the audit and the recall it must show."""
        options = {**super().options(split), "kind": self.method}
        if not self.chosen_by_audit():
            return options | {"width": self.width}
        return options | {"audit": self.audit_on(split), "recall": self.recall}

    def files(self) -> Iterator[str]:
        """Yield the index and the audit, too; scores are taken from the vectors."""
        yield from super().files()
        yield self.index
        if self.chosen_by_audit():
            yield self.audit_on("")

    def stored(self) -> Iterator[str]:
        """Yield the index, too."""
        yield from super().stored()
        yield str(Path(self.index).parent)

    def opened_width(self, model: str) -> float:
        """Width of a searcher's searches: the system's own, or the one that its audit chooses.

        :param model: fingerprint of what made the vectors.
        :raises InputError: as `audited_width` does.
        """
        from cort.retrieval.audits import audited_width

        if not self.chosen_by_audit():
            return float(self.width)
        return audited_width(self.audit_on(""), self.method, model, self.recall)


class Graph(ApproximateSearch):
    """Approximate search over the vectors of an encoder, through a graph index."""

    rule = "retrieve_graph"
    needs_all = True
    indexes = GRAPHS
    reads_passages = False

    Settings = Indexed
    entry: Indexed

    def check(self) -> Iterator[str]:
        """Check that there is one index, over angles, and that its search is wide enough."""
        yield from super().check()
        names = [name for name in INDEXES if getattr(self.entry, name)]
        if len(names) > 1:
            yield f"{self.place}: found {listed(names)}, expected one of them; make two systems"
        if getattr(self.model, "similarity", "") == "inner_product":
            found = "found an encoder of inner products"
            yield f"{self.place}.{self.method}: {found}, expected one of angles; remove {self.method}"
        key, depth = INDEXES[self.method].audited, self.results.depth
        if INDEXES[self.method].counts and (largest := max(getattr(self.results.root.audit, key))) < depth:
            yield f"audit.{key}: found {largest} at most, expected one of {depth} (depth) or more; add it"

    def kept(self) -> tuple[str, int] | None:
        """Give the candidates that a search of an HNSW index keeps."""
        kind = INDEXES[self.method]
        is_known = kind.counts and not self.chosen_by_audit()
        return (f"{self.method}.{kind.parameter}", int(self.width)) if is_known else None

    def retriever(self, opening: Opening) -> Retriever:
        """Open the encoder and the graph."""
        return opening.graph(self.encoder, self.method, Path(self.index).parent, self.opened_width)


class IvfPq(ApproximateSearch):
    """Candidates of an IVF-PQ index with the scores of exact search."""

    rule = "retrieve_ivfpq"
    indexes = ("ivfpq",)

    Settings: ClassVar[type[Section]] = Indexed
    entry: Compressed

    def check(self) -> Iterator[str]:
        """Check that the index can be built, and audited as it is searched."""
        yield from super().check()
        index: models.IvfPq | None = getattr(self.model, "ivfpq", None)
        # The dimension of a released model is only known to its files.
        if index and (dimension := getattr(self.model, "dimension", None)) and dimension % index.bytes:
            place, fix = f"{self.section}.{self.encoder}.ivfpq.bytes", "set bytes, or change the dimension"
            yield f"{place}: found {index.bytes}, expected a divisor of the dimension, {dimension}; {fix}"
        candidates, audited = self.nearest, self.results.root.audit.candidates
        if self.chosen_by_audit() and candidates != audited:
            found, expected = f"found {candidates} with probes auto", f"{audited} as in audit.candidates"
            yield f"{self.place}.ivfpq.candidates: {found}, expected {expected}; make them the same"

    @property
    def nearest(self) -> int:
        """Number of candidates, the nearest to each vector of a query."""
        return self.entry.ivfpq.candidates if self.entry.ivfpq else 0

    def kept(self) -> tuple[str, int] | None:
        """Give the number of candidates, unless a query has several vectors, which together find more."""
        return ("ivfpq.candidates", self.nearest) if self.section == "encoders" else None

    def options(self, split: str) -> Config:
        """Give the number of candidates, too."""
        return {**super().options(split), "candidates": self.nearest}

    def retriever(self, opening: Opening) -> Retriever:
        """Open the model, the vectors and the index."""
        return opening.ivfpq(self.encoder, Path(self.index).parent, self.opened_width, self.nearest)


class TokenIvfPq(TokenSearch, IvfPq):
    """Candidates of an IVF-PQ index of token vectors with the scores of late interaction."""
