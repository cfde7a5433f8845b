"""The same queries in several builds, whose systems are compared query by query.

Builds may have other models, other settings, other sizes of passages. A query is paired if all of them have it with the
same text and the same judgements; others are counted by reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from cort.evaluation.comparisons import Comparison, Pair, Tests, compare
from cort.evaluation.measures import Qrels
from cort.evaluation.values import Values
from cort.runtime.errors import input_error

OTHER_TEXT, OTHER_JUDGEMENTS = "with another text", "with other judgements"


@dataclass(frozen=True)
class Build:
    """What a build measured on a split.

    :ivar name: its folder.
    :ivar texts: of queries, by query_id.
    :ivar values: of all judged queries, by system.
    """

    name: str
    texts: Mapping[str, str]
    qrels: Qrels
    values: Mapping[str, Values]


@dataclass(frozen=True)
class Paired:
    """Systems of several builds on the queries that all of these have, each build against the first.

    :ivar left_out: queries by why they are left out.
    :ivar values: by system, as the first build calls it, and the place of the build; they share queries and measures.
    :ivar rows: by the same names; `system` and `baseline` in a row say which build it is about.
    :ivar unshared: by build, measures that another one lacks.
    """

    texts: dict[str, str]
    measures: list[str]
    left_out: dict[str, int]
    unshared: dict[str, list[str]]
    values: dict[tuple[str, int], Values]
    rows: dict[tuple[str, int], list[Comparison]] = field(default_factory=dict)

    def changes(self, system: str, place: int) -> list[tuple[str, float, float]]:
        """List the queries by how much they moved by the first measure, largest gain first: id, value before, after."""
        before, after = (self.values[system, one].values[:, 0] for one in (0, place))
        order = np.argsort(before - after, kind="stable").tolist()
        query_ids = [*self.texts]
        return [(query_ids[row], float(before[row]), float(after[row])) for row in order]


def pair(builds: Sequence[Build], systems: Sequence[Sequence[str]], tests: Tests) -> Paired:
    """Compare systems of all builds with those of the first; p-values are corrected over all of these, by measure.

    :param systems: for each comparison, the name of the system in each build.
    :raises InputError: if the builds share no query, or no measure.
    """
    query_ids, left_out = _shared_queries(builds)
    names = " and ".join(build.name for build in builds)
    if not query_ids:
        found = "; ".join(reasons(left_out)) or "no query"
        raise input_error(names, found, "queries that all have", "build all with the same queries and judgements")
    measures_of = {build.name: next(iter(build.values.values())).measures for build in builds}
    known = [*measures_of.values()]
    measures = [one for one in known[0] if all(one in names for names in known)]
    if not measures:
        found = "; ".join(f"{', '.join(own)} in {name}" for name, own in measures_of.items())
        raise input_error("evaluation.measures", found, "a measure of all", "build with the same measures")
    unshared = {name: [one for one in own if one not in measures] for name, own in measures_of.items()}
    values = {
        (own[0], place): _select(builds[place].values[own[place]], query_ids, measures)
        for own, place in product(systems, range(len(builds)))
    }
    texts = {query_id: builds[0].texts[query_id] for query_id in query_ids}
    paired = Paired(texts, measures, left_out, {name: own for name, own in unshared.items() if own}, values)
    # Names of comparisons are texts.
    labels = {(name, place): f"{name} in {builds[place].name}" for name, place in values}
    pairs = [Pair(labels[key], labels[key[0], 0], "baseline") for key in values if key[1]]
    rows = iter(compare({labels[key]: one for key, one in values.items()}, pairs, tests))
    for key in (key for key in values if key[1]):
        paired.rows[key] = [next(rows) for _ in measures]
    return paired


def reasons(left_out: Mapping[str, int]) -> Iterator[str]:
    """Say how many queries are left out, and why."""
    for reason, number in left_out.items():
        yield f"{number:,} {'query' if number == 1 else 'queries'} {reason}"


def _shared_queries(builds: Sequence[Build]) -> tuple[list[str], dict[str, int]]:
    """List the judged queries that all builds have alike, in the order of the first; count the others by reason."""
    first, *others = builds
    common = [query_id for query_id in first.qrels if all(query_id in other.qrels for other in others)]
    left_out = {f"of {build.name} that another lacks": len(build.qrels) - len(common) for build in builds}
    same = [one for one in common if all(other.texts[one] == first.texts[one] for other in others)]
    left_out[OTHER_TEXT] = len(common) - len(same)
    kept = [one for one in same if all(other.qrels[one] == first.qrels[one] for other in others)]
    left_out[OTHER_JUDGEMENTS] = len(same) - len(kept)
    return kept, {reason: number for reason, number in left_out.items() if number}


def _select(values: Values, query_ids: Sequence[str], measures: Sequence[str]) -> Values:
    place_of = {query_id: place for place, query_id in enumerate(values.query_ids)}
    rows, columns = [place_of[one] for one in query_ids], [values.measures.index(one) for one in measures]
    return Values([*query_ids], [*measures], values.values[np.ix_(rows, columns)])
