"""Answers to a single query without torch, whose import takes longer than all the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.config.fields import PrecisionOrAuto
from cort.config.systems import WHOLE, Reduced
from cort.formats.records import Ranking
from cort.models.layout import model_fingerprint, read_prompts
from cort.models.light import Vectors, static_encoder
from cort.models.tokenizer import encode, load_tokenizer
from cort.retrieval.rankings import DocIds
from cort.retrieval.vectors import open_vectors
from cort.runtime.errors import input_error
from cort.systems.base import System
from cort.systems.results import Results

TokenIds = npt.NDArray[np.int32]


class Model(NamedTuple):
    """A model folder, how its texts are cleaned, the precision of its products, and its `files`.

    The files are the shards of the passages' vectors or token vectors or, for a re-ranker, the passages' token cache.
    """

    folder: Path
    cleaning: str
    precision: PrecisionOrAuto
    files: Sequence[str | Path]


def model_of(results: Results, section: str, name: str, files: Sequence[str]) -> Model:
    """Return an encoder or re-ranker of an experiment."""
    cleaning = results.base_models[results.base_model_of(section, name)].cleaning
    folder, precision = Path(results.weights(section, name)).parent, results.models[section][name].precision
    return Model(folder, cleaning, precision, files)


def with_vectors(results: Results, section: str, name: str) -> Model:
    """Return an encoder or re-ranker with what it made of the passages."""
    return model_of(results, section, name, results.vectors(section, name))


class Tokenizer:
    """Token ids of a few texts, as the stage `tokenize` computes them in bulk."""

    def __init__(self, folder: Path, form: str) -> None:
        self._folder, self._tokenizer, self._form = folder, load_tokenizer(folder), form
        self._prompts = read_prompts(folder)

    def __call__(self, texts: Sequence[str], kind: str = "query") -> list[TokenIds]:
        """Clean and tokenize texts, without special tokens."""
        given = self._prompts[kind], pa.array(texts, pa.string()), self._form
        return [np.array(one.ids, dtype=np.int32) for one in encode(self._folder, self._tokenizer, *given)]


class LightSearch:
    """Static embeddings, and the stored vectors of all passages: exact search without an index to build, but slower.

    It takes one query at a time.
    """

    def __init__(self, results: Results, name: str) -> None:
        """Open an encoder of an experiment.

        :raises Exception: of any kind, if torch is needed.
        """
        model = with_vectors(results, "encoders", name)
        encoder = static_encoder(model.folder)
        if encoder is None:
            raise ValueError(name)
        self._encode, self.tokenize = encoder, Tokenizer(model.folder, model.cleaning)
        self._vectors = open_vectors(model.files, model=model_fingerprint(model.folder))

    def encode(self, tokens: Sequence[TokenIds]) -> Vectors:
        """Compute a vector of shape (1, e), rounded as those of the passages are stored."""
        return self._vectors.rounded(self._encode(tokens))

    def search(self, vectors: Vectors, depth: int) -> list[Ranking]:
        """Rank all passages for a vector, (1, e), by scores in double precision, rounded to single precision.

        Ties with the last of the top `depth` are included.
        """
        [query] = vectors.astype(np.float64)
        blocks = (block.astype(np.float64) for _, block in self._vectors.pieces(0, len(self._vectors)))
        products = np.concatenate([np.vecdot(block, query) for block in blocks])
        # Adding 0 turns -0 into 0.
        scores = products.astype(np.float32).astype(np.float64) + 0
        if not np.isfinite(scores).all():
            found = "a vector with NaN, infinite or very large values"
            raise input_error(self._vectors.source, found, "finite numbers", "train or encode again")
        rows = np.flatnonzero(scores >= np.sort(scores)[-depth:][0])
        doc_ids = DocIds(self._vectors.ids)
        best, rows = doc_ids.best(scores[rows], rows, len(rows))
        return [Ranking("", doc_ids.of(rows), best)]


def _exact(results: Results, encoder: str, reduced: Reduced) -> tuple[LightSearch, LightSearch]:
    if reduced != WHOLE:
        raise ValueError(reduced)
    return (LightSearch(results, encoder),) * 2


def open_light(results: Results, needed: Mapping[str, System]) -> Any:
    """Open the models of systems as `cort.online.neural.open_models` does; None if torch is needed."""
    # Systems that need more than this fail, as do those whose files are wrong; opening them with torch tells why.
    opening: Any = SimpleNamespace(exact=partial(_exact, results))
    with suppress(Exception):
        if not any(system.reranker() for system in needed.values()):
            return SimpleNamespace(retrievers={name: system.retriever(opening) for name, system in needed.items()})
    return None
