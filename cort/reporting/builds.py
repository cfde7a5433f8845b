"""Two or more builds on the queries that all of them have: what is compared, and how it is written.

Documents are compared where a build measures documents, or where passages are divided differently: a run of passages
then counts as one of documents, each with the score of its best passage.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from cort.config import paths
from cort.config.entries import leaves
from cort.config.experiment import Experiment
from cort.config.root import affecting_results
from cort.evaluation.comparisons import Comparison, Tests
from cort.evaluation.gate import changes
from cort.evaluation.measures import Qrels, evaluate_run, qrels_by_query
from cort.evaluation.paired import Build, Paired, pair, reasons
from cort.evaluation.values import Values, read_values, values_of
from cort.formats import tables
from cort.formats.runs import read_run
from cort.reporting.format import best_first, count, difference, fixed, named, p_value, plural, signed
from cort.retrieval.documents import as_documents, document_of
from cort.runtime.errors import input_error

# Gains, and losses, that are written, of a system.
MOVED = 5
# Settings that are written of those that differ.
SETTINGS = 20
# They name a build.
NAMES = ("dataset", "title")


def tests_of(experiment: Experiment) -> Tests:
    """Return how an experiment tests differences."""
    how = experiment.evaluation
    return Tests(how.confidence, how.resamples, how.alpha, experiment.root.seed)


def systems_of(builds: Sequence[Experiment], split: str, system: str | None = None) -> list[list[str]]:
    """Name the systems to compare, in each build: those that all have, or the one that is named.

    :param system: its name; or one for each build, joined with `=`, as in `minilm=e5`.
    :raises InputError: if a build lacks the split or the system, or they share no system.
    """
    for build in builds:
        if split not in build.evaluated_splits:
            known = ", ".join(build.evaluated_splits) or "(there is none)"
            expected = f"one of {known}, which have judgements in {name_of(build)}"
            raise input_error("SPLIT", split, expected, "name one that all builds have")
    known_systems = [build.on_split(split) for build in builds]
    if system is None:
        shared = [[name] * len(builds) for name in known_systems[0] if all(name in names for names in known_systems)]
        if not shared:
            found = "; ".join(
                f"{', '.join(names)} in {name_of(build)}" for build, names in zip(builds, known_systems, strict=True)
            )
            raise input_error("SYSTEM", found, "a system of all", "name one of each, as in SYSTEM=minilm=e5")
        return shared
    chosen = system.split("=") if "=" in system else [system] * len(builds)
    for build, names, name in zip(builds, known_systems, chosen, strict=False):
        if name not in names:
            expected = f"one of {', '.join(names)}, which {name_of(build)} has on {split}"
            raise input_error("SYSTEM", name or "nothing", expected, "name one, or one of each as in SYSTEM=minilm=e5")
    if len(chosen) != len(builds):
        raise input_error("SYSTEM", system, f"{len(builds)} names joined with =", "name one system of each build")
    return [chosen]


def unit_of(builds: Sequence[Experiment]) -> str:
    """Tell what is compared: ``passages`` or ``documents``."""
    ways = [(build.collection.aggregate == "none", build.collection.division, build.copied_from) for build in builds]
    return "passages" if all(way == ways[0] for way in ways) and ways[0][0] else "documents"


def compare_builds(builds: Sequence[Experiment], split: str, systems: Sequence[Sequence[str]]) -> Paired:
    """Compare systems of builds with those of the first, by the tests of the last.

    :raises InputError: if what they measure is not alike.
    """
    levels = [build.splits[split].relevance_level for build in builds]
    if len({*levels}) > 1:
        found = " and ".join(map(str, levels))
        raise input_error(f"splits.{split}.relevance_level", found, "one of all builds", "build with the same level")
    whole = unit_of(builds) == "documents"
    names_of = [list(dict.fromkeys(names)) for names in zip(*systems, strict=True)]
    measured = [_measured(build, split, names, whole) for build, names in zip(builds, names_of, strict=True)]
    return pair(measured, systems, tests_of(builds[-1]))


def _measured(build: Experiment, split: str, systems: Sequence[str], whole: bool) -> Build:
    """Read what a build measured, or measure documents."""
    qrels_file = build.at(paths.QRELS, split=split)
    qrels = qrels_by_query(tables.read_table(qrels_file, tables.QRELS), qrels_file)
    divided = whole and build.collection.aggregate == "none"
    qrels = _of_documents(qrels) if divided else qrels
    values = {}
    for name in systems:
        if divided:
            values[name] = _evaluate(build, split, name, qrels)
        else:
            # Measures that the config has no longer may still be there.
            found = read_values(build.at(paths.PER_QUERY, split=split, system=name))
            kept = [place for place, one in enumerate(found.measures) if one in build.measures_of(split)]
            values[name] = Values(found.query_ids, [found.measures[place] for place in kept], found.values[:, kept])
    return Build(name_of(build), tables.read_queries(build.at(paths.QUERIES, split=split)), qrels, values)


def _of_documents(qrels: Qrels) -> Qrels:
    """Grade documents as the best of their passages."""
    found: Qrels = {}
    for query_id, grades in qrels.items():
        own = found.setdefault(query_id, {})
        for doc_id, grade in grades.items():
            document = document_of(doc_id)
            own[document] = max(grade, own.get(document, grade))
    return found


def _evaluate(build: Experiment, split: str, system: str, qrels: Qrels) -> Values:
    run = as_documents(read_run(build.run(split, system)), "max")
    measures = build.measures_of(split)
    return values_of(evaluate_run(run, qrels, measures, build.splits[split].relevance_level))


def name_of(build: Experiment) -> str:
    """Name a build: its folder, from here if it is below."""
    folder = Path(build.at(paths.EXPERIMENT)).parent
    return str(folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder)


def settings_of(build: Experiment) -> dict[str, str]:
    """Return the settings that affect results, as JSON by path."""
    return {key: json.dumps(value) for key, value in leaves(affecting_results(build.config)) if key not in NAMES}


def lines(builds: Sequence[Experiment], split: str, systems: Sequence[Sequence[str]], paired: Paired) -> Iterator[str]:
    """Write how the second of two builds differs from the first."""
    old, new = builds
    found, unit = plural(len(paired.texts), "query", "queries"), unit_of(builds)
    yield f"{name_of(new)} against {name_of(old)} on {split}: {found} that both have, {unit} are measured"
    if paired.left_out:
        yield f"left out: {', '.join(reasons(paired.left_out))}"
    for build, place in ((old, 0), (new, 1)):
        alone = [name for name in build.on_split(split) if name not in [names[place] for names in systems]]
        if alone:
            yield f"not compared of {name_of(build)}: {', '.join(alone)}"
    for name, measures in paired.unshared.items():
        yield f"only measured in {name}: {', '.join(map(named, measures))}"
    width = max(len(named(one)) for one in paired.measures)
    for first, second in systems:
        yield first if first == second else f"{first} -> {second}"
        for row in paired.rows[first, 1]:
            yield f"  {named(row.measure):<{width}}  {fixed(row.baseline_mean)} -> {difference_of(row)}"
    yield legend(tests_of(new), len(systems))
    yield from _moved(systems, paired)
    differing = [*changes(settings_of(old), settings_of(new))]
    more = [f"and {len(differing) - SETTINGS} more"] if len(differing) > SETTINGS else []
    yield "settings that differ:" if differing else "settings: the same"
    yield from (f"  {one}" for one in [*differing[:SETTINGS], *more])


def difference_of(row: Comparison) -> str:
    """Write a mean, its difference from the baseline, interval, p and verdict."""
    return f"{fixed(row.mean)}  {difference(row)}  p {p_value(row.randomization_test_holm)}  {row.verdict}"


def legend(tests: Tests, comparisons: int) -> str:
    """Say what intervals and p are."""
    corrected = f", corrected over {count(comparisons)} comparisons (Holm)" if comparisons > 1 else ""
    return (
        f"{tests.confidence:.0%} interval of one comparison; p of the paired randomisation test{corrected}; "
        f"WIN and LOSS if at most {tests.alpha:g}"
    )


def _moved(systems: Sequence[Sequence[str]], paired: Paired) -> Iterator[str]:
    """Write the queries that moved most, of the system that is best in the second build."""
    system = best_first({first: paired.rows[first, 1][0].mean for first, _ in systems})[0]
    moved = paired.changes(system, 1)
    gains, losses = moved[:MOVED], moved[: -MOVED - 1 : -1]
    shown = [one for one in gains if one[2] > one[1]] + [one for one in losses if one[2] < one[1]]
    second = next(second for first, second in systems if first == system)
    if not shown:
        yield f"no query moved by {second}, {named(paired.measures[0])}"
        return
    yield f"queries that moved most by {second}, {named(paired.measures[0])}:"
    for query_id, before, after in shown:
        yield f"  {signed(after - before)}  {fixed(before)} -> {fixed(after)}  {query_id}  {paired.texts[query_id]}"
