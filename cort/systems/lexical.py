"""BM25 over an index of Lucene."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from cort.config import paths
from cort.config.entries import Config
from cort.config.lexical import FixedIndex, GridSearch, LexicalIndex, TunedIndex
from cort.config.systems import Bm25Parameters
from cort.runtime.sections import Maybe, Section, Text, default_of
from cort.systems.base import LuceneIndex, System

if TYPE_CHECKING:
    from cort.formats.records import Ranking
    from cort.retrieval.lucene import Parameters
    from cort.systems.live import Batch, Case, Reason
    from cort.systems.results import Results

# Keys of an index whose texts are not the plain passages, and words for them.
CHANGED_TEXT = {"expand": "passages expanded by", "weigh": "terms weighted by"}


class Bm25(System):
    """BM25 with parameters of its own, those of its index, or tuned ones."""

    rule = "bm25"
    any_depth = True
    noun = "an index under lexical"
    tuned_paths: ClassVar[tuple[str, str]] = (paths.LEXICAL_PARAMETERS, paths.LEXICAL_FOLDS)
    tuned_option = "parameters"

    class Settings(Section):
        """Keys of this kind."""

        retrieve: Text
        """`bm25` or another name under `lexical`, the name of an encoder, or that of a re-ranker of the kind
        `late_interaction`, whose token vectors of all passages are then searched (ColBERT, end to end). Of a
        sparse encoder, Lucene searches the impacts (SPLADE)."""
        bm25: Maybe[Bm25Parameters] = None
        """With `retrieve` of a name under `lexical`, k1 and b of this system only."""

    entry: Settings

    @classmethod
    def takes(cls, entry: Mapping[str, Any], results: Results) -> bool:
        """Look for the name under `lexical`."""
        return entry.get("retrieve") in results.lexical

    @property
    def index(self) -> LexicalIndex:
        """Settings of the index."""
        return self.results.lexical[self.entry.retrieve]

    @property
    def method(self) -> str:
        """Name BM25; its key is shared with other classes."""
        return "bm25"

    def lexical_index(self) -> str:
        """Name the index."""
        return self.entry.retrieve

    def lucene_index(self) -> LuceneIndex:
        """Describe the index."""
        manifest = self.results.at(paths.LEXICAL_INDEX, lexical=self.entry.retrieve)
        return LuceneIndex(self.entry.retrieve, manifest, (self.index.cleaning, self.index.language))

    def fits_engines(self) -> bool:
        """Tell whether the texts are the passages."""
        return self.index.cleaning == default_of(FixedIndex, "cleaning") and not self._changed_text()

    def _changed_text(self) -> list[str]:
        return [f"{words} {name}" for key, words in CHANGED_TEXT.items() if (name := getattr(self.index, key))]

    @property
    def tune(self) -> GridSearch | None:
        """How k1 and b are tuned, unless the system has its own."""
        return self.index.tune if isinstance(self.index, TunedIndex) and not self.entry.bm25 else None

    def describe(self) -> str:
        """Describe the indexed texts, and parameters of its own."""
        own, language = self.entry.bm25, self.index.language
        words = [f"language {language}"] if language != default_of(FixedIndex, "language") else []
        words += self._changed_text()
        words += [f"k1 and b {self.describe_tuning()}"] if self.folds() else []
        words += [f"k1 = {own.k1:g}", f"b = {own.b:g}"] if own else []
        return ", ".join(["BM25, Anserini", *words])

    def inputs(self, split: str) -> dict[str, str | list[str]]:
        """Index, queries, and tuned parameters if there are any."""
        return {
            "index": self.results.at(paths.LEXICAL_INDEX, lexical=self.entry.retrieve),
            "queries": self.results.at(paths.QUERIES, split=split),
            "parameters": self.tuned_files(split),
        }

    def options(self, split: str) -> Config:
        """Give k1 and b: the system's, those of its index, or the file of tuned ones."""
        values = self.entry.bm25 or self.index
        return self.tuned(split) if isinstance(values, TunedIndex) else {"k1": values.k1, "b": values.b}

    def files(self) -> Iterator[str]:
        """Yield the index and tuned parameters."""
        yield self.lucene_index().manifest
        yield from self.tuned_files()

    @cached_property
    def parameters(self) -> Parameters:
        """k1 and b; read once if they are tuned."""
        from cort.retrieval.lucene import Parameters, read_parameters

        given = self.options("")
        if "parameters" in given:
            return read_parameters(given["parameters"])
        return Parameters(float(given["k1"]), float(given["b"]))

    def search(self, batch: Batch, depth: int) -> list[Ranking]:
        """Search the index."""
        lucene = batch.searcher.lucene[self.entry.retrieve]
        with batch.timed("bm25"):
            rankings: list[Ranking] = lucene.search(batch.texts, self.parameters.similarity, depth)
        return rankings

    def explain(self, case: Case) -> Reason:
        """List the terms of the query that the passage has."""
        lucene = case.searcher.lucene[self.entry.retrieve]
        terms = sorted(lucene.explain(case.text, self.parameters.similarity, case.doc_id), key=lambda term: -term.score)
        if not terms:
            return case.reason("The passage contains no term of the query.")
        about = (
            f"BM25 with k1 {self.parameters.k1:g} and b {self.parameters.b:g}. Terms are those of the index: stemmed, "
            "and with the expansions or weights it was built with. The score is their sum, rounded and, among ties, "
            "slightly lowered."
        )
        rows = [[term.term, term.boost, term.frequency, term.passages, term.idf, term.score] for term in terms]
        columns = ["term", "in the query", "in the passage", "passages with it", "idf", "adds"]
        return case.reason(about, columns=columns, rows=rows, total=True)
