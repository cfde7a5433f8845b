"""Questions about all systems of an experiment; those about a single system are methods of its class."""

from __future__ import annotations

from collections.abc import Iterable

from cort.settings.config import (
    Config,
    copied_from,
    evaluated_splits,
    generated_from,
    labels_of,
    ranked_splits,
    splits_with,
)
from cort.systems.registry import all_systems, system_of

# The index that every experiment has.
BM25 = "bm25"
# Sections of what changes the texts of an index -> the key of an index that names an entry.
INDEX_ADDITIONS = {"expanders": "expand", "weighers": "weigh"}


def splits_of(config: Config, name: str) -> list[str]:
    """List the ranked splits for which a system has a run: all, unless a published run that it needs covers fewer."""
    system = system_of(config, name)
    splits = system.splits()
    for part in system.parts():
        splits = [split for split in splits if split in splits_of(config, part)]
    return splits


def evaluated_runs(config: Config) -> list[tuple[str, str]]:
    """List (split, system) of all runs that are evaluated."""
    return [(split, name) for split in evaluated_splits(config) for name in on_split(config, split)]


def ranked_runs(config: Config) -> list[tuple[str, str]]:
    """List (split, system) of all runs of ranked splits."""
    return [(split, name) for split in ranked_splits(config) for name in on_split(config, split)]


def on_split(config: Config, split: str) -> list[str]:
    """List the systems that have a run for a split."""
    return [name for name in config["systems"] if split in splits_of(config, name)]


def compared(config: Config, split: str) -> list[str]:
    """List the systems that are compared on a split; none if the baseline has no run for it."""
    names = on_split(config, split)
    return names if config["evaluation"]["baseline"] in names else []


def searchable(config: Config) -> list[str]:
    """List the systems that can rank any query: all but published runs and systems made from them."""
    systems = all_systems(config)
    return [name for name in systems if all(systems[part].searchable for part in with_parts(config, [name]))]


def tuned_systems(config: Config) -> list[str]:
    """List the systems whose weights are tuned on validation queries."""
    return [name for name, system in all_systems(config).items() if system.learns()]


def cross_validated(config: Config) -> list[str]:
    """Say which systems are tuned on the queries that they rank, and how."""
    return [f"{name} is {one.describe_tuning()}." for name, one in all_systems(config).items() if one.folds()]


def remarks(config: Config) -> list[str]:
    """Say what readers of the results must know: where labels are synthetic, and what `cross_validated` says."""
    lines = cross_validated(config)
    if origin := copied_from(config):
        lines.append(f"All labels are synthetic: queries are {origin} of documents, which are left out of the index.")
    elif origin := generated_from(config):
        source = config["endpoint"]["model"] if origin == "endpoint" else origin
        splits = ", ".join(splits_with(config, "generate"))
        lines.append(f"Labels of {splits} are synthetic: queries were made of passages by {source}.")
    for split in evaluated_splits(config):
        if labels_of(config, split) == "LLM":
            judged = "judge" in config["splits"][split]
            lines.append(f"Labels of {split} are by {config['endpoint']['model'] if judged else 'a language model'}.")
    return lines


def used_by_indexes(config: Config, section: str) -> list[str]:
    """List the expanders or weighers of searched indexes, and of generated queries, in config order."""
    searched = {system.lexical_index() for system in all_systems(config).values()} - {None}
    used = {config["lexical"][name].get(INDEX_ADDITIONS[section]) for name in searched}
    used.add((generated_from(config) or "").removeprefix(f"{section}."))
    return [name for name in config[section] if name in used]


def has_curve(config: Config, name: str) -> bool:
    """Tell whether a system is measured by its number of re-ranked candidates."""
    return system_of(config, name).reranker() is not None


def curve_depths(config: Config, name: str) -> list[int]:
    """List the numbers of candidates at which a re-ranked system is measured, up to the number scored."""
    limit = min(config["rerankers"][system_of(config, name).reranker()]["depth"], config["depth"])
    return sorted({limit, *(depth for depth in config["evaluation"]["depths"] if depth < limit)})


def with_parts(config: Config, names: Iterable[str]) -> list[str]:
    """List systems and all systems that they are made from, each once."""
    systems: dict[str, None] = {}

    def visit(name: str) -> None:
        if name not in systems:
            systems[name] = None
            for part in system_of(config, name).parts():
                visit(part)

    for name in names:
        visit(name)
    return list(systems)
