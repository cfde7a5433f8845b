"""What systems know of their experiment: its settings, which splits are ranked, and where its files are."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from cort.config import paths
from cort.config.entries import TRAINING_SPLITS, Config, is_sparse, is_trained

# Section of the models that the passages are encoded with -> path of a shard of their vectors, and its wildcard.
VECTORS = {"encoders": (paths.VECTORS, "encoder"), "rerankers": (paths.LATE_VECTORS, "reranker")}


class Results:
    """Settings, splits and files of an experiment.

    :param config: with all defaults; it must not change.
    :ivar folder: where the files were moved to; None where the workflow put them.
    """

    def __init__(self, config: Config, folder: Path | None = None) -> None:
        self.config, self.folder = config, folder

    @cached_property
    def ranked_splits(self) -> list[str]:
        """The splits that systems have runs for: all but those of training."""
        return [split for split in self.config["splits"] if split not in TRAINING_SPLITS]

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
        settings = self.config["splits"][split]
        return "queries" not in settings or "qrels" in settings

    def at(self, path: str, **names: str) -> str:
        """Path of a file of `cort.config.paths`."""
        if self.folder is None:
            return paths.at(path, self.config, **names)
        return paths.within(self.folder, path, **names)

    def weights(self, section: str, name: str) -> str:
        """Card of an encoder or re-ranker, best or last, or weights of another model; they stand for its folder."""
        model = self.config[section][name]
        file = paths.CARD if section in VECTORS else "model.safetensors"
        if "pretrained" in model and not is_trained(model):
            return self.at(paths.BASE_MODEL, base_model=model["base_model"]) + file
        return self.at(paths.MODEL, section=section, model=name, checkpoint=model["checkpoint"]) + f"/{file}"

    def tokens(self, section: str, name: str, text: str) -> str:
        """Token cache of a text for an encoder or re-ranker."""
        return self.at(paths.TOKENS, base_model=self.config[section][name]["base_model"], text=text)

    def vectors(self, section: str, name: str) -> list[str]:
        """All shards of the passages' vectors, token vectors, or impacts."""
        path, wildcard = VECTORS[section]
        path = paths.IMPACTS if is_sparse(self.config[section][name]) else path
        return self.shards(path, **{wildcard: name})

    def shards(self, path: str, **names: str) -> list[str]:
        """All shards of what models compute for the passages."""
        count = self.config["shards"]
        return [self.at(path, **names, shard=f"{number}-of-{count}") for number in range(1, count + 1)]

    def run(self, split: str, system: str) -> str:
        """Run of a system."""
        return self.at(paths.RUN, split=split, system=system)
