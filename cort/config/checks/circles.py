"""Find systems that wait for themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from cort.config.experiment import Experiment
from cort.config.learners import Learner

# The name of a system, and whether its run of the training queries is meant, which depends on less than evaluated runs.
Node: TypeAlias = tuple[str, bool]


def check_circles(experiment: Experiment) -> Iterator[str]:
    """Yield a line for each circle."""
    for circle in _find_circles(experiment):
        yield (
            f"systems.{circle[0]}: found the circle {' -> '.join(circle)}, expected no system to wait for itself; "
            "break it, or copy a re-ranker that several of them share under another name"
        )


def _find_circles(experiment: Experiment) -> list[list[str]]:
    """Find systems whose runs depend on themselves: through parts, models, training data or shared scores.

    :returns: the names in each circle, the first repeated at the end; a set of systems has only one circle.
    """
    circles: dict[frozenset[str], list[str]] = {}
    done: set[Node] = set()

    def visit(node: Node, path: list[Node]) -> None:
        if node in path:
            circle = [name for name, _ in [*path[path.index(node) :], node]]
            circles.setdefault(frozenset(circle), circle)
        elif node not in done:
            for needed in _needs(experiment, node):
                visit(needed, [*path, node])
            done.add(node)

    for name in experiment.systems:
        visit((name, False), [])
    return list(circles.values())


def _needs(experiment: Experiment, node: Node) -> Iterator[Node]:
    name, training = node
    system = experiment.systems[name]
    for part in system.parts():
        yield part, training
        if system.learns():
            yield part, True
    for section, model in experiment.models_of(name):
        if isinstance(settings := experiment.models[section][model], Learner):
            yield from ((source, True) for source in settings.examples.systems)
    if reranker := system.reranker():
        # The scores of a re-ranker are one file per split, over the candidates of all its systems.
        for split in {training, training or system.learns()}:
            for other, candidate in experiment.systems.items():
                if candidate.reranker() == reranker and (not split or other in experiment.validated):
                    yield from ((part, split) for part in candidate.parts())
