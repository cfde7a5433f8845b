"""Curves by depth.

They show the measures of a re-ranked run by its number of candidates, and where they saturate; and RepBERT's
consistency factor (section 4.4.3 and Figure 2), the share of a run's results that a reference run has retrieved, too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cort.evaluation.measures import Qrels, evaluate_run, means
from cort.formats.ordering import ranked
from cort.formats.pairs import match
from cort.formats.records import offsets_of
from cort.formats.runs import Numbers, Run, as_written, top
from cort.runtime.progress import track

SATURATED_BELOW = 1.005
REFERENCE_DEPTH = 1000


@dataclass(frozen=True)
class Depths:
    """Measures of one re-ranked system by its number of candidates: ``measures[name][i]`` belongs to ``depths[i]``.

    ``saturation[name]`` is the smallest depth from which doubling adds less than 0.5 %; None if there is none.
    """

    system: str
    split: str
    relevance_level: int
    queries: int
    depths: list[int]
    measures: dict[str, list[float | None]]
    saturation: dict[str, int | None]


def saturation(depths: Sequence[int], values: Sequence[float]) -> int | None:
    """Return the smallest depth from which doubling adds less than 0.5 %: value(2d) < 1.005 value(d).

    None if there is none, or no larger depth of the list has its double in it.
    """
    value = dict(zip(depths, values, strict=True))
    found = None
    for depth in sorted((depth for depth in value if 2 * depth in value), reverse=True):
        if value[2 * depth] >= value[depth] * SATURATED_BELOW:
            break
        found = depth
    return found


def measure_depths(
    run: Run,
    scores_at: Callable[[int], Numbers],
    qrels: Qrels,
    depths: Sequence[int],
    measures: Sequence[str],
    as_documents: Callable[[Run], Run],
    relevance_level: int = 1,
) -> dict[str, list[float]]:
    """Compute the mean of every measure over the judged queries: measure -> one value per depth.

    :param scores_at: maps a number of candidates to the scores that order them, one per result of `run`.
    :param as_documents: turns rankings of passages into those of the documents that are judged.
    """
    columns: dict[str, list[float]] = {measure: [] for measure in measures}
    ranks = run.ranks()
    for depth in track(depths, len(depths), "depths"):
        kept = ranks <= depth
        first, scores = top(run, depth), scores_at(depth)[kept]
        by = ranked(scores, first.doc_ids, first.query_numbers())
        reranked = as_written(replace(first, doc_ids=first.doc_ids.take(by), scores=scores[by]))
        values = evaluate_run(as_documents(reranked), qrels, measures, relevance_level)
        for measure, value in means(values, measures).items():
            columns[measure].append(value)
    return columns


@dataclass(frozen=True)
class Consistency:
    """The consistency factor of one run by depth; `queries` counts those with results."""

    system: str
    split: str
    reference: str
    queries: int
    depths: list[int]
    consistency: list[float | None]


def consistency(run: Run, reference: Run, depths: Sequence[int]) -> list[float]:
    """Compute C(run, n) for each n of `depths`; 0 if `run` is empty."""
    # counted[i] is the number of results before position i of the run that are also in the reference.
    counted = offsets_of(match(run.pairs(), top(reference, REFERENCE_DEPTH).pairs()) >= 0)
    starts = run.offsets[:-1]
    if not len(run):
        return [0.0 for _ in depths]
    factors = []
    for depth in depths:
        kept = np.minimum(np.diff(run.offsets), depth)
        factors.append(float(np.mean((counted[starts + kept] - counted[starts]) / kept)))
    return factors
