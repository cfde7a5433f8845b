"""The counts of reproduced numbers, as `cort.reproduction` wrote them, for the page that links to all of them."""

from __future__ import annotations

from pathlib import Path

from cort.formats.artifacts import Node, read_json
from cort.reporting.page import Gate


def read_gates(path: str | Path) -> list[Gate]:
    """Read the counts, one per paper."""
    return [_gate(one) for one in read_json(path)["papers"].items()]


def _gate(node: Node) -> Gate:
    counts = node["counts"]
    return Gate(node["title"].text(), counts["within"].count(), counts["off"].count(), counts["not run"].count())
