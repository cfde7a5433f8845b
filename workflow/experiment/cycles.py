"""Find systems whose runs would wait for themselves: through parts, models, what these learn from, shared scores.

A system's runs of the training queries wait for less than its evaluated ones, so the two are told apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from workflow.experiment.config import LEARNERS, Config, is_trained, models_of, parts_of, teachers

# The name of a system, and whether its run of the training queries is meant.
Node: TypeAlias = tuple[str, bool]


def find_circles(config: Config) -> list[list[str]]:
    """Return the circles as names, the first again at the end; of circles of the same systems only one."""
    found: dict[frozenset[str], list[str]] = {}
    done: set[Node] = set()
    learning = set(teachers(config))

    def visit(node: Node, path: list[Node]) -> None:
        if node in path:
            circle = [name for name, _ in [*path[path.index(node) :], node]]
            found.setdefault(frozenset(circle), circle)
        elif node not in done:
            for needed in _needs(config, node, learning):
                visit(needed, [*path, node])
            done.add(node)

    for name in config["systems"]:
        visit((name, False), [])
    return list(found.values())


def _needs(config: Config, node: Node, learning: set[str]) -> Iterator[Node]:
    name, training = node
    system = config["systems"][name]
    for part in parts_of(system):
        yield part, training
    for section, model in models_of(config, system):
        if is_trained(config[section][model]):
            yield config[section][model][LEARNERS[section][1]]["system"], True
    if "reranker" in system:
        # The scores of a re-ranker are one file per split, over the candidates of all its systems.
        for other, candidate in config["systems"].items():
            if candidate.get("reranker") == system["reranker"] and (not training or other in learning):
                yield candidate["rerank"], training
