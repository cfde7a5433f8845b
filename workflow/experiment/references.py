"""Check what the parts of an experiment's config say about each other: names, files, ranks, depths, circles.

The parts have the right shape; one that has not is None here and is passed over, but its name counts as known.
"""

from __future__ import annotations

from collections.abc import Iterator

from cort.formats.schemas import check_name
from workflow.experiment.config import (
    FUSION_KINDS,
    KINDS,
    LEARNERS,
    TRAINING_SPLITS,
    Config,
    evaluated_splits,
    is_trained,
    parts_of,
    ranked_splits,
    splits_of,
)
from workflow.experiment.cycles import find_circles
from workflow.experiment.downloads import check_names
from workflow.experiment.model_references import check_base_models, check_learners, check_trainings
from workflow.experiment.naming import check_growing, check_measures, entries, listed
from workflow.experiment.online import check_latency
from workflow.experiment.outputs import check_outputs
from workflow.experiment.system_references import check_published, check_systems

PYDOCS_SPLITS = (*TRAINING_SPLITS, "test")
BM25: Config = {"retrieve": "bm25"}


def check_references(config: Config) -> Iterator[str]:
    """Yield a line for each mistake: place, what was found, what was expected, what to do.

    :param config: with defaults; parts of a wrong shape are None.
    """
    if config["collection"] is not None:
        yield from _check_collection(config)
    yield from check_names(config)
    yield from _check_measures_of_splits(config)
    yield from check_base_models(config)
    yield from check_learners(config)
    yield from check_trainings(config)
    yield from check_systems(config)
    sound = _sound(config)
    circles = list(_check_circles(sound))
    yield from circles
    yield from check_published(config)
    if not circles:
        yield from _check_splits(sound)
        yield from check_outputs(config, sound)
        yield from check_latency(config, sound)
    if config["evaluation"] is not None:
        yield from _check_evaluation(config)
    yield from _check_audit(config)
    if config["bm25"] is not None and "tune" in config["bm25"]:
        if "train" not in config["splits"]:
            yield "bm25.tune: found no split train, expected training queries to tune on; add the split"
        yield from check_measures("bm25.tune.measure", [config["bm25"]["tune"]["measure"]])


def _check_collection(config: Config) -> Iterator[str]:
    collection, splits = config["collection"], config["splits"]
    if len(collection.keys() & {"passages", "pydocs"}) != 1:
        yield f"collection: found {listed(collection)}, expected exactly one of passages and pydocs; keep one"
        return
    if not ranked_splits(config):
        yield f"splits: found only {listed(splits)}, expected a split to evaluate besides train and validation; add one"
    elif not evaluated_splits(config):
        yield f"splits: found no qrels of {listed(ranked_splits(config))}, expected those of one at least; name them"
    for name, split in entries(config, "splits"):
        files = sorted(split.keys() & {"queries", "qrels", "hold_out"})
        check = _check_pydocs_split if "pydocs" in collection else _check_files
        yield from check(f"splits.{name}", name, files, splits)
    held = [name for name, split in entries(config, "splits") if "hold_out" in split]
    if len(held) > 1:
        yield f"splits: found hold_out in {listed(held)}, expected it in one split; name files for the others"


def _check_pydocs_split(place: str, name: str, files: list[str], _: Config) -> Iterator[str]:
    if name not in PYDOCS_SPLITS:
        yield f"{place}: found the split {name}, expected {listed(PYDOCS_SPLITS)}, as pydocs makes them; remove it"
    for key in files:
        yield f"{place}: found {key}, expected none, as pydocs makes the split; remove it"


def _check_files(place: str, name: str, files: list[str], splits: Config) -> Iterator[str]:
    unjudged = files == ["queries"] and name not in TRAINING_SPLITS
    if files not in (["hold_out"], ["qrels", "queries"]) and not unjudged:
        expected = "queries and qrels, queries alone (ranked, not measured), or hold_out alone"
        if name in TRAINING_SPLITS:
            expected = "queries and qrels, or hold_out alone"
        yield f"{place}: found {listed(files)}, expected {expected}; fix the split"
    if "hold_out" in files and (name == "train" or "train" not in splits):
        yield f"{place}: found hold_out, expected a split train beside it to draw from; name files"
    split = splits[name] or {}
    for key in split.keys() & {"without", "sample"}:
        if "queries" not in files:
            yield f"{place}.{key}: found {key}, expected it with files of queries; remove it"
    if "without" in split:
        yield from _check_without(f"{place}.without", name, split["without"], splits)


def _check_without(place: str, name: str, other: str, splits: Config) -> Iterator[str]:
    yield from check_name(place, other, splits)
    named = splits.get(other) or {}
    if other == name or "without" in named or "hold_out" in named:
        yield f"{place}: found {other!r}, expected another split made of whole files; name one"


def _sound(config: Config) -> Config:
    """Copy the config with BM25 in the place of what is broken or leads nowhere, so that the rest can be followed."""
    systems = config["systems"]
    models = {
        section: {
            name: model
            for name, model in entries(config, section)
            if not is_trained(model) or model[source]["system"] in systems
        }
        for section, (_, source) in LEARNERS.items()
    }
    models["encoders"].pop("bm25", None)
    config = config | models
    return config | {"systems": {name: _sound_system(system, config) for name, system in systems.items()}}


def _sound_system(system: Config | None, config: Config) -> Config:
    kinds = [kind for kind in KINDS if kind in system] if system is not None else []
    if system is None or len(kinds) != 1:
        return BM25
    if kinds == ["retrieve"]:
        return system if system["retrieve"] in config["encoders"] else BM25
    if kinds[0] in FUSION_KINDS:
        return {"interleave": [part for part in parts_of(system) if part in config["systems"]]}
    if kinds == ["rerank"]:
        candidates = [system["rerank"]] if system["rerank"] in config["systems"] else []
        known = candidates and system.get("reranker") in config["rerankers"]
        return system if known else {"interleave": candidates}
    return system


def _check_circles(config: Config) -> Iterator[str]:
    for circle in find_circles(config):
        yield (
            f"systems.{circle[0]}: found the circle {' -> '.join(circle)}, expected no system to wait for itself; "
            "break it, or give a re-ranker of several of them a copy under another name"
        )


def _check_splits(config: Config) -> Iterator[str]:
    for name in config["systems"]:
        if ranked_splits(config) and not splits_of(config, name):
            yield f"systems.{name}: found no split its published runs share, expected one at least; add run files"
    for section, (_, source) in LEARNERS.items():
        for name, model in config[section].items():
            teacher = model[source]["system"]
            if is_trained(model) and _needs_published(config, teacher):
                place = f"{section}.{name}.{source}.system"
                yield (
                    f"{place}: found {teacher!r}, made from a published run, expected a system that can rank the "
                    "training queries; name another"
                )


def _needs_published(config: Config, name: str) -> bool:
    system = config["systems"][name]
    return "run" in system or any(_needs_published(config, part) for part in parts_of(system))


def _check_evaluation(config: Config) -> Iterator[str]:
    evaluation = config["evaluation"]
    yield from check_name("evaluation.baseline", evaluation["baseline"], config["systems"])
    both = evaluation["disagreements"]
    for name in both:
        yield from check_name("evaluation.disagreements", name, config["systems"])
    if both and len(set(both)) < 2:
        yield f"evaluation.disagreements: found {both[0]} alone, expected two systems or none; name another"
    for key in ("measures", "depth_measures"):
        yield from check_measures(f"evaluation.{key}", evaluation[key])


def _check_audit(config: Config) -> Iterator[str]:
    for key, values in (config["audit"] or {}).items():
        if isinstance(values, list):
            yield from check_growing(f"audit.{key}", values)


def _check_measures_of_splits(config: Config) -> Iterator[str]:
    for name, split in entries(config, "splits"):
        place = f"splits.{name}.measures"
        if "measures" in split and name not in evaluated_splits(config):
            yield f"{place}: found measures, expected none, as the split is not evaluated; remove them"
        yield from check_measures(place, split.get("measures", []))
