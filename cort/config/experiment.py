"""An experiment: its systems, models and splits, and what follows from how they depend on each other."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from cort.config.collection import COPIED, AnySplit, Generated, HeldOut, Judge, Judged
from cort.config.entries import INDEX_ADDITIONS, LEARNERS, TRAINING_SPLITS, Config
from cort.config.learners import Learner
from cort.config.models import Learning, Served
from cort.config.root import Root
from cort.runtime.sections import plain
from cort.systems.base import System
from cort.systems.registry import label_of, set_keys, system_of
from cort.systems.results import Results


class Experiment(Results):
    """An experiment with a checked config. What it tells of all systems or models is computed once."""

    root: Root

    @classmethod
    def of(cls, config: Config, folder: Path | None = None) -> Experiment:
        """Return the experiment of settings that are written as `config` writes them."""
        # What `config` adds to an entry is no key that somebody may set.
        return cls(Root.model_validate(config, extra="ignore"), folder)

    @cached_property
    def config(self) -> Config:
        """The settings as nested mappings, with the defaults that depend on several sections."""
        config = plain(self.root)
        for name, (section, model, _) in self.released.items():
            config[section][model]["base_model"] = name
        config["base_models"] = {name: plain(model) for name, model in self.base_models.items()}
        for name in self.evaluated_splits:
            config["splits"][name].setdefault("measures", list(self.measures_of(name)))
        for name, system in self.systems.items():
            system.fill(config["systems"][name])
        return config

    @cached_property
    def labels(self) -> dict[str, str]:
        """What papers call the systems, by name."""
        return {name: label_of(self, name) for name in self.root.systems}

    # Collection and splits.

    @cached_property
    def source(self) -> str | None:
        """The source of the documents; None for docstrings, or a file of passages as they are."""
        return self.collection.source or ("passages" if self.copied_from else None)

    @cached_property
    def generated_from(self) -> str | None:
        """What queries are made from; None if no split is generated."""
        return next((split.generate.from_ for split in self.splits.values() if isinstance(split, Generated)), None)

    @cached_property
    def copied_from(self) -> str | None:
        """What queries are made from if it is a part of documents, which is removed from the index."""
        return self.generated_from if self.generated_from in COPIED else None

    def splits_of_class(self, kind: type[AnySplit]) -> list[str]:
        """List the splits of a class, such as those that are generated."""
        return [name for name, split in self.splits.items() if isinstance(split, kind)]

    @cached_property
    def judging(self) -> dict[str, Judge]:
        """How splits are judged by a language model, by their names."""
        return {name: split.judge for name, split in self.splits.items() if isinstance(split, Judged)}

    def files_of_split(self, name: str) -> str:
        """Name the split whose files a split uses: its own or, for a held-out one, those of train."""
        return "train" if isinstance(self.splits[name], HeldOut) else name

    def labels_of(self, split: str) -> str:
        """Tell where the judgements of a split come from: ``human``, ``synthetic`` or ``LLM``."""
        settings = self.splits.get(split) and self.splits[self.files_of_split(split)]
        if isinstance(settings, Generated):
            return "synthetic"
        return "LLM" if isinstance(settings, Judged) or getattr(settings, "labels", None) == "LLM" else "human"

    def title_of_split(self, split: str) -> str:
        """Name a split in tables, figures and verdicts, which say if its labels are not human."""
        labels = self.labels_of(split)
        return split if labels == "human" else f"{split} ({labels} labels)"

    def remarks(self) -> list[str]:
        """Say what readers must know: which systems are tuned on the queries that they rank, which labels are made."""
        lines = [f"{name} is {one.describe_tuning()}." for name, one in self.systems.items() if one.folds()]
        if origin := self.copied_from:
            why = "which are left out of the index"
            lines.append(f"All labels are synthetic: queries are {origin} of documents, {why}.")
        elif origin := self.generated_from:
            source = self._language_model if origin == "endpoint" else origin
            splits = ", ".join(self.splits_of_class(Generated))
            lines.append(f"Labels of {splits} are synthetic: queries were made of passages by {source}.")
        for split in self.evaluated_splits:
            if self.labels_of(split) == "LLM":
                by = self._language_model if isinstance(self.splits[split], Judged) else "a language model"
                lines.append(f"Labels of {split} are by {by}.")
        for section, models in self.models.items():
            for name in self.used_models(section):
                if isinstance(model := models[name], Served):
                    how = "a model behind a service, which may change without notice"
                    lines.append(f"{name} is {model.endpoint}, {how}.")
        return lines

    @property
    def _language_model(self) -> str:
        return (self.root.endpoint.model if self.root.endpoint else None) or ""

    # Systems and their runs.

    @cached_property
    def systems(self) -> dict[str, System]:
        """The systems by name."""
        return {name: system_of(self, name, set_keys(self, name)) for name in self.root.systems}

    def with_parts(self, names: Iterable[str]) -> list[str]:
        """List systems and all systems that they are made from, each once."""
        found: dict[str, None] = {}

        def visit(name: str) -> None:
            if name not in found:
                found[name] = None
                for part in self.systems[name].parts():
                    visit(part)

        for name in names:
            visit(name)
        return list(found)

    @cached_property
    def _splits(self) -> dict[str, list[str]]:
        needed = {name: [self.systems[part].splits() for part in self.with_parts([name])] for name in self.systems}
        return {
            name: [one for one in own if all(one in other for other in others)]
            for name, (own, *others) in needed.items()
        }

    def splits_of(self, name: str) -> list[str]:
        """List the ranked splits for which a system has a run: all, unless a published run that it needs lacks some."""
        return self._splits[name]

    def on_split(self, split: str) -> list[str]:
        """List the systems that have a run for a split."""
        return [name for name in self.systems if split in self.splits_of(name)]

    def with_model(self, section: str, name: str) -> list[str]:
        """List the evaluated splits with runs of systems that retrieve or re-rank with a model."""
        users = [system for system, one in self.systems.items() if (section, name) in one.models()]
        return [split for split in self.evaluated_splits if any(split in self.splits_of(system) for system in users)]

    @cached_property
    def ranked_runs(self) -> list[tuple[str, str]]:
        """The (split, system) of all runs of ranked splits."""
        return [(split, name) for split in self.ranked_splits for name in self.on_split(split)]

    @cached_property
    def evaluated_runs(self) -> list[tuple[str, str]]:
        """The (split, system) of all runs that are evaluated."""
        return [(split, name) for split, name in self.ranked_runs if self.is_judged(split)]

    def compared(self, split: str) -> list[str]:
        """List the systems that are compared on a split; none if the baseline has no run for it."""
        names = self.on_split(split)
        return names if self.evaluation.baseline in names else []

    @cached_property
    def searchable(self) -> list[str]:
        """The systems that can rank any query: all but published runs and systems made from them."""
        return [name for name in self.systems if all(self.systems[part].searchable for part in self.with_parts([name]))]

    @cached_property
    def tuned_systems(self) -> list[str]:
        """The systems whose weights are tuned on validation queries."""
        return [name for name, system in self.systems.items() if system.learns()]

    def curve_depths(self, name: str) -> list[int]:
        """List the numbers of candidates at which a re-ranked system is measured, up to its depth."""
        limit = self.systems[name].candidates()
        return sorted({limit, *(depth for depth in self.evaluation.depths if depth < limit)})

    def indexes_of(self, split: str) -> list[tuple[str, str]]:
        """List the indexes that systems search on a split, as (encoder or re-ranker, type of index)."""
        found = (self.systems[name].approximate_index() for name in self.on_split(split))
        return list(dict.fromkeys(index for index in found if index))

    # Models.

    def models_of(self, name: str) -> list[tuple[str, str]]:
        """List the models that a run needs, as (section, name): the system's own, their starts and their teachers."""
        models: dict[tuple[str, str], None] = {}
        system = self.systems[name]

        def visit(section: str, name: str | None) -> None:
            if name is not None and name in self.models[section] and (section, name) not in models:
                models[section, name] = None
                model = self.models[section][name]
                if isinstance(model, Learning):
                    visit("encoders", model.start)
                    visit("rerankers", model.teacher)

        for section, model in system.models():
            visit(section, model)
        return list(models)

    @cached_property
    def _used(self) -> set[tuple[str, str]]:
        return {model for name in self.systems for model in self.models_of(name)}

    def used_models(self, section: str) -> list[str]:
        """List the encoders or re-rankers that systems, or the models they use, need, in config order."""
        return [name for name in self.models[section] if (section, name) in self._used]

    def used_additions(self, section: str) -> list[str]:
        """List the expanders or weighers of searched indexes, and of generated queries, in config order."""
        searched = {name for system in self.systems.values() if (name := system.lexical_index())}
        used = {getattr(self.lexical[name], INDEX_ADDITIONS[section]) for name in searched}
        used.add((self.generated_from or "").removeprefix(f"{section}."))
        return [name for name in getattr(self.root, section) if name in used]

    @cached_property
    def learners(self) -> dict[tuple[str, str], Learner]:
        """The used models that are trained here, not only loaded, by section and name."""
        return {
            (section, name): model
            for section in LEARNERS
            for name in self.used_models(section)
            if isinstance(model := self.models[section][name], Learner)
        }

    def draws_deeply(self, model: Learner) -> bool:
        """Tell whether a model draws negatives from ranks below those of the runs of training queries."""
        return model.examples.last_rank > self.training_depth

    def has_any_depth(self, name: str) -> bool:
        """Tell whether a run of a system can be made for the ranks that a model draws."""
        return all(self.systems[part].any_depth for part in self.with_parts([name]))

    @cached_property
    def negative_sources(self) -> list[str]:
        """The systems whose runs of training queries provide negatives, and all that they are made from."""
        return self.with_parts(system for model in self.learners.values() for system in model.examples.systems)

    @cached_property
    def validated(self) -> list[str]:
        """The systems that need runs of the validation queries, and all that they are made from."""
        return self.with_parts([*self.negative_sources, *self.tuned_systems])

    def reranked_by(self, reranker: str, split: str) -> dict[str, int]:
        """Return the systems whose candidates a re-ranker scores on a split, in config order, and how many per query.

        On `train` and `validation`, these are only those that models are trained on or, on `validation`, weights are
        tuned on: others may depend on the very models.
        """
        training = {"train": self.negative_sources, "validation": self.validated}
        wanted = training[split] if split in TRAINING_SPLITS else self.on_split(split)
        users = [one for name, one in self.systems.items() if name in wanted and one.reranker() == reranker]
        found: dict[str, int] = {}
        for user in users:
            for part in user.parts():
                found[part] = max(found.get(part, 0), user.candidates())
        return found

    def place_of_base_model(self, name: str) -> str:
        """Return where the config defines a base model."""
        section, own, *_ = self.released.get(name, ("base_models", name))
        return f"{section}.{own}"
