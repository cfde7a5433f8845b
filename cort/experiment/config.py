"""Questions the rules ask about an experiment's config, once `cort/experiment/checks.py` has found it whole.

Used by the Snakefile alone; knows names and references, not files and not stages.
"""

from __future__ import annotations

from collections.abc import Iterable

from cort.retrieval.graphs import GRAPHS, TOKEN_INDEXES
from cort.settings.config import Config, any_of, evaluated_splits, ranked_splits

KINDS = ("retrieve", "interleave", "fuse", "rerank", "run")
# The index that is always there.
BM25 = "bm25"
# Of re-rankers that retrieve as well, and of systems that retrieve with one.
LATE_INTERACTION = "late_interaction"
# Kinds of systems that merge the runs of others.
FUSION_KINDS = ("interleave", "fuse")
# Section of what changes an index's texts -> the key of an index that names one.
CHANGES = {"expanders": "expand", "weighers": "weigh"}


def kind_of(config: Config, system: Config) -> str:
    """Tell how a system's run is made: bm25, late_interaction, exact, an index, interleave, fuse, rerank or run."""
    if "retrieve" not in system:
        return next(kind for kind in KINDS if kind in system)
    if system["retrieve"] in config["lexical"]:
        return "bm25"
    if system["retrieve"] in token_encoders(config):
        return next((kind for kind in TOKEN_INDEXES if kind in system), LATE_INTERACTION)
    return next((kind for kind in GRAPHS if kind in system), "exact")


def token_encoders(config: Config) -> list[str]:
    """List the re-rankers that can retrieve; a name that an encoder has, too, means the encoder."""
    rerankers = {name: one or {} for name, one in config.get("rerankers", {}).items()}
    late = [name for name, one in rerankers.items() if one.get("kind") == LATE_INTERACTION]
    return [name for name in late if name not in config["encoders"]]


def names_of_kind(config: Config, *kinds: str) -> str:
    """Return a regular expression that matches the names of all systems of some kinds."""
    return any_of(name for name, system in config["systems"].items() if kind_of(config, system) in kinds)


def splits_of(config: Config, name: str) -> list[str]:
    """List the ranked splits a system has a run for: all, unless a published run it needs covers only some."""
    system = config["systems"][name]
    splits = ranked_splits(config)
    if isinstance(system.get("run"), dict):
        splits = [split for split in splits if split in system["run"]]
    for part in parts_of(system):
        splits = [split for split in splits if split in splits_of(config, part)]
    return splits


def pairs_of_split_and_system(config: Config, *kinds: str) -> list[tuple[str, str]]:
    """List (split, system) of all evaluated runs, of some kinds of systems only if any is named."""
    return [
        (split, name)
        for split in evaluated_splits(config)
        for name, system in config["systems"].items()
        if split in splits_of(config, name) and (not kinds or kind_of(config, system) in kinds)
    ]


def on_split(config: Config, split: str) -> list[str]:
    """List the systems that have a run for a split."""
    return [name for name in config["systems"] if split in splits_of(config, name)]


def compared(config: Config, split: str) -> list[str]:
    """List the systems that are compared on a split; none without the baseline."""
    names = on_split(config, split)
    return names if config["evaluation"]["baseline"] in names else []


def parts_of(system: Config) -> list[str]:
    """List the systems whose runs a system is made from."""
    parts: list[str] = system["fuse"]["systems"] if "fuse" in system else system.get("interleave", [])
    return [*parts, system["rerank"]] if "rerank" in system else list(parts)


def searchable(config: Config) -> list[str]:
    """List the systems that can rank any query: a published run cannot, nor can what is made from one."""

    def can(name: str) -> bool:
        system = config["systems"][name]
        return "run" not in system and all(map(can, parts_of(system)))

    return [name for name in config["systems"] if can(name)]


def fusion_of(system: Config) -> str:
    """Tell by which method a system merges the runs of others."""
    return str(system["fuse"]["method"]) if "fuse" in system else "interleave"


def tuned_by(system: Config) -> str | None:
    """Tell by which measure the weights of a system are tuned on validation queries, if they are."""
    measure: str | None = system.get("fuse", system).get("tune")
    return measure


def tuned_systems(config: Config) -> list[str]:
    """List the systems whose weights are tuned on validation queries."""
    return [name for name, system in config["systems"].items() if tuned_by(system)]


def used_by_indexes(config: Config, section: str) -> list[str]:
    """List the expanders or weighers of the indexes that some system searches, in config order."""
    searched = {system["retrieve"] for system in config["systems"].values() if kind_of(config, system) == "bm25"}
    used = {config["lexical"][name].get(CHANGES[section]) for name in searched}
    return [name for name in config[section] if name in used]


def curve_depths(config: Config, name: str) -> list[int]:
    """Numbers of candidates at which a re-ranked system is measured, the last one that of what was scored."""
    limit = min(config["rerankers"][config["systems"][name]["reranker"]]["depth"], config["depth"])
    return sorted({limit, *(depth for depth in config["evaluation"]["depths"] if depth < limit)})


def tuned_index(config: Config, name: str) -> str | None:
    """Name the index whose k1 and b are tuned for a system, if that takes these."""
    system = config["systems"][name]
    index = system.get("retrieve")
    tuned = "bm25" not in system and "tune" in config["lexical"].get(index, {})
    return index if tuned else None


def with_parts(config: Config, names: Iterable[str]) -> list[str]:
    """List systems and all that these are made from, each once."""
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        if name not in found:
            found[name] = None
            for part in parts_of(config["systems"][name]):
                visit(part)

    for name in names:
        visit(name)
    return list(found)


def published_run(system: Config, split: str) -> str:
    """File of a published run for a split, given as one path per split or as one for all."""
    run = system["run"]
    return str(run[split] if isinstance(run, dict) else run.replace("{split}", split))
