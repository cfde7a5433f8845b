"""The systems of an experiment against its baseline on a split, as the verdict prints them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from cort.config.experiment import Experiment
from cort.evaluation.comparisons import NOT_SIGNIFICANT, WIN, Comparison, Comparisons
from cort.formats.artifacts import read_artifact
from cort.reporting.format import best_first, difference, family, fixed, p_value, plural
from workflow.inputs import reported

# Queries that nobody judges for one decision.
MANY = 10_000


@dataclass(frozen=True)
class Compared:
    """The systems of an experiment against its baseline, on a split, by the first measure of this split.

    :ivar over: the comparisons over which p is corrected.
    """

    split: str
    labels: str
    measure: str
    baseline: str
    queries: int
    rows: dict[str, Comparison]
    over: str

    @property
    def means(self) -> dict[str, float]:
        """The mean of each system, also of the baseline."""
        return {name: row.mean for name, row in self.rows.items()} | {
            self.baseline: next(iter(self.rows.values())).baseline_mean
        }

    def best_first(self) -> list[str]:
        """List the systems that are significantly better than the baseline, the best first, then the baseline."""
        return [*best_first({row.system: row.mean for row in self.rows.values() if row.verdict == WIN}), self.baseline]

    def table(self) -> Iterator[str]:
        """Write a line per system, the best first: mean, difference from the baseline, interval, p, verdict."""
        means = self.means
        width = max(map(len, means))
        for name in best_first(means):
            row = self.rows.get(name)
            text = f"  {name:<{width}}  {fixed(means[name])}"
            if row:
                text += f"  {difference(row)}  p {p_value(row.randomization_test_holm)}  {row.verdict}"
            yield text + (self.lacking(row) if row and row.difference > 0 and row.verdict == NOT_SIGNIFICANT else "")

    def lacking(self, row: Comparison) -> str:
        """Say why something that looks better is no win: p before the correction, and the queries that would decide."""
        text = f" (p {p_value(row.randomization_test)} by itself"
        if row.queries_to_decide is None:
            return f"{text})"
        number = row.queries_to_decide - self.queries
        if number > MANY:
            return f"{text}; so small that it takes over {MANY:,} more queries)"
        more = plural(max(1, number), "more query", "more queries")
        return f"{text}; {'judge ' * (self.labels == 'human')}about {more})"

    def legend(self) -> str:
        """Say what the table shows."""
        return (
            f"difference from {self.baseline}, 95 % interval of one comparison, p corrected over {self.over} (Holm); "
            "queries for power .8 at this difference"
        )

    def short(self) -> str:
        """Write all systems in one line, the best first."""
        means = self.means
        verdicts = {name: f" {row.verdict}" for name, row in self.rows.items()}
        return ", ".join(f"{name} {fixed(means[name])}{verdicts.get(name, '')}" for name in best_first(means))


def read_compared(experiment: Experiment) -> list[Compared]:
    """Read the comparisons of a built experiment, a split each."""
    found = []
    for path in reported(experiment, "comparisons"):
        one: Comparisons = read_artifact(path, Comparisons)
        measure = experiment.measures_of(one.split)[0]
        rows = one.against(one.baseline, measure)
        over = family(next(iter(rows.values())).family, one)
        found.append(
            Compared(one.split, experiment.labels_of(one.split), measure, one.baseline, one.queries, rows, over)
        )
    return found


def disagreement(first: Compared, second: Compared) -> Iterator[str]:
    """Name the pairs of systems whose order differs between two kinds of labels, in one line if there are any."""
    ours, theirs = first.means, second.means
    pairs = combinations([name for name in best_first(ours) if name in theirs], 2)
    turned = [(one, other) for one, other in pairs if ours[one] > ours[other] and theirs[one] < theirs[other]]
    if turned:
        texts = ", ".join(f"{one} over {other}" for one, other in turned)
        yield f"only on {first.labels} labels, not on {second.labels} ones: {texts}"
