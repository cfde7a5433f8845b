"""Rankings of documents from rankings of passages: passages are retrieved and re-ranked, documents are measured.

The document of a passage is its id up to the last `#`: `docs/a.md#3` is passage 3 of `docs/a.md`. An id without `#` is
a document of its own. The score of a document comes from those of its passages that were retrieved:

- ``max``: the best (MaxP; Dai and Callan 2019, "Deeper Text Understanding for IR with Contextual Neural Language
  Modeling", section 3);
- ``first``: that of the passage with the lowest number (FirstP). The paper scores the first passage of every document;
  here, this is the first one that was retrieved, so that no document is lost;
- ``mean3``: the mean of the best three, or of all if fewer were retrieved, as PyTerrier's `kmaxavg_passage(3)`. The
  paper's SumP adds up all passages, which favours long documents; and counting those that were not retrieved as 0 would
  be meaningless for scores that may be negative.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats.ordering import ranked
from cort.formats.records import offsets_of
from cort.formats.runs import Run, strictly_decreasing
from cort.runtime.errors import input_error, shorten

# The document and the number of a passage; a document that is not divided is neither.
PASSAGE = "^(.+)#([^#]*)$"
NUMBER = "^(?:.+#([^#]*)|.*)$"
AVERAGED = 3


class Documents(NamedTuple):
    """A run of documents, and for each of its results the passages that it comes from.

    `passages` has the id of the passage that counted: the best or, with ``first``, the first. `about` has the numbers
    and ranks of all that were retrieved, the one that counted first: ``3 (rank 2), 1 (rank 5), 7 (rank 40)``.
    """

    run: Run
    passages: pa.Array
    about: pa.Array


def document_of(doc_id: str) -> str:
    """Return the document of a passage."""
    return doc_id.rpartition("#")[0] or doc_id


def documents_of(doc_ids: pa.Array | pa.ChunkedArray, how: str) -> pa.Array | pa.ChunkedArray:
    """Return the document of each passage; with ``none``, the passage itself."""
    return doc_ids if how == "none" else pc.replace_substring_regex(doc_ids, PASSAGE, r"\1")


def hash_of(seed: int, name: str) -> int:
    """Return a number that seems random, and is the same on every machine."""
    return int(hashlib.sha256(f"{seed} {name}".encode()).hexdigest(), 16)


def split_of(document: str, splits: Sequence[str], seed: int) -> str:
    """Choose the split of a document from which queries are generated."""
    return splits[hash_of(seed, document) % len(splits)]


def as_documents(run: Run, how: str) -> Run:
    """Rank documents by their passages; with ``none``, return the run itself.

    :param how: ``none``, ``max``, ``first`` or ``mean3``.
    :return: documents by (-score, doc_id), with strictly decreasing scores.
    :raises InputError: with ``first``, if a passage has no number.
    """
    return group_passages(run, how).run


def group_passages(run: Run, how: str) -> Documents:
    """Rank documents like `as_documents`, and say which passages they come from."""
    if how == "none" or not len(run.doc_ids):
        return Documents(run, run.doc_ids, run.doc_ids)
    ranks, numbers = pa.array(run.ranks()).cast("string"), pc.replace_substring_regex(run.doc_ids, NUMBER, r"\1")
    columns = {
        "query": run.query_numbers(),
        "doc_id": documents_of(run.doc_ids, how),
        "passage": run.doc_ids,
        "score": run.scores,
        "about": pc.binary_join_element_wise(numbers, " (rank ", ranks, ")", ""),
    }
    # By rank: the passages of a document are listed best first.
    table = pa.table(columns)
    if how == "first":
        table = table.take(_in_document_order(run.doc_ids))
    lists = [(name, "list") for name in ("passage", "score", "about")]
    grouped = table.group_by(["query", "doc_id"], use_threads=False).aggregate(lists).combine_chunks()
    used = pc.list_slice(grouped["score_list"], 0, AVERAGED if how == "mean3" else 1).chunk(0)
    documents = pc.list_parent_indices(used)
    scores = np.bincount(documents, used.flatten()) / np.bincount(documents)
    order = ranked(scores, grouped["doc_id"].chunk(0), grouped["query"].to_numpy())
    ordered = grouped.take(order).combine_chunks()
    decreasing = strictly_decreasing(scores[order], ordered["query"].to_numpy()).astype(np.float64)
    offsets = offsets_of(np.bincount(ordered["query"], minlength=len(run)))
    about, passages = pc.binary_join(ordered["about_list"], ", "), pc.list_element(ordered["passage_list"], 0)
    ranking = Run(run.query_ids, offsets, ordered["doc_id"].chunk(0), decreasing)
    return Documents(ranking, passages.chunk(0), about.chunk(0))


def _in_document_order(doc_ids: pa.Array) -> pa.Array:
    """Return the rows by the number of the passage, which is 0 for a document that is not divided."""
    numbers = pc.replace_substring_regex(doc_ids, NUMBER, r"0\1")
    if (wrong := pc.index(pc.match_substring_regex(numbers, "^[0-9]{1,19}$"), False).as_py()) >= 0:
        fix = "number the passages, or choose another `aggregate`"
        raise input_error("passages", shorten(doc_ids[wrong].as_py()), "a number after the last #", fix)
    return pc.sort_indices(numbers.cast("int64"))
