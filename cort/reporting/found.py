"""What a report reads: the results of an experiment that are there, each kind once."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from cort.config.experiment import Experiment
from cort.evaluation.comparisons import Comparisons
from cort.evaluation.curves import Depths
from cort.evaluation.inspection import Finding
from cort.evaluation.measures import Measures
from cort.formats.artifacts import read_artifact
from cort.models.truncation import Truncation, measure_texts, read_limits
from cort.reporting.costs import bytes_per_passage, costs_frame
from cort.reporting.format import address, plural
from cort.reporting.results import Input, Job, Latencies, Read, files_of, read_all, read_curve, read_jobs, read_origin
from cort.retrieval.audits import Audit
from cort.retrieval.weights import FoldedWeights, TunedWeights
from cort.training.outcome import Selection

if TYPE_CHECKING:
    import pandas as pd


class Found:
    """Results of an experiment, read when they are first asked for; what is not there is left out.

    :ivar files: all that are read, by kind and what they are about.
    :ivar partial: files may be missing without a warning.
    """

    def __init__(self, experiment: Experiment, benchmarks: str | None = None, *, partial: bool = False) -> None:
        self.experiment, self.files, self.benchmarks = experiment, files_of(experiment), benchmarks
        self.partial = partial
        self.baseline = experiment.evaluation.baseline

    def there(self, kind: str) -> dict[str, str]:
        """Return the files of a kind that are there, by what they are about."""
        return {name: path for name, path in self.files[kind].items() if os.path.exists(path)}

    def all_of(self, kind: str, of: type[Read]) -> list[Read]:
        """Read all artifacts of a kind; unless results are partial, a warning names each that is not there."""
        files = self.there(kind) if self.partial else self.files[kind]
        return read_all(self.experiment, files.values(), of)

    def by_name(self, kind: str, of: type[Read]) -> dict[str, Read]:
        """Read the artifacts of a kind that are there, by what they are about."""
        return {name: read_artifact(path, of) for name, path in self.there(kind).items()}

    @cached_property
    def measures(self) -> list[Measures]:
        """Means of all systems on all splits."""
        return self.all_of("measures", Measures)

    @cached_property
    def comparisons(self) -> list[Comparisons]:
        """Verdicts of all splits."""
        return self.all_of("comparisons", Comparisons)

    @cached_property
    def depths(self) -> list[Depths]:
        """Measures by the number of re-ranked candidates."""
        return self.all_of("depths", Depths)

    @cached_property
    def audits(self) -> list[Audit]:
        """Searches of indexes."""
        return self.all_of("audits", Audit)

    @cached_property
    def latencies(self) -> list[Latencies]:
        """Times of searches."""
        return self.all_of("latencies", Latencies)

    @cached_property
    def curves(self) -> dict[str, pd.DataFrame]:
        """Curves of trainings."""
        return {name: read_curve(path) for name, path in self.there("curves").items()}

    @cached_property
    def selections(self) -> dict[str, Selection]:
        """How the best model of each training was chosen."""
        return self.by_name("selections", Selection)

    @cached_property
    def findings(self) -> list[Finding]:
        """What is in the data."""
        path = self.there("others").get("inspection")
        return read_artifact(path, list[Finding]) if path else []

    @cached_property
    def sizes(self) -> dict[str, float]:
        """Bytes of each system for a passage."""
        return bytes_per_passage(self.experiment)

    @cached_property
    def costs(self) -> pd.DataFrame:
        """Quality, time and memory of systems."""
        return costs_frame(self.measures, self.comparisons, self.latencies, self.sizes)

    @cached_property
    def jobs(self) -> list[Job]:
        """Time and memory of stages."""
        return read_jobs(self.benchmarks) if self.benchmarks else []

    @cached_property
    def origin(self) -> tuple[dict[str, str], list[Input]]:
        """Facts, and input files."""
        path = self.there("others").get("provenance")
        return read_origin(path) if path else ({}, [])

    @cached_property
    def looks(self) -> dict[str, int]:
        """Numbers of colours and markers of systems, the baseline's the first."""
        return {name: place for place, name in enumerate(dict.fromkeys([self.baseline, *self.experiment.systems]))}

    @cached_property
    def explorers(self) -> dict[str, str]:
        """Pages of the explorer, by what people call a split."""
        splits = dict.fromkeys(split for split, _ in self.experiment.ranked_runs)
        return {self.experiment.title_of_split(split): f"explore/{quote(split)}/index.html" for split in splits}

    @cached_property
    def links(self) -> dict[tuple[str, str, str], str]:
        """Addresses in the explorer, by split, system and baseline."""
        return {
            (one.split, row.system, row.baseline): address(self.explorers[one.split], row.system, row.baseline)
            for one in self.comparisons
            for row in one.comparisons
        }

    @cached_property
    def descriptions(self) -> dict[str, str]:
        """How each system works, with its tuned weights."""
        texts = {name: system.describe() for name, system in self.experiment.systems.items()}
        for key, path in self.there("tuned").items():
            name, folded, split = key.partition(" on ")
            weights = read_artifact(path, FoldedWeights if folded else TunedWeights)
            shares = zip(*(fold.weights for fold in getattr(weights, "folds", [weights])), strict=True)
            ranges = (" to ".join(f"{share:g}" for share in sorted({min(own), max(own)})) for own in shares)
            parts = ", ".join(f"{part} {own}" for part, own in zip(weights.parts, ranges, strict=True))
            texts[name] += f"{f'; {self.experiment.title_of_split(split)}' if folded else ''}: {parts}"
            texts[name] += f" ({plural(weights.queries, 'query', 'queries')})"
        return texts

    @cached_property
    def truncations(self) -> list[tuple[str, str, Truncation]]:
        """How much of its texts each model truncates, by model and kind of text."""
        rows, lengths = [], self.there("lengths")
        # A card stands for the folder of a model.
        for name, folder in ((name, os.path.dirname(card)) for name, card in self.files["models"].items()):
            texts = {key.rpartition(" ")[2]: path for key, path in lengths.items() if key.rpartition(" ")[0] == name}
            if Path(folder).is_dir() and (limits := read_limits(folder)) is not None:
                rows += [(name, text, one) for text, one in measure_texts(limits, texts).items()]
        return rows
