"""An experiment's config: defaults filled in, every mistake found before anything runs, questions the rules ask.

Used by the Snakefile alone; knows names and references, not files and not stages.
"""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

Config: TypeAlias = dict[str, Any]

SCHEMA = Path(__file__).parent / "schemas" / "experiment.schema.yaml"
TRAINING_SPLITS = ("train", "validation")
KINDS = ("retrieve", "interleave", "rerank", "run")


class ConfigError(ValueError):
    """Every mistake of a config, a line each."""


def load_schema() -> Config:
    """Read the schema of experiments."""
    schema: Config = yaml.safe_load(SCHEMA.read_text(encoding="utf-8"))
    return schema


def complete(config: Config, source: str) -> Config:
    """Return the config with all defaults.

    :param source: where it came from, named in errors.
    :raises ConfigError: with one line per mistake: place, what was found, what was expected, what to do.
    """
    schema = load_schema()
    errors = [_explain(error) for error in Draft202012Validator(schema).iter_errors(config)]
    if not errors:
        config = _with_defaults(copy.deepcopy(config), schema)
        errors = list(_check_references(config))
    if errors:
        raise ConfigError("\n".join(f"{source}: {error}" for error in sorted(errors)))
    return config


def check_duplicate_keys(path: str | Path) -> None:
    """Refuse a YAML file in which a key stands twice in one mapping: YAML would silently keep the last."""
    errors: list[str] = []

    def visit(node: yaml.Node | None) -> None:
        if isinstance(node, yaml.MappingNode):
            seen: dict[str, int] = {}
            for key, value in node.value:
                line = key.start_mark.line + 1
                if key.value in seen:
                    errors.append(
                        f"{path}: row {line}: found the key {key.value!r} again (first in row {seen[key.value]}), "
                        "expected each key once; rename or remove one"
                    )
                seen.setdefault(key.value, line)
                visit(value)
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                visit(item)

    visit(yaml.compose(Path(path).read_text(encoding="utf-8"), Loader=yaml.SafeLoader))
    if errors:
        raise ConfigError("\n".join(errors))


def kind_of(system: Config) -> str:
    """Tell how a system's run is made: bm25, exact, onng, interleave, rerank or run."""
    if "retrieve" not in system:
        return next(kind for kind in KINDS if kind in system)
    if system["retrieve"] == "bm25":
        return "bm25"
    return "onng" if "onng" in system else "exact"


def names_of_kind(config: Config, kind: str) -> str:
    """Return a regular expression that matches the names of all systems of one kind, and nothing if there are none."""
    names = [re.escape(name) for name, system in config["systems"].items() if kind_of(system) == kind]
    return "|".join(names) if names else r"(?!)"


def evaluated_splits(config: Config) -> list[str]:
    """List the splits that are measured and reported."""
    return [split for split in config["splits"] if split not in TRAINING_SPLITS]


def splits_of(config: Config, name: str) -> list[str]:
    """List the evaluated splits a system has a run for: all, unless a published run it needs covers only some."""
    system = config["systems"][name]
    splits = evaluated_splits(config)
    if isinstance(system.get("run"), dict):
        splits = [split for split in splits if split in system["run"]]
    for part in parts_of(system):
        splits = [split for split in splits if split in splits_of(config, part)]
    return splits


def parts_of(system: Config) -> list[str]:
    """List the systems whose runs a system is made from."""
    parts: list[str] = system["interleave"] if "interleave" in system else []
    return [*parts, system["rerank"]] if "rerank" in system else list(parts)


def reranked_by(config: Config, reranker: str) -> list[str]:
    """List the systems whose candidates a re-ranker scores, each once, in config order."""
    return list(
        dict.fromkeys(
            system["rerank"] for system in config["systems"].values() if system.get("reranker") == reranker
        )
    )


def describe(config: Config, name: str) -> str:
    """Say in a few words how a system's ranking is made."""
    system = config["systems"][name]
    kind = kind_of(system)
    if kind == "bm25":
        return "BM25, Anserini"
    if kind == "exact":
        return f"encoder {system['retrieve']}, exact search"
    if kind == "onng":
        return f"encoder {system['retrieve']}, ONNG with epsilon {system['onng']['epsilon']}"
    if kind == "interleave":
        return f"{' and '.join(system['interleave'])} interleaved"
    if kind == "rerank":
        return f"first {system['depth']} of {system['rerank']} re-ranked by {system['reranker']}"
    return "published run"


def _explain(error: ValidationError) -> str:
    place = ".".join(str(part) for part in error.absolute_path) or "top level"
    found = _shorten(error.instance)
    match error.validator:
        case "additionalProperties":
            known = sorted(error.schema.get("properties", {}))
            unknown = sorted(set(error.instance) - set(known))
            near = [match for key in unknown for match in difflib.get_close_matches(str(key), known, 1)]
            hint = f"did you mean {near[0]}?" if near else "remove it"
            keys = ", ".join(map(str, unknown))
            return f"{place}: found the unknown key {keys}, expected one of {', '.join(known)}; {hint}"
        case "required":
            missing = [key for key in error.validator_value if key not in error.instance]
            return f"{place}: found no key {', '.join(missing)}, expected it to be set; add it"
        case "type":
            return f"{place}: found {found}, expected {_words(error.validator_value)}; mend the value"
        case "enum":
            return f"{place}: found {found}, expected one of {_words(error.validator_value)}; mend the value"
        case "pattern":
            return f"{place}: found the name {found}, expected letters, digits and . _ - (+ in systems); rename it"
        case _:
            return f"{place}: found {found}, expected {error.validator} {error.validator_value}; mend the value"


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _words(value: object) -> str:
    return " or ".join(map(str, value)) if isinstance(value, list) else str(value)


def _with_defaults(value: Any, schema: Config) -> Any:  # noqa: ANN401 - any YAML value
    if isinstance(value, dict):
        for key, part in schema.get("properties", {}).items():
            if key not in value and "default" in part:
                value[key] = copy.deepcopy(part["default"])
            if key in value:
                value[key] = _with_defaults(value[key], part)
        rest = schema.get("additionalProperties")
        if isinstance(rest, dict):
            for key in value.keys() - schema.get("properties", {}).keys():
                value[key] = _with_defaults(value[key], rest)
    return value


def _check_references(config: Config) -> Iterator[str]:
    yield from _check_collection(config)
    yield from _check_models(config)
    broken = list(_check_systems(config))
    yield from broken
    if not broken:
        yield from _check_cycles(config)
        yield from _check_runs(config)
    yield from _check_evaluation(config)


def _check_collection(config: Config) -> Iterator[str]:
    collection, splits = config["collection"], config["splits"]
    if len(collection.keys() & {"passages", "pydocs"}) != 1:
        yield f"collection: found {sorted(collection)}, expected exactly one of passages and pydocs; keep one"
    if not evaluated_splits(config):
        yield f"splits: found only {sorted(splits)}, expected a split to evaluate besides train and validation; add one"
    for name, split in splits.items():
        files = split.keys() & {"queries", "qrels"}
        if "pydocs" in collection:
            if files or "hold_out" in split or name not in (*TRAINING_SPLITS, "test"):
                yield (
                    f"splits.{name}: found {sorted(split)}, expected only train, validation and test without files, "
                    "as pydocs makes them; remove what is more"
                )
        elif "hold_out" in split:
            if files or name == "train" or "train" not in splits:
                yield f"splits.{name}: found hold_out, expected it alone, beside a split train; mend the split"
        elif files != {"queries", "qrels"}:
            yield f"splits.{name}: found {sorted(files)}, expected queries and qrels, or hold_out; name both files"
    held = [name for name, split in splits.items() if "hold_out" in split]
    if len(held) > 1:
        yield f"splits: found hold_out in {', '.join(held)}, expected it in one split; name files for the others"


def _check_models(config: Config) -> Iterator[str]:
    for name, model in config["language_models"].items():
        if len(model.keys() & {"pretrained", "architecture"}) != 1:
            yield (
                f"language_models.{name}: found {sorted(model)}, expected exactly one of pretrained and architecture; "
                "keep one"
            )
    for section, source in (("encoders", "triples"), ("rerankers", "pairs")):
        for name, model in config[section].items():
            place = f"{section}.{name}"
            yield from _check_name(f"{place}.language_model", model["language_model"], config["language_models"])
            yield from _check_name(f"{place}.{source}.system", model[source]["system"], config["systems"])
            last = model[source]["last_rank"]
            if not model[source]["first_rank"] <= last <= config["training_depth"]:
                yield (
                    f"{place}.{source}: found the ranks {model[source]['first_rank']} to {last}, expected them in order "
                    f"and within training_depth ({config['training_depth']}); mend the ranks or raise training_depth"
                )
            for split in TRAINING_SPLITS:
                if split not in config["splits"]:
                    yield f"splits: found no split {split}, expected it for training {place}; add it"
    if "bm25" in config["encoders"]:
        yield "encoders.bm25: found the name bm25, expected another, as `retrieve: bm25` means BM25; rename it"
    if "tune" in config["bm25"] and "train" not in config["splits"]:
        yield "bm25.tune: found no split train, expected training queries to tune on; add the split"


def _check_name(place: str, name: str, known: Config) -> Iterator[str]:
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}?" if near else "add it or mend the name"
        yield f"{place}: found {name!r}, expected one of {', '.join(known) or '(none is defined)'}; {hint}"


def _check_systems(config: Config) -> Iterator[str]:
    systems = config["systems"]
    for name, system in systems.items():
        place = f"systems.{name}"
        kinds = [kind for kind in KINDS if kind in system]
        if len(kinds) != 1:
            yield f"{place}: found {kinds or 'nothing'}, expected exactly one of {', '.join(KINDS)}; keep one"
            continue
        allowed = {"retrieve": {"onng"}, "rerank": {"reranker", "depth"}}.get(kinds[0], set())
        for key in sorted(system.keys() - {kinds[0]} - allowed):
            yield f"{place}.{key}: found {key} with {kinds[0]}, expected it not to be there; remove it"
        if kinds[0] == "retrieve" and not (system["retrieve"] == "bm25" and "onng" not in system):
            yield from _check_name(f"{place}.retrieve", system["retrieve"], config["encoders"])
        for part in parts_of(system):
            yield from _check_name(f"{place}.{kinds[0]}", part, systems)
        if kinds[0] == "rerank":
            yield from _check_rerank(place, system, config)


def _check_rerank(place: str, system: Config, config: Config) -> Iterator[str]:
    if "reranker" not in system:
        yield f"{place}: found no reranker, expected one of {', '.join(config['rerankers'])}; name it"
        return
    yield from _check_name(f"{place}.reranker", system["reranker"], config["rerankers"])
    if system["reranker"] in config["rerankers"]:
        limit = min(config["rerankers"][system["reranker"]]["depth"], config["depth"])
        if system.setdefault("depth", limit) > limit:
            yield (
                f"{place}.depth: found {system['depth']}, expected at most {limit}, the candidates that are retrieved "
                "and scored; lower it or raise both depths"
            )


def _check_cycles(config: Config) -> Iterator[str]:
    """Walk from every system to all it is made from, through encoders and re-rankers to the runs they learn from."""
    systems = config["systems"]

    def needs(name: str) -> list[str]:
        system = systems[name]
        found = parts_of(system)
        if system.get("retrieve", "bm25") != "bm25":
            found.append(config["encoders"][system["retrieve"]]["triples"]["system"])
        if "reranker" in system:
            found.append(config["rerankers"][system["reranker"]]["pairs"]["system"])
        return [part for part in found if part in systems]

    def cycle_from(name: str, path: list[str]) -> list[str] | None:
        if name in path:
            return [*path[path.index(name) :], name]
        return next((cycle for part in needs(name) if (cycle := cycle_from(part, [*path, name]))), None)

    seen: set[frozenset[str]] = set()
    for name in systems:
        cycle = cycle_from(name, [])
        if cycle and frozenset(cycle) not in seen:
            seen.add(frozenset(cycle))
            yield f"systems.{name}: found the circle {' -> '.join(cycle)}, expected no system to need itself; break it"


def _check_runs(config: Config) -> Iterator[str]:
    splits = evaluated_splits(config)
    for name, system in config["systems"].items():
        run = system.get("run")
        if isinstance(run, str) and "{split}" not in run and len(splits) > 1:
            yield f"systems.{name}.run: found one path for the splits {', '.join(splits)}, expected {{split}} in it; add it"
        for split in sorted(set(run) - set(splits)) if isinstance(run, dict) else []:
            yield f"systems.{name}.run: found the split {split!r}, expected one of {', '.join(splits)}; mend the name"
        if not splits_of(config, name):
            yield f"systems.{name}: found no split its published runs share, expected one at least; add run files"
    for section, source in (("encoders", "triples"), ("rerankers", "pairs")):
        for name, model in config[section].items():
            teacher = model[source]["system"]
            if teacher in config["systems"] and _needs_published(config, teacher):
                yield (
                    f"{section}.{name}.{source}.system: found {teacher!r}, made from a published run, expected a system "
                    "that can rank the training queries; name another"
                )


def _needs_published(config: Config, name: str) -> bool:
    system = config["systems"][name]
    return "run" in system or any(_needs_published(config, part) for part in parts_of(system))


def _check_evaluation(config: Config) -> Iterator[str]:
    evaluation = config["evaluation"]
    yield from _check_name("evaluation.baseline", evaluation["baseline"], config["systems"])
    for name in evaluation["examples"]:
        yield from _check_name("evaluation.examples", name, config["systems"])
    if len(evaluation["examples"]) == 1:
        yield "evaluation.examples: found one system, expected two or none; name the other"
