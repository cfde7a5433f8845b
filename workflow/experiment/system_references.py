"""Check what an experiment's config says about systems."""

from __future__ import annotations

from collections.abc import Iterator

from cort.formats.schemas import check_name
from cort.retrieval.fusion import FUSIONS
from cort.retrieval.graphs import GRAPHS
from workflow.experiment.config import KINDS, LEARNERS, Config, is_trained, parts_of, ranked_splits
from workflow.experiment.naming import check_once, entries, listed


def check_systems(config: Config) -> Iterator[str]:
    """Check what systems are made of."""
    for name, system in entries(config, "systems"):
        place = f"systems.{name}"
        kinds = [kind for kind in KINDS if kind in system]
        if len(kinds) != 1:
            yield f"{place}: found {listed(kinds)}, expected exactly one of {listed(KINDS)}; keep one"
            continue
        allowed = {"retrieve": {"bm25", *GRAPHS}, "rerank": {"reranker", "depth"}}.get(kinds[0], set())
        for key in system.keys() - {kinds[0]} - allowed:
            yield f"{place}.{key}: found {key} with {kinds[0]}, expected it not to be there; remove it"
        if kinds == ["retrieve"]:
            yield from _check_retrieve(place, name, system, config)
        part_place = f"{place}.fuse.systems" if "fuse" in system else f"{place}.{kinds[0]}"
        if "fuse" in system:
            yield from check_name(f"{place}.fuse.method", system["fuse"]["method"], FUSIONS)
        for section, other in _named_by(system):
            # Whatever retrieves is an encoder, or BM25.
            known = ["bm25", *config[section]] if section == "encoders" else config[section]
            yield from check_name(f"{place}.reranker" if section == "rerankers" else part_place, other, known)
        yield from check_once(part_place, parts_of(system), "system")
        if kinds == ["rerank"]:
            yield from _check_rerank(place, system, config)


def _named_by(system: Config) -> Iterator[tuple[str, str]]:
    """Yield what a system refers to, as (section, name)."""
    if system.get("retrieve", "bm25") != "bm25":
        yield "encoders", system["retrieve"]
    yield from (("systems", part) for part in parts_of(system))
    if "reranker" in system and "rerank" in system:
        yield "rerankers", system["reranker"]


def _check_retrieve(place: str, name: str, system: Config, config: Config) -> Iterator[str]:
    if system["retrieve"] == "bm25":
        for kind in GRAPHS:
            if kind in system:
                fix = "name an encoder or remove it"
                yield f"{place}.{kind}: found {kind} with bm25, expected it with an encoder; {fix}"
        return
    if "bm25" in system:
        yield f"{place}.bm25: found bm25 with an encoder, expected it with `retrieve: bm25`; remove it"
    encoder = config["encoders"].get(system["retrieve"]) or {}
    kinds = [kind for kind in GRAPHS if kind in system]
    if len(kinds) > 1:
        yield f"{place}: found {listed(kinds)}, expected one of them; make two systems"
    for kind in kinds:
        if encoder.get("similarity") == "inner_product":
            yield f"{place}.{kind}: found an encoder of inner products, expected one of angles; remove {kind}"
    if "hnsw" in system:
        yield from _check_ef(place, name, system["hnsw"]["ef"], config)


def _check_ef(place: str, name: str, ef: int | str, config: Config) -> Iterator[str]:
    learners = [
        model
        for section, (_, source) in LEARNERS.items()
        for _, model in entries(config, section)
        if is_trained(model) and model[source]["system"] == name
    ]
    key = "training_depth" if learners and config["training_depth"] > config["depth"] else "depth"
    if isinstance(ef, int) and ef < config[key]:
        yield f"{place}.hnsw.ef: found {ef}, expected {config[key]} ({key}) or more; raise it or lower {key}"
    if config["audit"] is not None and max(config["audit"]["efs"]) < config["depth"]:
        found = max(config["audit"]["efs"])
        yield f"audit.efs: found {found} at most, expected one of {config['depth']} (depth) or more; add it"


def _check_rerank(place: str, system: Config, config: Config) -> Iterator[str]:
    if "reranker" not in system:
        yield f"{place}: found no reranker, expected one of {listed(config['rerankers'])}; name it"
        return
    reranker = config["rerankers"].get(system["reranker"])
    if reranker is not None:
        limit = min(reranker["depth"], config["depth"])
        if system.get("depth", limit) > limit:
            yield (
                f"{place}.depth: found {system['depth']}, expected at most {limit}, the candidates that are retrieved "
                f"(depth) and scored (rerankers.{system['reranker']}.depth); lower it or raise these"
            )


def check_published(config: Config) -> Iterator[str]:
    """Check which splits published runs are for."""
    splits = ranked_splits(config)
    for name, system in entries(config, "systems"):
        run = system.get("run")
        if isinstance(run, str) and "{split}" not in run and len(splits) > 1:
            found = f"one path for the splits {listed(splits)}"
            yield f"systems.{name}.run: found {found}, expected {{split}} in it; add it"
        for split in run if isinstance(run, dict) else []:
            if split not in splits:
                yield f"systems.{name}.run: found the split {split!r}, expected one of {listed(splits)}; fix the name"
