"""What a report shows, read from the files of the stages before it and checked: measures, depths, filters, examples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from cort.formats.artifacts import Node, read_json
from cort.system.errors import input_error, shorten


@dataclass(frozen=True)
class Measures:
    """The mean measures of one system on one split; a measure may be unknown (None)."""

    system: str
    split: str
    relevance_level: int | None
    queries: int
    mean: dict[str, float | None]


@dataclass(frozen=True)
class Depths:
    """Measures of one re-ranked system by number of candidates: ``measures[name][i]`` belongs to ``depths[i]``.

    ``saturation[name]`` is the depth from which doubling adds less than 0.5 %, None where that was not reached.
    """

    system: str
    split: str
    depths: list[int]
    measures: dict[str, list[float | None]]
    saturation: dict[str, int | None]


@dataclass(frozen=True)
class Passage:
    """A passage of an example; `relevant` is None where it was never judged."""

    doc_id: str
    text: str
    relevant: bool | None


@dataclass(frozen=True)
class Example:
    """A query on which two systems disagree; `advantage` is positive where the first is better."""

    query_id: str
    query: str
    advantage: float
    relevant: Passage
    rank_first: int | None
    rank_second: int | None
    top_first: Passage | None
    top_second: Passage | None


@dataclass(frozen=True)
class Comparison:
    """The examples of one pair of systems on one split."""

    split: str
    first: str
    second: str
    queries: int
    better_first: int
    better_second: int
    examples: list[Example]


@dataclass(frozen=True)
class Filter:
    """What a filter kept and dropped, in the order of its file."""

    name: str
    counts: list[tuple[str, int]]


def read_measures(paths: Sequence[str | Path]) -> list[Measures]:
    """Read one file per system and split, in the order given; each pair once."""
    found = [_measures(read_json(path)) for path in paths]
    _refuse_repeats(paths, [(one.system, one.split) for one in found])
    return found


def _measures(node: Node) -> Measures:
    level = node.get("relevance_level")
    return Measures(
        node["system"].text(),
        node["split"].text(),
        None if level is None else int(level.of(int)),
        node["queries"].count(),
        {name: value.number() for name, value in node["mean"].members()},
    )


def read_depths(paths: Sequence[str | Path]) -> list[Depths]:
    """Read one file per re-ranked system and split, in the order given; each pair once."""
    found = [_depths(read_json(path)) for path in paths]
    _refuse_repeats(paths, [(one.system, one.split) for one in found])
    return found


def _depths(node: Node) -> Depths:
    depths = [one.count() for one in node["depths"].items()]
    if not depths or depths[0] < 1 or any(after <= before for before, after in pairwise(depths)):
        raise node["depths"].complain(f"{depths}", "growing depths from 1 on")
    measures: dict[str, list[float | None]] = {}
    for name, values in node["measures"].members():
        measures[name] = [one.number() for one in values.items()]
        if len(measures[name]) != len(depths):
            raise values.complain(f"{len(measures[name])} values", f"{len(depths)}, one per depth")
    saturation: dict[str, int | None] = {}
    for name, value in node["saturation"].members():
        saturation[name] = None if value.value is None else value.count()
        if saturation[name] is not None and saturation[name] not in depths:
            raise value.complain(str(value.value), "one of the depths or null")
    return Depths(node["system"].text(), node["split"].text(), depths, measures, saturation)


def read_filter(name: str, path: str | Path) -> Filter:
    """Read a mapping of text to count."""
    return Filter(name, [(text, value.count()) for text, value in read_json(path).members()])


def read_comparison(path: str | Path) -> Comparison:
    """Read what the stage `disagreements` wrote."""
    node = read_json(path)
    return Comparison(
        node["split"].text(),
        node["first"].text(),
        node["second"].text(),
        node["queries"].count(),
        node["better_first"].count(),
        node["better_second"].count(),
        [_example(one) for one in node["examples"].items()],
    )


def _example(node: Node) -> Example:
    relevant = node["relevant"]
    return Example(
        node["query_id"].text(),
        node["query"].text(),
        float(node["advantage"].of(float)),
        Passage(relevant["doc_id"].text(), relevant["text"].text(), True),
        _rank(relevant, "rank_first"),
        _rank(relevant, "rank_second"),
        _top(node, "top_first"),
        _top(node, "top_second"),
    )


def _rank(node: Node, key: str) -> int | None:
    rank = node.get(key)
    return None if rank is None else rank.count()


def _top(node: Node, key: str) -> Passage | None:
    top = node.get(key)
    if top is None:
        return None
    label = top.get("relevant")
    return Passage(top["doc_id"].text(), top["text"].text(), None if label is None else bool(label.of(bool)))


def _refuse_repeats(paths: Sequence[str | Path], keys: Iterable[tuple[str, str]]) -> None:
    seen: dict[tuple[str, str], str | Path] = {}
    for path, (system, split) in zip(paths, keys, strict=True):
        if (system, split) in seen:
            raise input_error(
                path,
                f"system {shorten(system)} on split {shorten(split)} as in {seen[system, split]}",
                "each system and split once",
                "drop one of the two files",
            )
        seen[system, split] = path
