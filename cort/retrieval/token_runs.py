"""Runs by late interaction: the queries of a token cache encoded, and searched in what ranks passages for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeAlias

import numpy as np

from cort.formats.records import Ranking
from cort.formats.tokens import Tokens
from cort.models.late_interaction import TokenVectors
from cort.retrieval.max_similarity import Rows, Vectors
from cort.retrieval.token_scores import QueryVectors, by_query
from cort.system.errors import input_error

# All passages are read once per this many queries of a run; part of the result, as padding changes the last bits.
QUERIES_AT_ONCE = 512


Encode: TypeAlias = Callable[[Rows], TokenVectors]


class Search(Protocol):
    """What ranks passages for queries: a `TokenIndex`, or an index that gives it candidates."""

    def ids(self, places: Rows) -> list[str]:
        """Document ids of places."""

    def search(self, queries: Sequence[QueryVectors], depth: int) -> list[tuple[Vectors, Rows]]:
        """Rank passages: for each query its first `depth` scores and places."""


def encoded(encode: Encode, queries: Tokens, rows: Rows) -> Iterator[tuple[Rows, list[QueryVectors]]]:
    """Encode the queries of some rows, so many at once, in order; yield rows and vectors.

    :param encode: encodes the queries of some rows.
    :raises InputError: for vectors with numbers that are not finite.
    """
    for start in range(0, len(rows), QUERIES_AT_ONCE):
        some = rows[start : start + QUERIES_AT_ONCE]
        found = encode(some)
        if not (np.isfinite(found.vectors).all() and np.isfinite(found.weights).all()):
            raise input_error(queries.path, "a query with numbers that are not finite", "numbers", "train again")
        yield some, by_query(found)


def retrieve(search: Search, encode: Encode, queries: Tokens, depth: int) -> Iterator[Ranking]:
    """Rank passages for each query; yield the first `depth`, in the order of the queries.

    :param encode: as `encoded` takes it, which says what is raised.
    """
    ids = queries.ids.to_pylist()
    for rows, vectors in encoded(encode, queries, np.arange(len(ids))):
        for row, (scores, places) in zip(rows, search.search(vectors, depth), strict=True):
            yield Ranking(ids[row], search.ids(places), scores)
