"""Which published numbers an experiment computes: from configs alone.

A number is computed if an experiment measures this quantity of this system on this split.
"""

import csv

from cort.config.load import load
from cort.reporting.published import RANKED
from tests.support.common import ROOT

MSMARCO = "config/msmarco.yaml"
#: known of every judged run
TOP = {"P@10", "unjudged@10"}


def published():
    """Read all published numbers, a mapping each."""
    with (ROOT / "config" / "papers.csv").open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


def shipped():
    """Load the experiments of the folder `config` and its ablations by path, that of the papers first."""
    found = [path for pattern in ("*.yaml", "ablations/*.yaml") for path in sorted((ROOT / "config").glob(pattern))]
    return {
        name: load(ROOT / name) for name in dict.fromkeys([MSMARCO, *(str(path.relative_to(ROOT)) for path in found)])
    }


class Measured:
    """The quantities that an experiment measures."""

    def __init__(self, experiment):
        self.experiment, self.config, self.latencies = experiment, experiment.config, set(_latencies(experiment))

    def computes(self, number):
        """Whether a number is among the results."""
        system, split, measure = (number[key] for key in ("system", "split", "measure"))
        if measure.startswith("latency"):
            return (split, system, measure) in self.latencies
        if system not in self.experiment.systems or split not in self.experiment.evaluated_splits:
            return False
        if split not in self.experiment.splits_of(system):
            return False
        depth, saturated = int(number["candidates"] or 0), measure.removeprefix("saturation(").removesuffix(")")
        if depth or saturated != measure:
            curved = self.experiment.systems[system].reranker() is not None
            measured = curved and saturated in self.config["evaluation"]["depth_measures"]
            return measured and (not depth or depth in self.experiment.curve_depths(system))
        return (RANKED if measure == "rank" else measure) in {*TOP, *self.config["splits"][split]["measures"]}


def _latencies(experiment):
    """Yield split, name and measure of all latencies, with the names that `cort.latency` uses."""
    if (latency := experiment.config.get("latency")) is None:
        return
    for system in latency["systems"]:
        parts = [experiment.systems[part] for part in experiment.with_parts([system])]
        measures = ("latency", "latency@32") if all(part.batches for part in parts) else ("latency",)
        names = {system, *([f"{experiment.systems[system].encoder}-queries"] if parts[0].divisible else [])}
        yield from ((latency["split"], name, measure) for name in names for measure in measures)
