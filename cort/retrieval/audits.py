"""What `audit` measures of a graph index, as JSON: recall, time and loss for each width of the search and each depth.

    {"split", "encoder", "index": "onng" | "hnsw", "parameter": "epsilon" | "ef", "model", "passages", "queries",
     "exact":    [{"depth", "milliseconds": {"mean", "median"}, "measures": {name: value}}, ...],
     "searches": [{"width", "depth", "recall", "milliseconds": {...}, "loss": {name: value}}, ...]}

`recall` is the part of the exact first `depth` that was found, `loss` what a measure of the exact ranking loses.
All but `milliseconds` is the same whenever it is measured.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from cort.formats.artifacts import Node, read_artifact
from cort.retrieval.graphs import GRAPHS
from cort.system.errors import input_error, shorten
from cort.system.files import write_text


@dataclass(frozen=True)
class Milliseconds:
    """Time of one query in one thread."""

    mean: float
    median: float


@dataclass(frozen=True)
class Exact:
    """Exact search at one depth."""

    depth: int
    milliseconds: Milliseconds
    measures: dict[str, float]


@dataclass(frozen=True)
class Search:
    """The search of an index with one width at one depth; `loss` is below 0 where a measure gained by chance."""

    width: float
    depth: int
    recall: float
    milliseconds: Milliseconds
    loss: dict[str, float]


@dataclass(frozen=True)
class Audit:
    """One index on the queries of one split; `model` is the encoder's fingerprint."""

    split: str
    encoder: str
    index: str
    parameter: str
    model: str
    passages: int
    queries: int
    exact: list[Exact]
    searches: list[Search]

    def check(self, node: Node) -> None:
        """Refuse an unknown index, and one with the parameter of another."""
        if self.index not in GRAPHS or GRAPHS[self.index].parameter != self.parameter:
            raise node["index"].complain(f"{shorten(self.index)} with {shorten(self.parameter)}")


def write_audit(path: str | Path, audit: Audit) -> None:
    """Write an audit, atomically."""
    write_text(path, json.dumps(asdict(audit), indent=2, sort_keys=True) + "\n")


def read_audit(path: str | Path) -> Audit:
    """Read and check an audit.

    :raises InputError: says what is wrong where.
    """
    return read_artifact(path, Audit)


def audited_width(path: str | Path, index: str, model: str, recall: float) -> float:
    """Smallest width with which the recall of an audit's largest depth is high enough.

    :param model: fingerprint of the encoder whose vectors are searched.
    :raises InputError: for the audit of another index, or when no width reaches the recall.
    """
    audit = read_audit(path)
    if (audit.index, audit.model) != (index, model):
        found = f"the audit of an {audit.index} index of model {audit.model}"
        raise input_error(path, found, f"of an {index} index of model {model}", "make the audit again")
    depth = max((one.depth for one in audit.searches), default=0)
    deepest = [one for one in audit.searches if one.depth == depth]
    wide_enough = [one.width for one in deepest if one.recall >= recall]
    if not wide_enough:
        best = max(deepest, key=lambda one: (one.recall, -one.width), default=None)
        reached = f"{audit.parameter} {best.width:g} with {best.recall:.4f}" if best else "no search"
        raise input_error(
            path,
            f"as the best {reached} of the exact first {depth}",
            f"a recall of {recall:g}",
            f"add larger values to audit.{audit.parameter}s or ask for less",
        )
    return min(wide_enough)
