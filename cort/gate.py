"""What a built system reaches, and how it compares with a stored baseline, in three lines.

Reads:  results of an experiment: settings, queries, judgements, measures per query
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from cort.config import paths
from cort.config.experiment import Experiment
from cort.evaluation.comparisons import DETECTABLE
from cort.evaluation.gate import Baseline, Decision, changes, digest_of
from cort.evaluation.values import read_values
from cort.reporting.builds import settings_of
from cort.reporting.format import fixed, p_value, signed

# Settings that are printed of those that changed.
SHOWN = 5


def measured(experiment: Experiment, systems: list[str], split: str) -> Baseline:
    """Read what the best of some built systems reaches by the first measure of a split."""
    measure = experiment.measures_of(split)[0]
    read = {name: read_values(experiment.at(paths.PER_QUERY, split=split, system=name)) for name in systems}
    columns = {name: one.values[:, one.measures.index(measure)].tolist() for name, one in read.items()}
    best = max(columns, key=lambda name: fmean(columns[name]))
    queries, qrels = (experiment.at(path, split=split) for path in (paths.QUERIES, paths.QRELS))
    settings = settings_of(experiment)
    values = dict(zip(read[best].query_ids, columns[best], strict=True))
    digest = digest_of(queries, qrels, experiment.splits[split].relevance_level)
    return Baseline(best, split, measure, digest, settings, values)


def lines(known: Baseline, now: Baseline, decision: Decision, margin: float) -> Iterator[str]:
    """Write three lines: the difference, the decision, and the settings that changed."""
    changed = f"{fixed(decision.before)} -> {fixed(decision.now)} ({signed(decision.now - decision.before)})"
    yield f"{now.system} on {now.split}, {now.measure} on {len(now.values):,} queries: {changed}"
    loss = f"loss of more than {margin:g}" if margin else "loss"
    test = f"p {p_value(decision.p)} of the one-sided randomisation test, significant at {decision.level:g}"
    yield f"{f'LOSS: a significant {loss}' if decision.lost else f'no significant {loss}'}; {test}" + (
        f"; a loss of {margin + DETECTABLE:g} is found on about {decision.needed:,} queries (power .8)"
        if decision.needed and not decision.lost
        else ""
    )
    told = [*changes(known.settings, now.settings)]
    more = f"; and {len(told) - SHOWN} more" if len(told) > SHOWN else ""
    yield f"settings changed: {'; '.join(told[:SHOWN])}{more}" if told else "settings: those of the baseline"
