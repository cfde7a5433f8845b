"""What a searcher needs, as the options of the stage `manifest` say it: from the config alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from cort.experiment import paths
from cort.experiment.config import fusion_of, kind_of, parts_of, searchable, tuned_by, tuned_index
from cort.experiment.models import own_models, used_models
from cort.retrieval.fusion import FUSIONS
from cort.retrieval.graphs import GRAPHS, INDEXES
from cort.settings.config import Config, flat
from workflow import inputs
from workflow.params import Words, option

Shards: TypeAlias = Callable[[str, str], Sequence[str]]
# Models as a manifest has them: the section of the config. A re-ranker that retrieves is an encoder of tokens, too.
OPENED = {"encoders": "encoders", "rerankers": "rerankers", "token_encoders": "rerankers"}


def manifest_options(config: Config, shards: Shards) -> Words:
    """Options of the stage `manifest`; paths are those of the workflow.

    :param config: with defaults.
    :param shards: files of the passages' vectors, by section and name of the model.
    """
    systems = searchable(config)
    models = {
        one: {
            name: _model(config, one, name, shards)
            for name in used_models(config, section)
            if any(_opens(config, config["systems"][system], one, name) for system in systems)
        }
        for one, section in OPENED.items()
    }
    searched = dict.fromkeys(config["systems"][name].get("retrieve") for name in systems)
    indexes = {name: _index(config, name) for name in searched if name in config["lexical"]}
    found = models | {"lexical": indexes, "systems": {name: _system(config, name) for name in systems}}
    words = [word for name, value in found.items() for word in option(name, json.dumps(value, ensure_ascii=False))]
    words += option("passages", paths.at(paths.PASSAGES, config)) + option("depth", config["depth"])
    # Names say in which order they are listed.
    return Words(words, {**flat(found), "depth": config["depth"], "systems": systems})


def searched_files(config: Config, shards: Shards) -> list[str]:
    """List what is opened to measure latencies: models, vectors, indexes, passages.

    :param shards: files of the passages' vectors, by section and name of the model.
    """

    def visit(name: str) -> Iterator[str]:
        for part in parts_of(config["systems"][name]):
            yield from visit(part)
        yield from _opened(config, name, shards)

    found = [file for name in config["latency"]["systems"] for file in visit(name)]
    return [paths.at(paths.PASSAGES, config), *dict.fromkeys(found)]


def _opened(config: Config, name: str, shards: Shards) -> Iterator[str]:
    """Yield the files of one system, without those of its parts."""
    system = config["systems"][name]
    kind = kind_of(config, system)
    for section, model in own_models(config, system):
        yield inputs.weights(config, section, model)
    if tuned_by(system):
        yield paths.at(paths.WEIGHTS, config, system=name)
    if kind == "bm25":
        yield paths.at(paths.LEXICAL_INDEX, config, lexical=system["retrieve"])
        if tuned := tuned_index(config, name):
            yield paths.at(paths.LEXICAL_PARAMETERS, config, lexical=tuned)
    elif kind == "rerank":
        yield _passage_tokens(config, system["reranker"])
    elif "retrieve" in system:
        for section, model in own_models(config, system):
            yield from shards(section, model)
        if kind in INDEXES:
            yield paths.at(paths.GRAPH, config, index=kind, encoder=system["retrieve"]) + "meta.json"
            if system[kind][INDEXES[kind].parameter] == "auto":
                yield inputs.audit_of(config, name)


def _passage_tokens(config: Config, reranker: str) -> str:
    base_model = config["rerankers"][reranker]["base_model"]
    return paths.at(paths.TOKENS, config, base_model=base_model, text="passages")


def _index(config: Config, name: str) -> dict[str, str]:
    folder = Path(paths.at(paths.LEXICAL_INDEX, config, lexical=name)).parent
    return {"index": str(folder), "cleaning": config["lexical"][name]["cleaning"]}


def _opens(config: Config, system: Config, opened: str, name: str) -> bool:
    """Tell whether a system needs a model of a section of the manifest."""
    retrieves = "retrieve" in system
    return (OPENED[opened], name) in own_models(config, system) and retrieves == (opened != "rerankers")


def _model(config: Config, opened: str, name: str, shards: Shards) -> dict[str, Any]:
    section = OPENED[opened]
    model = config[section][name]
    return {
        "model": str(Path(inputs.weights(config, section, name)).parent),
        "cleaning": config["base_models"][model["base_model"]]["cleaning"],
        "precision": model["precision"],
        "files": [_passage_tokens(config, name)] if opened == "rerankers" else list(shards(section, name)),
    }


def _system(config: Config, name: str) -> dict[str, Any]:
    system = config["systems"][name]
    match kind_of(config, system):
        case "bm25":
            found, own = {"kind": "bm25", "lexical": system["retrieve"]}, config["lexical"][system["retrieve"]]
            if tuned := tuned_index(config, name):
                return found | {"parameters": paths.at(paths.LEXICAL_PARAMETERS, config, lexical=tuned)}
            return found | {key: system.get("bm25", own)[key] for key in ("k1", "b")}
        case "interleave" | "fuse":
            return {"kind": fusion_of(system), "parts": parts_of(system)} | _merging(config, name)
        case "rerank":
            # A run has no more candidates.
            depth = min(system["depth"], config["depth"])
            found = {"kind": "rerank", "candidates": system["rerank"], "reranker": system["reranker"], "depth": depth}
            return found | _tuned(config, name) | ({} if system.get("weight", 1) == 1 else {"weight": system["weight"]})
        case kind if kind in GRAPHS:
            return {"kind": kind, "encoder": system["retrieve"]} | _search(config, name, kind)
        case "ivfpq" as kind:
            found = {"kind": kind, "token_encoder": system["retrieve"], "per_token": system[kind]["candidates"]}
            return found | _search(config, name, kind)
        case "late_interaction":
            return {"kind": "late_interaction", "token_encoder": system["retrieve"]}
        case kind:
            return {"kind": kind, "encoder": system["retrieve"]}


def _search(config: Config, name: str, kind: str) -> dict[str, Any]:
    """Say which index a system searches, and how widely."""
    system = config["systems"][name]
    width = system[kind][INDEXES[kind].parameter]
    index = {"index": paths.at(paths.GRAPH, config, index=kind, encoder=system["retrieve"]).rstrip("/")}
    if width != "auto":
        return index | {"width": width}
    return index | {"audit": inputs.audit_of(config, name), "recall": system[kind].get("recall")}


def _tuned(config: Config, name: str) -> dict[str, str]:
    return {"tuned": paths.at(paths.WEIGHTS, config, system=name)} if tuned_by(config["systems"][name]) else {}


def _merging(config: Config, name: str) -> dict[str, Any]:
    """Give what a method is told, but for the systems that it merges."""
    fusion = config["systems"][name].get("fuse", {})
    found = {key: fusion[key] for key in ("k", "normalization", "weights") if key in fusion} | _tuned(config, name)
    # Without either, all weights are the same.
    equal = "weights" in FUSIONS[fusion_of(config["systems"][name])].settings and not found.keys() & {
        "weights",
        "tuned",
    }
    return found | ({"weights": [1 / len(fusion["systems"])] * len(fusion["systems"])} if equal else {})
