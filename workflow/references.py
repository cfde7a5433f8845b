"""Check what the parts of an experiment's config say about each other: names, files, ranks, depths, circles.

The parts have the right shape; one that has not is None here and is passed over, but its name counts as known.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from workflow.circles import find_circles
from workflow.downloads import check_names
from workflow.experiment import (
    GRAPHS,
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
from workflow.online import check_latency
from workflow.outputs import check_outputs

PYDOCS_SPLITS = (*TRAINING_SPLITS, "test")
BM25: Config = {"retrieve": "bm25"}
# As cort/measures.py knows them.
MEASURES = "RR, RR@k, nDCG, nDCG@k, R@k, AP, AP@k, P@k and Success@k"
MEASURE = re.compile(r"(RR|nDCG|AP|(RR|nDCG|AP|R|P|Success)@[1-9][0-9]{0,8})")


def check_references(config: Config) -> Iterator[str]:
    """Yield a line for each mistake: place, what was found, what was expected, what to do.

    :param config: with defaults; parts of a wrong shape are None.
    """
    if config["collection"] is not None:
        yield from _check_collection(config)
    yield from check_names(config)
    yield from _check_measures_of_splits(config)
    yield from _check_language_models(config)
    yield from _check_learners(config)
    yield from _check_trainings(config)
    yield from _check_systems(config)
    sound = _sound(config)
    circles = list(_check_circles(sound))
    yield from circles
    yield from _check_published(config)
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
        yield from _check_measures("bm25.tune.measure", [config["bm25"]["tune"]["measure"]])


def _entries(config: Config, section: str) -> list[tuple[str, Config]]:
    return [(name, entry) for name, entry in config[section].items() if entry is not None]


def _check_collection(config: Config) -> Iterator[str]:
    collection, splits = config["collection"], config["splits"]
    if len(collection.keys() & {"passages", "pydocs"}) != 1:
        yield f"collection: found {_list(collection)}, expected exactly one of passages and pydocs; keep one"
        return
    if not ranked_splits(config):
        yield f"splits: found only {_list(splits)}, expected a split to evaluate besides train and validation; add one"
    elif not evaluated_splits(config):
        yield f"splits: found no qrels of {_list(ranked_splits(config))}, expected those of one at least; name them"
    for name, split in _entries(config, "splits"):
        files = sorted(split.keys() & {"queries", "qrels", "hold_out"})
        check = _check_pydocs_split if "pydocs" in collection else _check_files
        yield from check(f"splits.{name}", name, files, splits)
    held = [name for name, split in _entries(config, "splits") if "hold_out" in split]
    if len(held) > 1:
        yield f"splits: found hold_out in {_list(held)}, expected it in one split; name files for the others"


def _check_pydocs_split(place: str, name: str, files: list[str], _: Config) -> Iterator[str]:
    if name not in PYDOCS_SPLITS:
        yield f"{place}: found the split {name}, expected {_list(PYDOCS_SPLITS)}, as pydocs makes them; remove it"
    for key in files:
        yield f"{place}: found {key}, expected none, as pydocs makes the split; remove it"


def _check_files(place: str, name: str, files: list[str], splits: Config) -> Iterator[str]:
    unjudged = files == ["queries"] and name not in TRAINING_SPLITS
    if files not in (["hold_out"], ["qrels", "queries"]) and not unjudged:
        expected = "queries and qrels, queries alone (ranked, not measured), or hold_out alone"
        if name in TRAINING_SPLITS:
            expected = "queries and qrels, or hold_out alone"
        yield f"{place}: found {_list(files)}, expected {expected}; mend the split"
    if "hold_out" in files and (name == "train" or "train" not in splits):
        yield f"{place}: found hold_out, expected a split train beside it to draw from; name files"
    split = splits[name] or {}
    for key in split.keys() & {"without", "sample"}:
        if "queries" not in files:
            yield f"{place}.{key}: found {key}, expected it with files of queries; remove it"
    if "without" in split:
        yield from _check_without(f"{place}.without", name, split["without"], splits)


def _check_without(place: str, name: str, other: str, splits: Config) -> Iterator[str]:
    yield from _check_name(place, other, splits)
    named = splits.get(other) or {}
    if other == name or "without" in named or "hold_out" in named:
        yield f"{place}: found {other!r}, expected another split made of whole files; name one"


def _check_language_models(config: Config) -> Iterator[str]:
    for name, model in _entries(config, "language_models"):
        place = f"language_models.{name}"
        origins = sorted(model.keys() & {"pretrained", "architecture"})
        if len(origins) != 1:
            yield f"{place}: found {_list(origins)}, expected exactly one of pretrained and architecture; keep one"
        elif "revision" in model and "architecture" in model:
            yield f"{place}: found revision, expected it with pretrained alone; remove it"


def _check_learners(config: Config) -> Iterator[str]:
    for section, (_, source) in LEARNERS.items():
        for name, model in _entries(config, section):
            place, options, depth = f"{section}.{name}", model[source], config["training_depth"]
            yield from _check_name(f"{place}.language_model", model["language_model"], config["language_models"])
            if not is_trained(model):
                continue
            yield from _check_name(f"{place}.{source}.system", options["system"], config["systems"])
            first, last = options["first_rank"], options["last_rank"]
            if not first <= last <= depth:
                yield (
                    f"{place}.{source}: found the ranks {first} to {last}, expected them in order and within "
                    f"training_depth ({depth}); mend the ranks or raise training_depth"
                )
            if options["minimum_results"] > depth:
                yield (
                    f"{place}.{source}.minimum_results: found {options['minimum_results']}, expected at most "
                    f"training_depth ({depth}), or no query is left; lower it or raise training_depth"
                )
            for split in TRAINING_SPLITS:
                if split not in config["splits"]:
                    yield f"splits: found no split {split}, expected it for training {place}; add it"
    if "bm25" in config["encoders"]:
        yield "encoders.bm25: found the name bm25, expected another, as `retrieve: bm25` means BM25; rename it"
    for name in config["encoders"].keys() & config["rerankers"].keys():
        yield f"rerankers.{name}: found the name of an encoder, expected another, as reports show both; rename one"


def _check_trainings(config: Config) -> Iterator[str]:
    for section in LEARNERS:
        for name, model in _entries(config, section):
            if model["training"]["select"] != "loss":
                yield from _check_measures(f"{section}.{name}.training.select", [model["training"]["select"]])
    for name, encoder in _entries(config, "encoders"):
        yield from _check_origins(f"encoders.{name}", name, encoder, config)


def _check_origins(place: str, name: str, encoder: Config, config: Config) -> Iterator[str]:
    """Check what an encoder starts from and who teaches it."""
    if (encoder["loss"] == "margin_mse") != ("teacher" in encoder):
        found = "a teacher" if "teacher" in encoder else "no teacher"
        yield f"{place}: found {found} with the loss {encoder['loss']}, expected one with margin_mse alone; mend it"
    if "teacher" in encoder:
        yield from _check_name(f"{place}.teacher", encoder["teacher"], config["rerankers"])
    if "start" in encoder:
        yield from _check_name(f"{place}.start", encoder["start"], config["encoders"])
        started = config["encoders"].get(encoder["start"]) or {}
        for key in ("language_model", "dimension", "projection"):
            if started and started[key] != encoder[key]:
                yield (
                    f"{place}.start: found {encoder['start']!r} with {key} {started[key]}, expected {encoder[key]} as "
                    "here; name another encoder or change it"
                )
        chain = [name]
        while (start := (config["encoders"].get(chain[-1]) or {}).get("start")) is not None and start not in chain:
            chain.append(start)
        if start == name:
            yield f"{place}.start: found the circle {' -> '.join([*chain, name])}, expected a first one; remove a start"


def _check_systems(config: Config) -> Iterator[str]:
    for name, system in _entries(config, "systems"):
        place = f"systems.{name}"
        kinds = [kind for kind in KINDS if kind in system]
        if len(kinds) != 1:
            yield f"{place}: found {_list(kinds)}, expected exactly one of {_list(KINDS)}; keep one"
            continue
        allowed = {"retrieve": {"bm25", *GRAPHS}, "rerank": {"reranker", "depth"}}.get(kinds[0], set())
        for key in system.keys() - {kinds[0]} - allowed:
            yield f"{place}.{key}: found {key} with {kinds[0]}, expected it not to be there; remove it"
        if kinds == ["retrieve"]:
            yield from _check_retrieve(place, name, system, config)
        for section, other in _named_by(system):
            key = "reranker" if section == "rerankers" else kinds[0]
            # Whatever retrieves is an encoder, or BM25.
            known = ["bm25", *config[section]] if section == "encoders" else config[section]
            yield from _check_name(f"{place}.{key}", other, known)
        for part, times in Counter(parts_of(system)).items():
            if times > 1:
                yield f"{place}.interleave: found {part} {times} times, expected each system once; remove one"
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
        yield f"{place}: found {_list(kinds)}, expected one of them; make two systems"
    for kind in kinds:
        if encoder.get("similarity") == "inner_product":
            yield f"{place}.{kind}: found an encoder of inner products, expected one of angles; remove {kind}"
    if "hnsw" in system:
        yield from _check_ef(place, name, system["hnsw"]["ef"], config)


def _check_ef(place: str, name: str, ef: int | str, config: Config) -> Iterator[str]:
    learners = [
        model
        for section, (_, source) in LEARNERS.items()
        for _, model in _entries(config, section)
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
        yield f"{place}: found no reranker, expected one of {_list(config['rerankers'])}; name it"
        return
    reranker = config["rerankers"].get(system["reranker"])
    if reranker is not None:
        limit = min(reranker["depth"], config["depth"])
        if system.get("depth", limit) > limit:
            yield (
                f"{place}.depth: found {system['depth']}, expected at most {limit}, the candidates that are retrieved "
                f"(depth) and scored (rerankers.{system['reranker']}.depth); lower it or raise these"
            )


def _sound(config: Config) -> Config:
    """Copy the config with BM25 in the place of what is broken or leads nowhere, so that the rest can be followed."""
    systems = config["systems"]
    models = {
        section: {
            name: model
            for name, model in _entries(config, section)
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
    if kinds == ["interleave"]:
        return {"interleave": [part for part in system["interleave"] if part in config["systems"]]}
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


def _check_published(config: Config) -> Iterator[str]:
    splits = ranked_splits(config)
    for name, system in _entries(config, "systems"):
        run = system.get("run")
        if isinstance(run, str) and "{split}" not in run and len(splits) > 1:
            yield f"systems.{name}.run: found one path for the splits {_list(splits)}, expected {{split}} in it; add it"
        for split in run if isinstance(run, dict) else []:
            if split not in splits:
                yield f"systems.{name}.run: found the split {split!r}, expected one of {_list(splits)}; mend the name"


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
    yield from _check_name("evaluation.baseline", evaluation["baseline"], config["systems"])
    both = evaluation["examples"]
    for name in both:
        yield from _check_name("evaluation.examples", name, config["systems"])
    if both and len(set(both)) < 2:
        yield f"evaluation.examples: found {both[0]} alone, expected two systems or none; name another"
    for key in ("measures", "depth_measures"):
        yield from _check_measures(f"evaluation.{key}", evaluation[key])


def _check_audit(config: Config) -> Iterator[str]:
    for key, values in (config["audit"] or {}).items():
        if isinstance(values, list) and values != sorted(set(values)):
            yield f"audit.{key}: found {values}, expected growing numbers; sort them"


def _check_measures_of_splits(config: Config) -> Iterator[str]:
    for name, split in _entries(config, "splits"):
        place = f"splits.{name}.measures"
        if "measures" in split and name not in evaluated_splits(config):
            yield f"{place}: found measures, expected none, as the split is not evaluated; remove them"
        yield from _check_measures(place, split.get("measures", []))


def _check_measures(place: str, names: list[str]) -> Iterator[str]:
    for name, times in Counter(names).items():
        if not MEASURE.fullmatch(name):
            yield f"{place}: found {name!r}, expected one of {MEASURES}; mend it"
        if times > 1:
            yield f"{place}: found {name} {times} times, expected each measure once; remove one"


def _check_name(place: str, name: str, known: Iterable[str]) -> Iterator[str]:
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        fix = f"did you mean {near[0]}?" if near else "add it or mend the name"
        yield f"{place}: found {name!r}, expected one of {_list(known, '(none is defined)')}; {fix}"


def _list(names: Iterable[str], nothing: str = "nothing") -> str:
    return ", ".join(names) or nothing
