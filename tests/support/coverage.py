"""Which published numbers an experiment computes, and why not the others: from configs alone.

A number is computed if an experiment measures this quantity of this system on this split: the experiment itself, or
another one that names the paper.
"""

from dataclasses import dataclass

from cort.experiment.checks import load
from cort.reporting.reproduction.fidelity import PRECISION, RANKED, UNJUDGED
from cort.reporting.reproduction.paper import Number, read_paper
from tests.support.common import ROOT

MSMARCO = "config/msmarco.yaml"
# Batch sizes in the names of published latencies.
BATCH, SINGLE = "32", "1"
UNKNOWN = "no system of ours is named for it"


@dataclass(frozen=True)
class Covered:
    """A published number; `by` is the experiment that computes it, else `reason` says why none does."""

    paper: str
    number: Number
    by: str | None
    reason: str | None

    @property
    def place(self):
        """Where the paper prints it."""
        return f"{self.number.where}: {self.number.row}, {self.number.column}"


def shipped():
    """Load the experiments of the folder `config` and its ablations by path, that of the papers first."""
    found = [path for pattern in ("*.yaml", "ablations/*.yaml") for path in sorted((ROOT / "config").glob(pattern))]
    return {
        name: load(ROOT / name) for name in dict.fromkeys([MSMARCO, *(str(path.relative_to(ROOT)) for path in found)])
    }


def of_experiment(path, experiments):
    """Cover the papers of an experiment by itself, then by the `experiments` that name one of them."""
    experiment = load(ROOT / path)
    papers = experiment.config["papers"]
    others = {name: other for name, other in experiments.items() if {*other.config["papers"]} & {*papers}}
    return cover([read_paper(ROOT / file) for file in papers], {path: experiment} | others)


def cover(papers, experiments):
    """Find the experiment that computes each number; of `experiments`, by name, the first counts."""
    measured = {name: Measured(experiment) for name, experiment in experiments.items()}
    covered = []
    for paper in papers:
        for number in (number for exhibit in paper.exhibits for number in exhibit.numbers):
            by = next((name for name, experiment in measured.items() if experiment.computes(number)), None)
            covered.append(Covered(paper.name, number, by, None if by else number.not_computed or UNKNOWN))
    return covered


class Measured:
    """The quantities that an experiment measures."""

    def __init__(self, experiment):
        self.experiment, self.config = experiment, experiment.config
        self.latencies = set(_latencies(experiment))

    def computes(self, quantity):
        """Whether a quantity is among the results."""
        if quantity.system is None:
            return False
        if quantity.measure.startswith("latency"):
            batch = quantity.measure.partition("@")[2] or SINGLE
            return (quantity.split, quantity.system, batch) in self.latencies
        if quantity.split not in self.experiment.evaluated_splits or quantity.system not in self.config["systems"]:
            return False
        if quantity.split not in self.experiment.splits_of(quantity.system):
            return False
        if quantity.measure == "consistency":
            return self._has_factor(quantity)
        if quantity.quantity == "saturation" or quantity.depth is not None:
            return self._is_on_curve(quantity)
        measure = RANKED if quantity.measure == "rank" else quantity.measure
        return measure in {PRECISION, UNJUDGED, *self.config["splits"][quantity.split]["measures"]}

    def _is_on_curve(self, quantity):
        """Whether a re-ranked system is measured at all depths that a quantity needs."""
        measures = self.config["evaluation"]["depth_measures"]
        if self.experiment.systems[quantity.system].reranker() is None or quantity.measure not in measures:
            return False
        depths = self.experiment.curve_depths(quantity.system)
        return {*quantity.depths, *([] if quantity.depth is None else [quantity.depth])} <= {*depths}

    def _has_factor(self, quantity):
        consistency = self.config["evaluation"].get("consistency")
        if consistency is None or quantity.split not in self.experiment.splits_of(consistency["reference"]):
            return False
        return quantity.system in consistency["systems"] and quantity.depth in consistency["depths"]


def _latencies(experiment):
    """Yield split, name and batch size of all latencies, with the names that `cort.latency` uses."""
    if (latency := experiment.config.get("latency")) is None:
        return
    for system in latency["systems"]:
        parts = [experiment.systems[part] for part in experiment.with_parts([system])]
        sizes = (SINGLE, BATCH) if all(part.batches for part in parts) else (SINGLE,)
        names = {system, *(_name(experiment, system, gpus) for gpus in range(2, latency["gpus"] + 1))}
        if parts[0].divisible:
            names.add(f"{experiment.config['systems'][system]['retrieve']}-queries")
        yield from ((latency["split"], name, size) for name in names for size in sizes)


def _name(experiment, system, gpus):
    """Name of a system with vectors on several GPUs; its own name if it has no vectors."""
    made = experiment.systems[system]
    if made.merges and system == "+".join(made.parts()):
        return "+".join(_name(experiment, part, gpus) for part in made.parts())
    divisible = any(experiment.systems[part].divisible for part in experiment.with_parts([system]))
    return f"{system}-{gpus}gpus" if divisible else system
