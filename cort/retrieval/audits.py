"""The audit of an index, as JSON: recall, time and loss for each search width and depth.

`recall` is the share of the top `depth` that score at least as the last of the exact ones, `loss` the drop of a
measure from the exact ranking. All values but `milliseconds` are reproducible.
"""

from dataclasses import dataclass
from pathlib import Path

from cort.formats.artifacts import read_artifact
from cort.retrieval.indexes import INDEXES
from cort.runtime.errors import input_error


@dataclass(frozen=True)
class Milliseconds:
    """Time per query in one thread."""

    mean: float
    median: float


@dataclass(frozen=True)
class Exact:
    """Exact search at one depth."""

    depth: int
    measures: dict[str, float]
    milliseconds: Milliseconds


@dataclass(frozen=True)
class Search:
    """Searches of an index with one width at one depth; `loss` is negative if a measure rose by chance."""

    depth: int
    loss: dict[str, float]
    milliseconds: Milliseconds
    recall: float
    width: float


@dataclass(frozen=True)
class Audit:
    """One index on the queries of one split; `model` is the fingerprint of the encoder, or of the re-ranker.

    `storage_bytes` is the size of the index, `vectors_per_token` the number of candidates per query token, if any.
    """

    encoder: str
    exact: list[Exact]
    index: str
    model: str
    parameter: str
    passages: int
    queries: int
    searches: list[Search]
    split: str
    storage_bytes: int | None = None
    vectors_per_token: int | None = None


def audited_width(path: str | Path, index: str, model: str, recall: float) -> float:
    """Return the smallest width that reaches a recall at the largest depth of an audit.

    :param model: fingerprint of the encoder whose vectors are searched.
    :raises InputError: if the audit is of another index, or no width reaches the recall.
    """
    audit = read_artifact(path, Audit)
    if (audit.index, audit.model) != (index, model):
        found = f"the audit of an {audit.index} index of model {audit.model}"
        raise input_error(path, found, f"of an {index} index of model {model}", "make the audit again")
    depth = max((search.depth for search in audit.searches), default=0)
    deepest = [search for search in audit.searches if search.depth == depth]
    wide_enough = [search.width for search in deepest if search.recall >= recall]
    if not wide_enough:
        best = max(deepest, key=lambda search: (search.recall, -search.width), default=None)
        reached = f"{audit.parameter} {best.width:g} with {best.recall:.4f}" if best else "no search"
        found = f"at best {reached} of the exact top {depth}"
        fix = f"add larger values to audit.{INDEXES[audit.index].audited} or ask for less"
        raise input_error(path, found, f"a recall of {recall:g}", fix)
    return min(wide_enough)
