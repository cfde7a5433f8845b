"""What systems know of their experiment: its settings, which splits are ranked, and where its files are."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from cort.config import paths
from cort.config.collection import Queries
from cort.config.entries import TRAINING_SPLITS, released_name
from cort.config.lexical import Predicting, Weigher
from cort.config.models import BaseModel, Checkpoint, Hub, PretrainedBase, ReleasedScoring, Served, Sparse, Started

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cort.config.learners import Model
    from cort.config.top_level import TopLevel

# Section of the models that the passages are encoded with -> path of a shard of their vectors, and its wildcard.
VECTORS = {"encoders": (paths.VECTORS, "encoder"), "rerankers": (paths.LATE_VECTORS, "reranker")}
#: models of hubs and folders, which are base models, too
Released: TypeAlias = Hub | ReleasedScoring | Weigher | Predicting


class Results:
    """Settings, splits and files of an experiment.

    :ivar root: all settings; those that are used most have short names.
    :ivar models: encoders and re-rankers, by section and name.
    :ivar folder: where the files were moved to; None where the workflow put them.
    """

    def __init__(self, root: TopLevel, folder: Path | None = None) -> None:
        self.root, self.folder = root, folder
        self.collection, self.splits, self.lexical = root.collection, root.splits, root.lexical
        self.encoders, self.rerankers, self.evaluation = root.encoders, root.rerankers, root.evaluation
        self.depth, self.training_depth = root.depth, root.training_depth
        self.models: Mapping[str, Mapping[str, Model]] = {"encoders": root.encoders, "rerankers": root.rerankers}

    @cached_property
    def ranked_splits(self) -> list[str]:
        """The splits that systems have runs for: all but those of training."""
        return [split for split in self.splits if split not in TRAINING_SPLITS]

    @cached_property
    def evaluated_splits(self) -> list[str]:
        """The ranked splits that are measured and reported: those with judgements."""
        return [split for split in self.ranked_splits if self.is_judged(split)]

    @cached_property
    def unjudged_splits(self) -> list[str]:
        """The ranked splits without judgements, on which systems are compared but not measured."""
        return [split for split in self.ranked_splits if not self.is_judged(split)]

    def is_judged(self, split: str) -> bool:
        """Tell whether a split has judgements, that is, more than a file of queries."""
        return not isinstance(self.splits[split], Queries)

    def at(self, path: str, **names: str) -> str:
        """Path of a file of `cort.config.paths`."""
        if self.folder is None:
            return path.format(dataset=self.root.dataset, **names)
        return paths.within(self.folder, path, **names)

    @cached_property
    def released(self) -> dict[str, tuple[str, str, Released]]:
        """The `pretrained` models by their names as base models: section, name in it, settings."""
        sections = {**self.models, "weighers": self.root.weighers, "expanders": self.root.expanders}
        return {
            released_name(section, name): (section, name, model)
            for section, models in sections.items()
            for name, model in models.items()
            if isinstance(model, Released)
        }

    @cached_property
    def base_models(self) -> dict[str, BaseModel]:
        """All base models by name, `pretrained` models of other sections among them."""
        return self.root.base_models | {
            name: PretrainedBase.model_construct(pretrained=model.pretrained, revision=model.revision)
            for name, (_, _, model) in self.released.items()
        }

    def base_model_of(self, section: str, name: str) -> str:
        """Name the base model of an encoder or re-ranker: its own if it is a `pretrained` one."""
        model = self.models[section][name]
        return model.base_model if isinstance(model, Started) else released_name(section, name)

    def is_served(self, section: str, name: str) -> bool:
        """Tell whether a model is behind an API, without files here."""
        return isinstance(self.models[section][name], Served)

    def weights(self, section: str, name: str) -> str:
        """Card of an encoder or re-ranker, best or last, which stands for its folder."""
        model = self.models[section][name]
        if isinstance(model, Checkpoint):
            return self.at(paths.MODEL, section=section, model=name, checkpoint=model.checkpoint) + f"/{paths.CARD}"
        return self.at(paths.BASE_MODEL, base_model=released_name(section, name)) + paths.CARD

    def tokens(self, section: str, name: str, text: str) -> str:
        """Token cache of a text for an encoder or re-ranker."""
        return self.at(paths.TOKENS, base_model=self.base_model_of(section, name), text=text)

    def vectors(self, section: str, name: str) -> list[str]:
        """All shards of the passages' vectors, token vectors, or impacts."""
        path, wildcard = VECTORS[section]
        path = paths.IMPACTS if isinstance(self.models[section][name], Sparse) else path
        return self.shards(path, **{wildcard: name})

    def shards(self, path: str, **names: str) -> list[str]:
        """All shards of what models compute for the passages."""
        count = self.root.shards
        return [self.at(path, **names, shard=f"{number}-of-{count}") for number in range(1, count + 1)]

    def is_term_based(self, system: str) -> bool:
        """Tell whether a system ranks passages by the terms that they share with a query, and finds no others."""
        name = getattr(self.root.systems[system], "retrieve", "")
        return name in self.lexical or isinstance(self.encoders.get(name), Sparse)

    def measures_of(self, split: str) -> tuple[str, ...]:
        """List the measures of a split: its own or those of all."""
        return self.splits[split].measures or self.evaluation.measures

    def run(self, split: str, system: str) -> str:
        """Run of a system."""
        return self.at(paths.RUN, split=split, system=system)

    @property
    def measured_run(self) -> str:
        """Path of the runs that are measured: those of documents, if passages are aggregated."""
        return paths.RUN if self.collection.aggregate == "none" else paths.DOCUMENT_RUN
