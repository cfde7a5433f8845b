"""Results of an experiment in Python: ``import cort; x = cort.open("results/pydocs")``.

What the stored experiment no longer has is gone, even if its files are still there.
Runs, measures, queries and judgements are pandas frames with the field's column names; reading them does not import
torch. `search` and `encode` open models and indexes when they are first called. See docs/python.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from cort.config import paths
from cort.config.experiment import Experiment as Read
from cort.config.stored import NAME, read_experiment
from cort.evaluation.comparisons import Comparisons, Pair, Tests, compare
from cort.evaluation.gate import changes
from cort.evaluation.measures import Measures
from cort.evaluation.values import Values, read_values
from cort.formats import tables
from cort.formats.artifacts import read_artifact
from cort.formats.runs import read_run
from cort.online.options import read_results
from cort.online.passages import Passages
from cort.reporting.builds import compare_builds, settings_of, systems_of
from cort.runtime.errors import InputError, input_error

if TYPE_CHECKING:
    from cort.online.neural import QueryEncoder
    from cort.online.searcher import Searcher
    from cort.online.served import ServedEncoder


class Experiment:
    """The results of an experiment, read from its folder under `results/`, which may have been moved."""

    def __init__(self, folder: str | Path) -> None:
        """Name the folder.

        :raises InputError: if there are no results.
        """
        self.folder = Path(folder)
        if not (self.folder / "runs").is_dir():
            raise input_error(self.folder, "no runs", "a folder of results", "run `snakemake`, or name another folder")
        self._searcher: Searcher | None = None
        self._encoders: dict[str, QueryEncoder | ServedEncoder] = {}

    def __repr__(self) -> str:
        return f"Experiment({str(self.folder)!r})"

    def _at(self, path: str, **names: str) -> Path:
        """Path of a file of `cort.config.paths` in this folder."""
        return Path(paths.within(self.folder, path, **names))

    @property
    def splits(self) -> list[str]:
        """List the splits that have runs."""
        return sorted(filter(self._systems_on, self._results.splits))

    @property
    def systems(self) -> list[str]:
        """List the systems with a run on some split, in the experiment's order."""
        names = {name for split in self._results.splits for name in self._systems_on(split)}
        return [name for name in self._results.systems if name in names]

    @cached_property
    def _results(self) -> Read:
        return read_experiment(self.folder / NAME)

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings that made the results, with all defaults: the keys of docs/reference.md."""
        return self._results.config

    @cached_property
    def _passages(self) -> Passages:
        return Passages(self._at(paths.PASSAGES))

    def queries(self, split: str) -> pd.DataFrame:
        """Return the queries of a split: `query_id`, `text`."""
        return _frame(tables.read_table(self._file(paths.QUERIES, split), tables.QUERIES))

    def qrels(self, split: str) -> pd.DataFrame:
        """Return the judgements of a split: `query_id`, `doc_id`, `relevance`."""
        return _frame(tables.read_table(self._file(paths.QRELS, split), tables.QRELS))

    def passage(self, doc_id: str) -> str:
        """Return the text of a passage.

        :raises InputError: for an id that is not in the collection.
        """
        return self._passages.texts([doc_id])[0]

    def run(self, system: str, split: str, *, measured: bool = False) -> pd.DataFrame:
        """Return the run of a system: `query_id`, `doc_id`, `score`, `rank` (from 1), best first.

        :param measured: whether to return the run that is measured: of documents, if passages are aggregated.
        """
        path = self._results.measured_run if measured else paths.RUN
        run = read_run(self._at(path, split=split, system=self._known(system, split)))
        query_ids = pd.Categorical.from_codes(run.query_numbers(), categories=pd.Index(run.query_ids))
        doc_ids = pd.array(run.doc_ids, dtype="str")
        return pd.DataFrame({"query_id": query_ids, "doc_id": doc_ids, "score": run.scores, "rank": run.ranks()})

    def measures(self, split: str) -> pd.DataFrame:
        """Return the mean measures of all systems on a split, a row per system."""
        names, wanted = self._measured(split)
        means = [read_artifact(self._at(paths.MEASURES, split=split, system=name), Measures).mean for name in names]
        rows = [{name: value for name, value in mean.items() if name in wanted} for mean in means]
        return pd.DataFrame(rows, index=pd.Index(names, name="system"))

    def per_query(self, system: str, split: str) -> pd.DataFrame:
        """Return the measures of each query, a row per query."""
        values = self._values(system, split)
        return pd.DataFrame(values.values, index=pd.Index(values.query_ids, name="query_id"), columns=values.measures)

    def compare(self, system: str, baseline: str, split: str) -> pd.DataFrame:
        """Compare two systems by every measure, a row each, with the settings of the report (see `Comparison`).

        P-values are those of this pair alone; the report corrects them over a family of pairs.
        """
        values = {name: self._values(name, split) for name in (system, baseline)}
        rows = compare(values, [Pair(system, baseline, "contrast")], self._comparing(split))
        return pd.DataFrame([asdict(row) for row in rows]).set_index("measure").drop(columns=["relation", "family"])

    def compare_with(self, other: str | Path, split: str, system: str | None = None) -> Paired:
        """Compare this build with another one, as `make compare` does: differences are those of this one from `other`.

        :param other: its folder of results, or its config.
        :param system: a name, or OTHER=THIS if they differ; None for all systems that both have.
        :raises InputError: if they share no split, system, query or measure.
        """
        builds = [read_results(other), self._results]
        systems = systems_of(builds, split, system)
        paired = compare_builds(builds, split, systems)
        rows = [
            {"system": new} | asdict(row) | {"baseline": old} for old, new in systems for row in paired.rows[old, 1]
        ]
        differences = pd.DataFrame(rows).set_index(["system", "measure"]).drop(columns=["relation", "family"])
        moved = [
            (new, query_id, paired.texts[query_id], before, after, after - before)
            for old, new in systems
            for query_id, before, after in paired.changes(old, 1)
        ]
        queries = pd.DataFrame(moved, columns=["system", "query_id", "text", "before", "after", "difference"])
        return Paired(differences, queries, [*changes(*map(settings_of, builds))], paired.left_out)

    def search(self, text: str, system: str, k: int = 10) -> pd.DataFrame:
        """Search for a query as `cort.search` does: `rank`, `doc_id`, `score`, `text` of the top k."""
        answer, texts = self._open(system).answer(system, text, k)
        rows = [(one.rank, one.doc_id, one.score, text) for one, text in zip(answer.results, texts, strict=True)]
        return pd.DataFrame(rows, columns=["rank", "doc_id", "score", "text"])

    def encode(self, texts: str | Sequence[str], encoder: str) -> npt.NDArray[np.float32]:
        """Encode queries, or a single one, with an encoder; returns vectors of shape (texts, dimension)."""
        import torch

        from cort.online.neural import encoder_of

        dense = [name for name, model in self._results.encoders.items() if model.kind == "dense"]
        if encoder not in dense:
            raise _unknown("encoder", encoder, dense)
        if encoder not in self._encoders:
            self._encoders[encoder] = encoder_of(self._results, encoder, torch.device("cpu"))
        opened, queries = self._encoders[encoder], [texts] if isinstance(texts, str) else list(texts)
        if not queries:
            return np.empty((0, opened.vectors.dimension), np.float32)
        vectors: npt.NDArray[np.float32] = opened.encode(opened.tokenize(queries))  # type: ignore[arg-type]
        return vectors

    def close(self) -> None:
        """End the processes that searches started, and free the models."""
        if self._searcher is not None:
            self._searcher.close()
        self._searcher = None
        self._encoders.clear()

    def __enter__(self) -> Experiment:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _known(self, system: str, split: str) -> str:
        """Refuse a split or a system without a run."""
        if split not in self.splits:
            raise _unknown("split", split, self.splits)
        if system not in (names := self._systems_on(split)):
            raise _unknown("system", system, names)
        return system

    def _systems_on(self, split: str) -> list[str]:
        """List the systems that have a run on a split, in the experiment's order."""
        is_ranked = split in self._results.ranked_splits
        names = self._results.on_split(split) if is_ranked else self._results.systems
        return [name for name in names if self._at(paths.RUN, split=split, system=name).exists()]

    def _measured(self, split: str) -> tuple[list[str], tuple[str, ...]]:
        """List the measured systems of a split, and its measures; a split without them is refused."""
        names = {
            one: [name for name in self._systems_on(one) if self._at(paths.MEASURES, split=one, system=name).exists()]
            for one in self._results.evaluated_splits
        }
        if not names.get(split):
            raise _unknown("split", split, sorted(filter(names.get, names)))
        return names[split], self._results.measures_of(split)

    def _file(self, path: str, split: str) -> Path:
        """Path of a file of a split, which is refused if there is none."""
        known = [name for name in self._results.splits if self._at(path, split=name).exists()]
        if split not in known:
            raise _unknown("split", split, sorted(known))
        return self._at(path, split=split)

    def _values(self, system: str, split: str) -> Values:
        _, wanted = self._measured(split)
        found = read_values(self._at(paths.PER_QUERY, split=split, system=self._known(system, split)))
        kept = [place for place, name in enumerate(found.measures) if name in wanted]
        return Values(found.query_ids, [found.measures[place] for place in kept], found.values[:, kept])

    def _comparing(self, split: str) -> Tests:
        """Return the settings of the comparisons on a split, or those that they would have."""
        file = self._at(paths.COMPARISON + ".json", split=split)
        if file.exists():
            made = read_artifact(file, Comparisons)
            return Tests(made.confidence, made.resamples, made.alpha, made.seed)
        how = self._results.evaluation
        return Tests(how.confidence, how.resamples, how.alpha, self._results.root.seed)

    def _open(self, system: str) -> Searcher:
        """Open a system, in addition to those that are open."""
        from cort.online.searcher import open_searcher

        threads = len(os.sched_getaffinity(0))
        if self._searcher is None:
            self._searcher = open_searcher(self._results, [system], threads=threads)
        elif system not in self._searcher.systems:
            self._searcher.add(system, threads)
        return self._searcher


class Paired(NamedTuple):
    """What `Experiment.compare_with` finds.

    :ivar differences: a row per system and measure (see `Comparison`); p is corrected over the systems.
    :ivar queries: values of both builds by the first measure, of each system, the largest gain first.
    :ivar settings: those that differ, a line each.
    :ivar left_out: queries that are not compared, by why.
    """

    differences: pd.DataFrame
    queries: pd.DataFrame
    settings: list[str]
    left_out: dict[str, int]


def open(folder: str | Path) -> Experiment:  # called as cort.open
    """Open the results of an experiment, e.g. ``cort.open("results/pydocs")``.

    :raises InputError: if there are none.
    """
    return Experiment(folder)


def _frame(table: Any) -> pd.DataFrame:
    frame: pd.DataFrame = table.to_pandas()
    return frame


def _unknown(what: str, found: str, known: Iterable[str]) -> InputError:
    return input_error(what, found, f"one of {', '.join(known) or '(there is none)'}", "name one of these")
