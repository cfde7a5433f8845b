"""Learned sparse retrieval with Lucene: passages by the inner product of the integer weights (impacts) of tokens.

Scores are integers, and Lucene's single-precision numbers are exact up to 2^24, so the ranking is exact, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.formats.records import Ranking
from cort.retrieval import anserini, bm25
from cort.retrieval.options import BM25Options
from cort.runtime.errors import input_error

# A weight of 1 as an impact: that of Anserini's runs with SPLADE.
SCALE = 100
#: tokens of a query at most, Lucene's limit
MOST_TERMS = anserini.MOST_WORDS
#: options of Anserini, for indexing and for searching
MODEL = ("-impact", "-pretokenized")
EXACT = 2**24

Numbers = npt.NDArray[np.int32]


def quantised(weights: npt.NDArray[np.floating], most: int | None = None) -> tuple[Numbers, Numbers]:
    """Turn weights, (vocabulary,), into the ascending ids of the tokens with an impact, and their impacts.

    :param most: keep this many tokens with the greatest impacts, and of equal ones those with the lowest ids.
    """
    impacts = np.rint(weights * SCALE).astype(np.int32)
    tokens = np.flatnonzero(impacts > 0).astype(np.int32)
    if most is not None and len(tokens) > most:
        tokens = np.sort(tokens[np.argsort(-impacts[tokens], kind="stable")[:most]])
    return tokens, impacts[tokens]


def as_text(tokens: Sequence[int], impacts: Sequence[int]) -> str:
    """Repeat each token as often as its impact says, because Lucene weights the terms of a query by their counts."""
    return " ".join(" ".join([str(token)] * impact) for token, impact in zip(tokens, impacts, strict=True))


def exact(ranking: Ranking, index: str | Path) -> Ranking:
    """Undo how Anserini lowers ties.

    :raises InputError: for scores too great to be exact.
    """
    scores = np.rint(ranking.scores)
    if len(scores) and scores[0] >= EXACT:
        expected = f"scores below {EXACT:,}, which Lucene computes exactly"
        raise input_error(index, f"the score {scores[0]:,.0f}", expected, "train with more FLOPS regularisation")
    return ranking._replace(scores=scores)


def rank(options: BM25Options, queries: pa.Table, folder: Path) -> Iterator[Ranking]:
    """Yield the ranking of each query with results, in the order of `queries`, a table of impacts."""
    # Before Anserini, which tries to download an index that is not a folder.
    anserini.check_manifest(options.index, (anserini.IMPACTS,))
    for chunk in bm25.in_commands(queries, options):
        query_ids, *vectors = (column.to_pylist() for column in chunk.columns)
        bm25.search_all(options, [as_text(*vector) for vector in zip(*vectors, strict=True)], MODEL, folder)
        for ranking in bm25.take_run(folder):
            yield exact(ranking._replace(query_id=query_ids[int(ranking.query_id)]), options.index)
