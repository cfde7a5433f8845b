"""Which published numbers an experiment computes, and why not the others: from configs alone.

A number is computed if an experiment measures this quantity of this system on this split: the experiment itself, or
another one that names the paper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cort.experiment.checks import ConfigError, load
from cort.experiment.config import curve_depths, has_curve, splits_of, with_parts
from cort.formats.yaml_files import read_yaml
from cort.reporting.reproduction.fidelity import PRECISION, RANKED, UNJUDGED
from cort.reporting.reproduction.paper import Number, Paper, Quantity, read_paper
from cort.settings.config import Config, evaluated_splits
from cort.system.errors import InputError
from cort.systems.registry import system_of

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
    def place(self) -> str:
        """Where the paper prints it."""
        return f"{self.number.where}: {self.number.row}, {self.number.column}"


def cover(papers: Sequence[Paper], configs: Mapping[str, Config]) -> list[Covered]:
    """Find the experiment that computes each number.

    :param configs: experiments with defaults, by name; the first that computes a number counts.
    """
    measured = {name: Measured(config) for name, config in configs.items()}
    covered = []
    for paper in papers:
        for number in (number for exhibit in paper.exhibits for number in exhibit.numbers):
            by = next((name for name, experiment in measured.items() if experiment.computes(number)), None)
            covered.append(Covered(paper.name, number, by, None if by else number.not_computed or UNKNOWN))
    return covered


class Measured:
    """The quantities that an experiment measures."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.latencies = set(_latencies(config))

    def computes(self, quantity: Quantity) -> bool:
        """Whether a quantity is among the results."""
        if quantity.system is None:
            return False
        if quantity.measure.startswith("latency"):
            batch = quantity.measure.partition("@")[2] or SINGLE
            return (quantity.split, quantity.system, batch) in self.latencies
        if quantity.split not in evaluated_splits(self.config) or quantity.system not in self.config["systems"]:
            return False
        if quantity.split not in splits_of(self.config, quantity.system):
            return False
        if quantity.measure == "consistency":
            return self._has_factor(quantity)
        if quantity.quantity == "saturation" or quantity.depth is not None:
            return self._is_on_curve(quantity)
        measure = RANKED if quantity.measure == "rank" else quantity.measure
        return measure in {PRECISION, UNJUDGED, *self.config["splits"][quantity.split]["measures"]}

    def _is_on_curve(self, quantity: Quantity) -> bool:
        """Whether a re-ranked system is measured at all depths that a quantity needs."""
        measures = self.config["evaluation"]["depth_measures"]
        if not has_curve(self.config, quantity.system or "") or quantity.measure not in measures:
            return False
        depths = curve_depths(self.config, quantity.system or "")
        return {*quantity.depths, *([] if quantity.depth is None else [quantity.depth])} <= {*depths}

    def _has_factor(self, quantity: Quantity) -> bool:
        consistency = self.config["evaluation"].get("consistency")
        if consistency is None or quantity.split not in splits_of(self.config, consistency["reference"]):
            return False
        return quantity.system in consistency["systems"] and quantity.depth in consistency["depths"]


def _latencies(config: Config) -> Iterator[tuple[str, str, str]]:
    """Yield split, name and batch size of all latencies, with the names that `cort.latency` uses."""
    if (latency := config.get("latency")) is None:
        return
    for system in latency["systems"]:
        parts = [system_of(config, part) for part in with_parts(config, [system])]
        sizes = (SINGLE, BATCH) if all(part.batches for part in parts) else (SINGLE,)
        names = {system, *(_name(config, system, gpus) for gpus in range(2, latency["gpus"] + 1))}
        if parts[0].divisible:
            names.add(f"{config['systems'][system]['retrieve']}-queries")
        yield from ((latency["split"], name, size) for name in names for size in sizes)


def _name(config: Config, system: str, gpus: int) -> str:
    """Name of a system with vectors on several GPUs; its own name if it has no vectors."""
    made = system_of(config, system)
    if made.merges and system == "+".join(made.parts()):
        return "+".join(_name(config, part, gpus) for part in made.parts())
    divisible = any(system_of(config, part).divisible for part in with_parts(config, [system]))
    return f"{system}-{gpus}gpus" if divisible else system


def shipped(path: Path) -> list[Path]:
    """List an experiment, those in the folder `config`, or else its own folder, and the ablations."""
    folder = next((place for place in path.parents if (place / "ablations").is_dir()), path.parent)
    others = [*sorted(folder.glob("*.yaml")), *sorted(folder.glob("ablations/*.yaml"))]
    return [path, *(other for other in others if other.resolve() != path.resolve())]


def of_experiment(path: str | Path, config: Config) -> list[Covered]:
    """Cover the papers of an experiment by itself, then by other valid experiments that name one of them."""
    papers = [read_paper(file) for file in config["papers"]]
    configs, named = {str(path): config}, set(config["papers"])
    for other in shipped(Path(path))[1:] if papers else []:
        try:
            if named & set(read_yaml(other).get("papers") or []):
                configs[str(other)] = load(other)
        except (ConfigError, InputError, TypeError):
            continue
    return cover(papers, configs)


def lines(covered: Sequence[Covered], experiment: str) -> Iterator[str]:
    """Yield a line per paper and one for all, if there are any numbers."""
    if not covered:
        return
    yield f"{'published numbers':<24}{'all':>5}{'here':>6}{'elsewhere':>11}{'not':>5}"
    names = dict.fromkeys(number.paper for number in covered)
    papers = {name: [number for number in covered if number.paper == name] for name in names}
    for name, numbers in {**papers, "all": covered}.items():
        here = sum(number.by == experiment for number in numbers)
        others = dict.fromkeys(number.by for number in numbers if number.by not in (None, experiment))
        elsewhere = sum(number.by in others for number in numbers)
        where = f"  {', '.join(map(str, others))}" if others and name != "all" else ""
        count = len(numbers)
        yield f"{name:<24}{count:>5}{here:>6}{elsewhere:>11}{count - here - elsewhere:>5}{where}".rstrip()
