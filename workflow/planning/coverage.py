"""Which published numbers an experiment computes when its data is there, and why not the others: from configs alone.

A number is computed if the experiment measures that quantity of that system on that split; one that it does not may be
computed by another experiment that names the paper.
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

# Of batches, in the names of published latencies.
BATCH, SINGLE = "32", "1"
UNKNOWN = "nothing of ours is named for it"


@dataclass(frozen=True)
class Covered:
    """A published number of a paper; `by` is the experiment that computes it, or else there is a reason."""

    paper: str
    number: Number
    by: str | None
    reason: str | None

    @property
    def place(self) -> str:
        """Where it stands in its paper."""
        return f"{self.number.where}: {self.number.row}, {self.number.column}"


def cover(papers: Sequence[Paper], configs: Mapping[str, Config]) -> list[Covered]:
    """Tell of each number which experiment computes it.

    :param configs: experiments with defaults, by name; the first that computes a number counts.
    """
    measured = {name: Measured(config) for name, config in configs.items()}
    found = []
    for paper in papers:
        for number in (one for exhibit in paper.exhibits for one in exhibit.numbers):
            by = next((name for name, one in measured.items() if one.computes(number)), None)
            found.append(Covered(paper.name, number, by, None if by else number.not_computed or UNKNOWN))
    return found


class Measured:
    """What an experiment measures."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.latencies = set(_latencies(config))

    def computes(self, one: Quantity) -> bool:
        """Whether a quantity is among the results."""
        if one.system is None:
            return False
        if one.measure.startswith("latency"):
            batch = one.measure.partition("@")[2] or SINGLE
            return (one.split, one.system, batch) in self.latencies
        if one.split not in evaluated_splits(self.config) or one.system not in self.config["systems"]:
            return False
        if one.split not in splits_of(self.config, one.system):
            return False
        if one.measure == "consistency":
            return self._has_factor(one)
        if one.quantity == "saturation" or one.depth is not None:
            return self._is_on_curve(one)
        measure = RANKED if one.measure == "rank" else one.measure
        return measure in {PRECISION, UNJUDGED, *self.config["splits"][one.split]["measures"]}

    def _is_on_curve(self, one: Quantity) -> bool:
        """Whether a re-ranked system is measured at all numbers of candidates that a quantity needs."""
        measures = self.config["evaluation"]["depth_measures"]
        if not has_curve(self.config, one.system or "") or one.measure not in measures:
            return False
        depths = curve_depths(self.config, one.system or "")
        return {*one.depths, *([] if one.depth is None else [one.depth])} <= {*depths}

    def _has_factor(self, one: Quantity) -> bool:
        asked = self.config["evaluation"].get("consistency")
        if asked is None or one.split not in splits_of(self.config, asked["reference"]):
            return False
        return one.system in asked["systems"] and one.depth in asked["depths"]


def _latencies(config: Config) -> Iterator[tuple[str, str, str]]:
    """Yield split, name and batch size of all latencies, under the names that `cort.latency` gives them."""
    asked = config.get("latency")
    if asked is None:
        return
    for system in asked["systems"]:
        parts = [system_of(config, part) for part in with_parts(config, [system])]
        sizes = (SINGLE, BATCH) if all(part.batches for part in parts) else (SINGLE,)
        names = {system, *(_name(config, system, gpus) for gpus in range(2, asked["gpus"] + 1))}
        if parts[0].divisible:
            names.add(f"{config['systems'][system]['retrieve']}-queries")
        yield from ((asked["split"], name, size) for name in names for size in sizes)


def _name(config: Config, system: str, gpus: int) -> str:
    """Name of a system whose vectors are on several GPUs; its own if it has none."""
    made = system_of(config, system)
    if made.merges and system == "+".join(made.parts()):
        return "+".join(_name(config, part, gpus) for part in made.parts())
    divisible = any(system_of(config, part).divisible for part in with_parts(config, [system]))
    return f"{system}-{gpus}gpus" if divisible else system


def shipped(path: Path) -> list[Path]:
    """List the experiments beside one, and the ablations below it, itself first."""
    folder = path.parent.parent if path.parent.name == "ablations" else path.parent
    others = [*sorted(folder.glob("*.yaml")), *sorted(folder.glob("ablations/*.yaml"))]
    return [path, *(one for one in others if one.resolve() != path.resolve())]


def of_experiment(path: str | Path, config: Config) -> list[Covered]:
    """Cover the papers of an experiment by itself, then by the others that name one of them.

    What stands beside it and is no sound experiment computes nothing.
    """
    papers = [read_paper(one) for one in config["papers"]]
    configs, named = {str(path): config}, set(config["papers"])
    for other in shipped(Path(path))[1:] if papers else []:
        try:
            if named & set(read_yaml(other).get("papers") or []):
                configs[str(other)] = load(other)
        except (ConfigError, InputError, TypeError):
            continue
    return cover(papers, configs)


def lines(found: Sequence[Covered], experiment: str) -> Iterator[str]:
    """Yield a line per paper and one for all, if there are any."""
    if not found:
        return
    yield f"{'published numbers':<24}{'all':>5}{'here':>6}{'elsewhere':>11}{'not':>5}"
    papers = dict.fromkeys(one.paper for one in found)
    for name, some in [*((paper, [one for one in found if one.paper == paper]) for paper in papers), ("all", found)]:
        here = sum(one.by == experiment for one in some)
        others = dict.fromkeys(one.by for one in some if one.by not in (None, experiment))
        elsewhere = sum(one.by in others for one in some)
        where = f"  {', '.join(map(str, others))}" if others and name != "all" else ""
        yield f"{name:<24}{len(some):>5}{here:>6}{elsewhere:>11}{len(some) - here - elsewhere:>5}{where}".rstrip()
