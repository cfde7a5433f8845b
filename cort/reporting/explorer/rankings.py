"""The top results of systems, and the ranks of relevant passages, in flat columns without an object per result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cort.evaluation.measures import Qrels, judged_ranks
from cort.formats.ids import positions
from cort.formats.records import offsets_of
from cort.formats.runs import Run
from cort.retrieval.documents import Documents, documents_of

Integers = npt.NDArray[np.int64]
UNKNOWN = -1


class Top(NamedTuple):
    """The top results of all queries, concatenated: ids and scores, and the number of results of each query.

    `about` is as in `cort.retrieval.documents`.
    """

    doc_ids: pa.Array
    scores: npt.NDArray[np.float64]
    counts: Integers
    about: pa.Array


class Relevant(NamedTuple):
    """The relevant passages of all queries, concatenated; those of a query by descending grade, then by id."""

    doc_ids: list[str]
    offsets: Integers


class Rankings(NamedTuple):
    """The passages of all queries by number, which is the index into `ids`.

    ``top[q, s, r]`` (queries, systems, results) is the passage that system s ranks r-th for query q, or `UNKNOWN` after
    the last result; `scores` has its score. `relevant` are the relevant passages of all queries, those of q from
    ``offsets[q]`` to ``offsets[q + 1]``; ``ranks[s, i]`` is the rank from 1 of ``relevant[i]`` in the complete run of
    system s, 0 where it was not retrieved.

    If passages are aggregated, the passages here are those that counted for a document, with its ranks and scores, and
    the first ones of the relevant documents. `documents` has the document of each passage in `ids`; `about` says, for
    each system and query, which other passages of the documents were retrieved.
    """

    ids: pa.Array
    top: npt.NDArray[np.int32]
    scores: npt.NDArray[np.float64]
    relevant: npt.NDArray[np.int32]
    offsets: Integers
    ranks: npt.NDArray[np.int32]
    documents: pa.Array
    about: list[pa.ListArray]


def first_results(documents: Documents, query_ids: Sequence[str], number: int) -> Top:
    """Take the top `number` results of each of these queries."""
    run, passages, about = documents
    places = positions(pa.array(query_ids, pa.string()), pa.array(run.query_ids, pa.string()))
    starts, ends = run.offsets[places], run.offsets[places + 1]
    counts = np.where(places == UNKNOWN, 0, np.minimum(ends - starts, number))
    rows = np.arange(counts.sum()) + np.repeat(starts - np.cumsum(counts) + counts, counts)
    # As in run files: the shortest decimal that gives the same single-precision number.
    scores = pc.cast(pa.array(run.scores[rows].astype(np.float32)).cast(pa.string()), pa.float64()).to_numpy()
    return Top(passages.take(pa.array(rows)), scores, counts, about.take(pa.array(rows)))


def relevant_passages(qrels: Qrels, query_ids: Sequence[str], level: int) -> Relevant:
    """List the passages whose grade is at least `level`."""
    graded = [sorted((-grade, doc) for doc, grade in qrels[query].items() if grade >= level) for query in query_ids]
    offsets = np.cumsum([0, *map(len, graded)], dtype=np.int64)
    return Relevant([doc_id for passages in graded for _, doc_id in passages], offsets)


def ranks_of(run: Run, qrels: Qrels, query_ids: Sequence[str], relevant: Relevant) -> npt.NDArray[np.int32]:
    """Rank each relevant passage in the complete run, from 1; 0 where it was not retrieved."""
    judged = judged_ranks(run, qrels)
    ranks = np.zeros(len(relevant.doc_ids), dtype=np.int32)
    for query, query_id in enumerate(query_ids):
        if query_id in judged:
            for place in range(relevant.offsets[query], relevant.offsets[query + 1]):
                ranks[place] = judged[query_id].ranks.get(relevant.doc_ids[place], -1) + 1
    return ranks


def combine(
    tops: Sequence[Top], relevant: Relevant, ranks: Sequence[npt.NDArray[np.int32]], aggregate: str = "none"
) -> Rankings:
    """Combine the results of all systems, and number all passages."""
    listed = pa.array(relevant.doc_ids, pa.string())
    encoded = pa.concat_arrays([*(results.doc_ids for results in tops), listed]).dictionary_encode()
    codes = encoded.indices.to_numpy().astype(np.int32)
    longest = max((int(results.counts.max(initial=0)) for results in tops), default=0)
    top = np.full((len(relevant.offsets) - 1, len(tops), longest), UNKNOWN, dtype=np.int32)
    scores = np.zeros(top.shape)
    start = 0
    for system, results in enumerate(tops):
        filled = np.arange(longest) < results.counts[:, None]
        top[:, system][filled] = codes[start : start + len(results.doc_ids)]
        scores[:, system][filled] = results.scores
        start += len(results.doc_ids)
    documents = documents_of(encoded.dictionary, aggregate)
    offsets = [pa.array(offsets_of(results.counts), pa.int32()) for results in tops]
    about = [pa.ListArray.from_arrays(ends, results.about) for ends, results in zip(offsets, tops, strict=True)]
    return Rankings(encoded.dictionary, top, scores, codes[start:], relevant.offsets, np.stack(ranks), documents, about)
