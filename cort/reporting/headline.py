"""The first sentences of a report: the best system on each split, by how much, and what each step adds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from cort.evaluation.comparisons import NOT_SIGNIFICANT, TOO_FEW, WIN, Comparison, Comparisons
from cort.evaluation.measures import Measures
from cort.reporting.labels import fixed, measure_label, plural, shown_interval, signed
from cort.reporting.tables import by_split, names_of_measures


class Headline(NamedTuple):
    """Sentences on a split: which system is best by the first measure, and further ones if there is more to say."""

    lead: str
    further: str


@dataclass(frozen=True)
class Standing:
    """The values of a split's systems by one measure, and the comparisons by that measure."""

    measure: str
    values: Mapping[str, float]
    rows: Mapping[tuple[str, str], Comparison]

    @property
    def label(self) -> str:
        """Name of the mean."""
        return measure_label(self.measure)

    def best(self, favourite: str | None = None) -> str:
        """Return the best system; of those that agree to three decimals, the favourite or else the highest."""
        highest = max(round(value, 3) for value in self.values.values())
        alike = [name for name, value in self.values.items() if round(value, 3) == highest]
        return favourite if favourite in alike else max(alike, key=lambda name: self.values[name])


def headlines(
    dataset: str, measures: Sequence[Measures], comparisons: Sequence[Comparisons], baseline: str | None = None
) -> list[Headline]:
    """Say for each split which system is best by the first measure, what each step adds, and the last measure."""
    lines = []
    for split, block in by_split(measures).items():
        rows = [row for compared in comparisons if compared.split == split for row in compared.comparisons]
        standings = [_standing(name, block, rows) for name in names_of_measures(block)]
        if standings and standings[0].values:
            first, *others = standings
            place = f"On {plural(block[0].queries, 'query', 'queries')} of {dataset}, {split}"
            best = first.best(baseline)
            further = [*_steps_sentence(first, best, baseline)]
            further += [_last(standing, best, baseline) for standing in others if standing.values][-1:]
            lines.append(Headline(f"{place}, {_lead(first, best, baseline)}.", " ".join(further)))
    return lines


def _standing(measure: str, block: Sequence[Measures], rows: Sequence[Comparison]) -> Standing:
    values = {system.system: value for system in block if (value := system.mean.get(measure)) is not None}
    return Standing(measure, values, {(row.system, row.baseline): row for row in rows if row.measure == measure})


def _lead(standing: Standing, best: str, baseline: str | None) -> str:
    value, label = fixed(standing.values[best]), standing.label
    if len(standing.values) == 1:
        return f"{best} reaches {label} {value}"
    if best == baseline:
        second = replace(standing, values={name: mean for name, mean in standing.values.items() if name != best}).best()
        row = standing.rows.get((second, best))
        text = f"no system beats {best} in {label}, {value}; the next, {second}, has {fixed(standing.values[second])}"
        return text + (f", {_difference(row)}" if row else "")
    row = standing.rows.get((best, baseline or ""))
    if row is None:
        return f"{best} has the highest {label}, {value}"
    if row.verdict == WIN:
        return f"{best} has the highest {label}, {value}: {_difference(row)} over {baseline}"
    return f"{best} has the highest {label}, {value}, but {_undecided(row)}"


def _difference(row: Comparison) -> str:
    return f"{signed(row.difference)} ({shown_interval(row.difference_low, row.difference_high, sign=True)})"


def _undecided(row: Comparison) -> str:
    if row.verdict == TOO_FEW:
        return f"has too few queries to be compared with {row.baseline}: {_difference(row)}"
    return f"does not differ significantly from {row.baseline}: {_difference(row)}"


def _steps_sentence(standing: Standing, best: str, baseline: str | None) -> Iterator[str]:
    """Say what each step to the best system adds, except for what the lead says."""
    steps = dict.fromkeys(_steps(standing, best))
    if texts := [_step(row) for row in steps if (row.system, row.baseline) != (best, baseline)]:
        yield f"Step by step, in {standing.label}: {'; '.join(texts)}."


def _steps(standing: Standing, system: str) -> Iterator[Comparison]:
    """Yield the comparisons of a system with its best part and with its start, after those of its parts."""
    rows = [row for (name, _), row in standing.rows.items() if name == system]
    parts = [row for row in rows if row.relation == "part"]
    starts = [row for row in rows if row.relation == "start"]
    for row in [*parts, *starts]:
        yield from _steps(standing, row.baseline)
    if parts:
        yield max(parts, key=lambda row: row.baseline_mean)
    yield from starts


def _step(row: Comparison) -> str:
    if row.verdict in (NOT_SIGNIFICANT, TOO_FEW):
        return f"{row.system} {_undecided(row)}"
    if row.verdict == WIN:
        return f"{row.system} adds {_difference(row)} to {row.baseline}"
    return f"{row.system} falls below {row.baseline}: {_difference(row)}"


def _last(standing: Standing, favourite: str, baseline: str | None) -> str:
    """Say which system is best by the last measure."""
    best = standing.best(favourite)
    value, row = fixed(standing.values[best]), standing.rows.get((best, baseline or ""))
    if best == baseline and best != favourite:
        return f"No system beats {best} in {standing.label}: {value}."
    text = f"{standing.label} of {best} is {value}"
    if best != favourite:
        text = f"{standing.label} is highest with {best}, {value}"
    if row is None:
        return f"{text}."
    return f"{text}, {_difference(row)} over {baseline}." if row.verdict == WIN else f"{text}, which {_undecided(row)}."
