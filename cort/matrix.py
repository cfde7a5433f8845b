"""Tabulate the systems of several experiments by test collection, with averages over the collections.

A test collection is an evaluated split: it has judgements, and is not `train` or `validation`. Systems of one name are
one row; where an experiment lacks a system, the cell is empty. Numbers that others published for a system
(`splits.x.published`) have a row of their own. Splits of one `group` are one column, their mean. On each collection,
the paired randomisation test compares every system with the baseline, that of the first experiment, and Holm's method
corrects p over the systems.
Then come, over the collections that have both the system and the baseline: the mean, the mean difference from the
baseline, Student's t interval of the collections' differences, and the number of collections.

Reads:  results of experiments: experiment.yaml, queries, measures per query
Writes: index.html, matrix and costs as csv and tex, costs.svg; the cells of the page link to reports
Usage:  python -m cort.matrix --experiments config/matrix/nfcorpus.yaml config/matrix/scifact.yaml
            --output-folder results/matrix
"""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Literal, NamedTuple

from cort.config import paths
from cort.config.evaluation import Evaluation
from cort.config.experiment import Experiment
from cort.config.fields import Seed
from cort.evaluation.comparisons import Pair, Tests, compare
from cort.evaluation.values import read_values, refuse_unlike
from cort.formats.tables import read_queries
from cort.online.options import read_results
from cort.reporting.costs import FRONT, costs_frame, costs_panels, costs_table
from cort.reporting.figures import draw, embed
from cort.reporting.format import INTERVAL, best, count, plural, signed
from cort.reporting.found import Found
from cort.reporting.page import Chapter, render
from cort.reporting.tables import Place, Table, files_of
from cort.runtime import cli
from cort.runtime.errors import input_error
from cort.runtime.files import write_text
from cort.runtime.sections import FolderPath, Maybe, Section, Several, Text, YamlFile, default_of

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)

MEASURES = ("nDCG@10", "R@100")
# After the name of a system whose numbers others published.
PUBLISHED = " (published)"
# The same tests on all collections, whatever the experiments' own settings are.
TESTS = Tests(
    default_of(Evaluation, "confidence"),
    default_of(Evaluation, "resamples"),
    default_of(Evaluation, "alpha"),
    default_of(Seed, "seed"),
)
# Of one difference, an interval is undefined, and of two too wide to say anything.
MIN_COLLECTIONS = 3
NOTE = (
    "* differs significantly from {0}: p of the paired randomisation test ({1.resamples:,} random signs), corrected by "
    "Holm's method over the systems of a collection for each measure, is at most {1.alpha:g}; "
    "columns that are means of a group are not tested. "
    "The last columns are over the collections that have both the system and {0}, each counted once. Student's t "
    "interval ({1.confidence:.0%}) is over the differences of the collections; it needs {2} or more."
)


class Options(Section):
    """Options of this command, which is not a stage."""

    experiments: Several[YamlFile]
    """Configs of experiments that were built, or folders of results."""
    measures: Several[Text] = MEASURES
    """Columns (default: nDCG@10 R@100)."""
    labels: Maybe[Literal["human", "LLM", "synthetic"]] = None
    """Tabulate only collections with these labels."""
    output_folder: FolderPath


class Collection(NamedTuple):
    """A test collection: a split of an experiment.

    :ivar title: of the experiment, with the split and the number of judged queries.
    :ivar report: page of the experiment, relative to the table.
    :ivar group: of several that are shown as one, if any.
    :ivar texts: of all queries.
    :ivar means: by measure and system, over the judged queries, and published ones.
    :ivar significant: measures and systems that differ significantly from the baseline.
    """

    name: str
    title: str
    report: str
    group: str | None
    texts: set[str]
    means: pd.Series
    significant: set[tuple[str, str]]


def chosen_splits(experiment: Experiment, options: Options) -> list[str]:
    """List the evaluated splits that have the labels that are asked for."""
    splits = dict.fromkeys(split for split, _ in experiment.evaluated_runs)
    return [split for split in splits if options.labels in (None, experiment.labels_of(split))]


def read_collections(experiment: Experiment, title: str, baseline: str, options: Options) -> Iterator[Collection]:
    """Read each evaluated split of an experiment with this title, and compare its systems with the baseline."""
    import pandas as pd

    root = experiment.root
    for split in chosen_splits(experiment, options):
        names = experiment.on_split(split)
        files = [experiment.at(paths.PER_QUERY, split=split, system=name) for name in names]
        systems = dict(zip(names, map(read_values, files), strict=True))
        refuse_unlike(files, [*systems.values()])
        first, known = systems[names[0]], experiment.measures_of(split)
        for measure in options.measures:
            if measure not in known or measure not in first.measures:
                fix = f"add it to evaluation.measures (splits.{split}.measures, if that is set), and build again"
                raise input_error(experiment.at(paths.EXPERIMENT), f"no {measure} of {split}", "it as a measure", fix)
        pairs = [Pair(name, baseline, "baseline") for name in names if name != baseline and baseline in names]
        means = {name: dict(zip(one.measures, map(fmean, one.values.T), strict=True)) for name, one in systems.items()}
        settings = experiment.splits[split]
        means |= {name + PUBLISHED: numbers for name, numbers in (settings.published or {}).items()}
        yield Collection(
            f"{root.dataset}/{experiment.title_of_split(split)}",
            f"{title}, {experiment.title_of_split(split)} ({len(first.query_ids):,})",
            os.path.relpath(experiment.at(paths.REPORT) + "index.html", options.output_folder),
            settings.group,
            {*read_queries(experiment.at(paths.QUERIES, split=split)).values()},
            pd.DataFrame(means).stack(),
            {(row.measure, row.system) for row in compare(systems, pairs, TESTS) if row.significant},
        )


def grouped(collections: list[Collection]) -> list[Collection]:
    """Replace the collections of each group by their mean, at the place of the first."""
    groups: dict[str | int, list[Collection]] = defaultdict(list)
    for place, one in enumerate(collections):
        groups[place if one.group is None else one.group].append(one)
    return [_mean_of(group) if group[0].group else group[0] for group in groups.values()]


def _mean_of(group: list[Collection]) -> Collection:
    """Join collections, for which no difference is tested; a mean is unknown where one of them is."""
    import pandas as pd

    name = str(group[0].group)
    means = pd.concat([one.means for one in group], axis=1).mean(axis=1, skipna=False)
    texts = set[str]().union(*(one.texts for one in group))
    return Collection(name, f"{name}, mean of {len(group)}", group[0].report, name, texts, means, set())


def tabulate(collections: list[Collection], baseline: str, measures: tuple[str, ...]) -> Table:
    """Tabulate means, a row for each measure and system, the baseline first, with significant differences marked."""
    import pandas as pd

    systems = dict.fromkeys([baseline, *(name for one in collections for _, name in one.means.index)])
    rows = pd.MultiIndex.from_product([measures, systems], names=["measure", "system"])
    names = [one.name for one in collections]
    means = pd.concat([one.means for one in collections], axis=1, keys=names).reindex(rows)
    frame = with_averages(means, baseline).reset_index()
    ours = [place for place, (_, name) in enumerate(rows) if not name.endswith(PUBLISHED)]
    bold, marked, links = set[Place](), set[Place](), dict[Place, str]()
    for one in collections:
        for measure in measures:
            own = [place for place in ours if rows[place][0] == measure]
            leaders = best({rows[place][1]: frame[one.name][place] for place in own})
            bold |= {(place, one.name) for place in own if rows[place][1] in leaders}
        marked |= {(place, one.name) for place, key in enumerate(rows) if tuple(key) in one.significant}
        links |= {(place, one.name): one.report for place in range(len(rows)) if not pd.isna(frame[one.name][place])}
    headings = {one.name: one.title for one in collections} | INTERVAL | {"difference": f"against {baseline}"}
    formats = {"collections": count} | dict.fromkeys(("difference", "low", "high"), signed)
    caption = "means over the queries of each collection, with links to its report; the best in bold."
    note = NOTE.format(baseline, TESTS, MIN_COLLECTIONS)
    sets = frozenset(bold), frozenset(marked)
    return Table("matrix", caption, frame, formats, headings, "measure", *sets, links, note)


def summarize(table: Table, collections: list[Collection], baseline: str, measure: str) -> Iterator[str]:
    """Say on how many collections the best system beats the baseline; most collections have it."""
    frame = table.frame[(table.frame["measure"] == measure) & ~table.frame["system"].str.endswith(PUBLISHED)]
    base, others = frame.iloc[0], frame.iloc[1:].dropna(subset=["difference"])
    if len(others):
        row = others.sort_values(["collections", "difference"], kind="stable").iloc[-1]
        won = [one.name for one in collections if row[one.name] > base[one.name]]
        sure = sum((row.name, name) in table.marked for name in won)
        yield (
            f"{row['system']} beats {baseline} in {measure} on {len(won)} of "
            f"{plural(row['collections'], 'collection', 'collections')}, significantly on {sure}; "
            f"mean {signed(row['difference'])}."
        )


def with_averages(means: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Add averages to means, which have a column for each collection; NaN where a value is undefined."""
    from scipy import stats

    differences = means.sub(means.xs(baseline, level=1), level=0)
    number = differences.count(axis=1)
    mean = differences.mean(axis=1)
    quantile = stats.t.ppf((1 + TESTS.confidence) / 2, number - 1)
    half = (differences.sem(axis=1) * quantile).where(number >= MIN_COLLECTIONS)
    averages = {"mean": means.where(differences.notna()).mean(axis=1), "difference": mean, "low": mean - half}
    return means.assign(**averages, high=mean + half, collections=number)


def read_costs(experiments: list[Experiment], options: Options) -> pd.DataFrame:
    """Tabulate the first measure of each system against its costs, on the collections as the experiments have them."""
    import pandas as pd

    frames = []
    for experiment in experiments:
        found = Found(experiment, partial=True)
        chosen = {experiment.title_of_split(split) for split in chosen_splits(experiment, options)}
        measures = [one for one in found.measures if one.split in chosen]
        frame = costs_frame(measures, found.comparisons, found.latencies, found.sizes, options.measures[0])
        frames.append(frame.assign(split=f"{experiment.root.dataset}/" + frame["split"]))
    return pd.concat(frames, ignore_index=True)


def stage(options: Options) -> None:
    """Read all collections and write the table, the page last."""
    experiments = [*map(read_results, options.experiments)]
    baseline = experiments[0].evaluation.baseline
    labels = sorted({one.labels_of(split) for one in experiments for split, _ in one.evaluated_runs})
    if len(labels) > 1 and options.labels is None:
        fix = "choose with --labels, or name other experiments"
        raise input_error("--experiments", f"{' and '.join(labels)} labels", "labels of one kind", fix)
    titles = Counter(one.root.title for one in experiments)
    named = [(each, each.root.title if titles[each.root.title] == 1 else each.root.dataset) for each in experiments]
    collections = grouped([one for each, title in named for one in read_collections(each, title, baseline, options)])
    twice = Counter(one.name for one in collections)
    collections = [
        one._replace(name=f"{one.name} ({place})") if twice[one.name] > 1 else one
        for place, one in enumerate(collections, start=1)
    ]
    if not collections:
        raise input_error("--experiments", "no judgements", "a split with judgements", "name other experiments")
    doubts = [
        f"{first.name} and {second.name} share {len(first.texts & second.texts):,} queries, but both count"
        for first, second in combinations(collections, 2)
        if first.texts & second.texts
    ]
    for doubt in doubts:
        log.warning("%s", doubt)
    table = tabulate(collections, baseline, options.measures)
    costs = read_costs(experiments, options)
    looks = {name: place for place, name in enumerate(dict.fromkeys([baseline, *costs["system"]]))}
    panels = costs_panels(costs, looks)
    systems = {name for name in table.frame["system"] if not name.endswith(PUBLISHED)}
    found = plural(len(collections), "test collection", "test collections")
    texts = {**files_of(table), **files_of(cost := costs_table(costs))}
    texts["costs.svg"] = draw(panels)
    texts["index.html"] = render(
        "base.html.jinja",
        title="Systems by collection",
        kicker=f"Labels: {labels[0] if options.labels is None else options.labels}",
        lead=" ".join(
            [
                *summarize(table, collections, baseline, options.measures[0]),
                f"{plural(len(systems), 'system', 'systems')} on {found}.",
                *(f"Warning: {one}." for one in doubts),
            ]
        ),
        sections=[
            Chapter("matrix", "Means", [table], text=table.note),
            Chapter("costs", "Costs", [cost], embed(panels), FRONT),
        ],
        files=[*texts],
    )
    for name, text in texts.items():
        write_text(Path(options.output_folder) / name, text)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
