"""Which files of an experiment's results a report shows, and what is in them."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from cort.config import paths
from cort.config.collection import Docstrings, Generated
from cort.config.comparisons import labelled_twice
from cort.config.entries import LEARNERS
from cort.config.experiment import Experiment
from cort.formats.artifacts import read_artifact, read_json

if TYPE_CHECKING:
    import pandas as pd

    from cort.evaluation.measures import Measures

Read = TypeVar("Read")
log = logging.getLogger(__name__)

# Libraries whose version can change a number.
LIBRARIES = (
    *("torch", "transformers", "tokenizers", "pyserini", "ngt", "faiss-cpu"),
    *("pytrec-eval-terrier", "numpy", "snakemake"),
)


# Files.


def files_of(experiment: Experiment) -> dict[str, dict[str, str]]:
    """Return the files that the report of an experiment reads, by their kind and what they are about."""
    at, runs, latency = experiment.at, experiment.evaluated_runs, experiment.root.latency

    def of_runs(path: str, pairs: list[tuple[str, str]]) -> dict[str, str]:
        return {f"{name} on {split}": at(path, split=split, system=name) for split, name in pairs}

    def of_trainings(path: str) -> dict[str, str]:
        return {name: at(path, section=section, model=name) for section, name in experiment.learners}

    used = [(section, name) for section in LEARNERS for name in experiment.used_models(section)]
    models = [(section, name) for section, name in used if not experiment.is_served(section, name)]
    factors = experiment.evaluation.consistency
    return {
        "measures": of_runs(paths.MEASURES, runs),
        "overlaps": {
            split: at(paths.OVERLAP, split=split) for split in experiment.unjudged_splits if experiment.on_split(split)
        },
        "comparisons": {
            split: at(paths.COMPARISON, split=split) + ".json"
            for split in experiment.evaluated_splits
            if len(experiment.compared(split)) > 1
        },
        "depths": of_runs(paths.DEPTHS, [(split, one) for split, one in runs if experiment.systems[one].reranker()]),
        "consistency": of_runs(
            paths.CONSISTENCY,
            [
                (split, name)
                for name in factors.systems
                for split in experiment.splits_of(factors.reference)
                if split in experiment.splits_of(name)
            ]
            if factors
            else [],
        ),
        "audits": {
            f"{encoder} {kind} on {split}": at(paths.AUDIT, split=split, encoder=encoder, index=kind)
            for split in experiment.evaluated_splits
            for encoder, kind in experiment.indexes_of(split)
        },
        "curves": of_trainings(paths.CURVE),
        "selections": of_trainings(paths.SELECTION),
        "filters": _filters(experiment),
        "tuned": _tuned(experiment),
        "models": {name: experiment.weights(section, name) for section, name in models},
        "lengths": {
            f"{name} {text}": at(paths.LENGTHS, base_model=experiment.base_model_of(section, name), text=text)
            for section, name in models
            for text in ("passages", *(f"queries.{split}" for split in experiment.with_model(section, name)))
        },
        "latencies": {latency.split: at(paths.LATENCY, split=latency.split)} if latency else {},
        "agreements": {
            f"{split} {other}": at(paths.AGREEMENT, split=split, other=other)
            for split, other in labelled_twice(experiment)
        },
        "others": {"provenance": at(paths.PROVENANCE), "inspection": at(paths.INSPECTION)},
    }


def _filters(experiment: Experiment) -> dict[str, str]:
    """Return counts of dropped examples, by title."""
    at = experiment.at
    files = {"docstrings": at(paths.RAW_FILTERS)} if isinstance(experiment.collection, Docstrings) else {}
    files |= {"documents": at(paths.IMPORT_COUNTS)} if experiment.source else {}
    for split in experiment.splits_of_class(Generated):
        source = f"{experiment.generated_from}{' of documents' if experiment.copied_from else ''}"
        title = f"{source} as queries of {experiment.title_of_split(split)}"
        files[title] = at(paths.GENERATED_COUNTS, split=split)
    for split in experiment.judging:
        files[f"grades of {experiment.title_of_split(split)}"] = at(paths.GENERATED_COUNTS, split=split)
    for split in experiment.splits:
        files[f"judgements of {experiment.title_of_split(split)}"] = at(paths.JUDGEMENT_COUNTS, split=split)
    for section, name in experiment.learners:
        source = LEARNERS[section]
        files[f"{source} of {name}"] = at(paths.EXAMPLE_COUNTS, source=source, model=name, split="train")
    return files


def _tuned(experiment: Experiment) -> dict[str, str]:
    """Tuned weights, by system; those that are tuned by folds, by system and split."""
    files = {name: experiment.at(paths.WEIGHTS, system=name) for name in experiment.tuned_systems}
    for split, name in experiment.evaluated_runs:
        system = experiment.systems[name]
        if system.folds() and system.parts():
            files[f"{name} on {split}"] = system.tuned_files(split)[0]
    return files


# Contents.


def read_all(experiment: Experiment, files: Iterable[str], kind: type[Read]) -> list[Read]:
    """Read artifacts, whose splits get the names that people read; a file that is not there is left out."""
    found = []
    for path in files:
        if not os.path.exists(path):
            log.warning("%s is not there, and left out", path)
            continue
        one: Any = read_artifact(path, kind)
        splits = [name for name in ("split", "first", "second") if hasattr(one, name)]
        found.append(replace(one, **{name: experiment.title_of_split(getattr(one, name)) for name in splits}))
    return found


@dataclass(frozen=True)
class Input:
    """An input file; `bytes` is its size."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Hardware:
    """The machine."""

    processor: str
    cores: int
    memory_mb: int
    gpus: list[str]


@dataclass(frozen=True)
class LatencyRow:
    """Percentiles and means in ms of one system's latency by part, with `batch` queries at a time."""

    system: str
    device: str
    batch: int
    searches: int
    milliseconds: dict[str, dict[str, float]]

    @property
    def total(self) -> dict[str, float]:
        """Statistics of the whole search as deployed, with BM25 and the dense ranker in parallel."""
        return self.milliseconds.get("concurrent", self.milliseconds["sequential"])


@dataclass(frozen=True)
class Latencies:
    """What the stage `latency` measured on the queries of a split, and on which machine."""

    split: str
    queries: int
    depth: int
    threads: int
    hardware: Hardware
    software: dict[str, str | None]
    rows: list[LatencyRow]

    @property
    def machine(self) -> str:
        """Describe the machine and its software."""
        hardware = "; ".join([f"{self.hardware.processor}, {self.hardware.cores} cores", *self.hardware.gpus])
        versions = ", ".join(f"{name} {version}" for name, version in self.software.items() if version)
        return f"{hardware}; {self.threads} threads; {versions}"


class Job(NamedTuple):
    """All jobs of one rule; `peak_mb` is None if no job ran long enough to be measured."""

    rule: str
    jobs: int
    seconds: float
    longest: float
    peak_mb: float | None


def names_of_measures(measures: Iterable[Measures]) -> list[str]:
    """List all measures, in the order in which they first appear."""
    return list(dict.fromkeys(name for system in measures for name in system.mean))


def by_split(measures: Iterable[Measures]) -> dict[str, list[Measures]]:
    """Group measures by split, in the order in which these first appear."""
    groups: dict[str, list[Measures]] = {}
    for one in measures:
        groups.setdefault(one.split, []).append(one)
    return groups


def read_curve(path: str | Path) -> pd.DataFrame:
    """Read the curve of a training, whose index is the update step."""
    import pandas as pd

    curve = pd.read_csv(path).astype(float).set_index("step")
    # A diverged training writes nan or inf as its loss: a gap in the figure.
    return curve.where(curve.abs() < math.inf)


def read_jobs(folder: str | Path) -> list[Job]:
    """Sum up the benchmark files of Snakemake in a folder, `RULE/**/*.tsv`, by rule, the longest first.

    A damaged file is left out with a warning: a job that outlived a killed workflow may have written it, too.
    """
    import pandas as pd

    frames = []
    for file in sorted(Path(folder).rglob("*.tsv")):
        try:
            # What Snakemake writes where it measured nothing.
            own = pd.read_csv(file, sep="\t", na_values="-")[["s", "max_rss"]].astype(float)
            frames.append(own.assign(rule=file.relative_to(folder).parts[0].removesuffix(".tsv")).dropna(subset="s"))
        except (LookupError, TypeError, ValueError) as error:
            log.warning("%s: found %s, expected seconds and memory of jobs (left out)", file, error)
    jobs = [
        Job(rule, len(own), math.fsum(own["s"]), own["s"].max(), max(own["max_rss"].dropna(), default=None))
        for rule, own in (pd.concat(frames).groupby("rule") if frames else ())
    ]
    return sorted(jobs, key=lambda job: (-job.seconds, job.rule))


def read_origin(path: str | Path) -> tuple[dict[str, str], list[Input]]:
    """Read facts by name, and the input files, as `cort.provenance` recorded them."""
    record = read_json(path)
    code, software = record["code"], record["software"]
    hardware: Hardware = record["hardware"].read(Hardware)
    commit, changed = code["commit"].read(str | None), code["modified"].read(bool | None)
    packages = {name.lower(): version for name, version in software["packages"].read(dict[str, str]).items()}
    facts = {
        "Program": f"cort {code['version'].read(str)}",
        "Commit": commit and commit + (" with changes" if changed else ""),
        "Written": record["written"].read(str),
        "Machine": f"{hardware.processor}, {hardware.cores} cores, {hardware.memory_mb / 1024:.0f} GiB of memory",
        "Graphics cards": "; ".join(hardware.gpus),
        "System": software["system"].read(str),
        "Python": software["python"].read(str),
        "Java": software["java"].read(str | None),
        "Libraries": ", ".join(f"{name} {packages[name]}" for name in LIBRARIES if name in packages),
    }
    return {name: text for name, text in facts.items() if text}, record["inputs"].read(list[Input])
