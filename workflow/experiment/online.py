"""What a searcher needs, as the options of the stage `manifest` say it: from the config alone.

A published run cannot be searched, nor what is made from one: those systems are left out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from workflow.experiment.config import (
    GRAPHS,
    LEARNERS,
    Config,
    evaluated_splits,
    fusion_of,
    kind_of,
    parts_of,
    ranked_splits,
    used_models,
)


def audit_file(config: Config, name: str) -> str:
    """Name the audit that chooses how widely a system searches: of validation queries, or else of the first others."""
    system, splits = config["systems"][name], evaluated_splits(config)
    split = "validation" if "validation" in config["splits"] else splits[0]
    return f"results/{config['dataset']}/audit/{split}/{system['retrieve']}.{kind_of(system)}.json"


def searchable(config: Config) -> list[str]:
    """List the systems that can be searched."""

    def can(name: str) -> bool:
        system = config["systems"][name]
        return kind_of(system) != "run" and all(map(can, parts_of(system)))

    return [name for name in config["systems"] if can(name)]


def manifest_options(config: Config, shards: Callable[[str], Sequence[str]]) -> list[str]:
    """Options of the stage `manifest`; paths are those of the workflow.

    :param config: with defaults.
    :param shards: files of the passages' vectors, by name of the encoder.
    """
    folder, systems = f"results/{config['dataset']}", searchable(config)
    encoders = {
        name: _model(config, folder, "encoders", name, shards(name))
        for name in used_models(config, "encoders")
        if any(config["systems"][system].get("retrieve") == name for system in systems)
    }
    rerankers = {
        name: _model(config, folder, "rerankers", name, [f"{folder}/tokens/{one['base_model']}/passages.arrow"])
        for name in used_models(config, "rerankers")
        if (one := config["rerankers"][name])
        and any(config["systems"][system].get("reranker") == name for system in systems)
    }
    tree = {name: _system(config, folder, name) for name in systems}
    return [
        *("--passages", f"{folder}/collection/passages.parquet", "--depth", str(config["depth"])),
        *("--bm25-index", f"{folder}/bm25/index", "--bm25-cleaning", config["bm25"]["cleaning"]),
        *("--encoders", _as_json(encoders), "--rerankers", _as_json(rerankers), "--systems", _as_json(tree)),
    ]


def latency_file(config: Config) -> list[str]:
    """Name the measured latencies, if any are asked for."""
    asked = config.get("latency")
    return [f"results/{config['dataset']}/latency/{asked['split']}.json"] if asked else []


def searched_files(config: Config, shards: Callable[[str], Sequence[str]]) -> list[str]:
    """List what is opened to measure latencies: models, vectors, indexes, passages.

    :param shards: files of the passages' vectors, by name of the encoder.
    """
    folder = f"results/{config['dataset']}"

    def visit(name: str) -> Iterator[str]:
        for part in parts_of(config["systems"][name]):
            yield from visit(part)
        yield from _opened(config, name, shards)

    found = [file for name in config["latency"]["systems"] for file in visit(name)]
    return [f"{folder}/collection/passages.parquet", *dict.fromkeys(found)]


def _opened(config: Config, name: str, shards: Callable[[str], Sequence[str]]) -> Iterator[str]:
    """Yield the files of one system, without those of its parts."""
    system, folder = config["systems"][name], f"results/{config['dataset']}"
    kind = kind_of(system)
    for section, (key, _) in LEARNERS.items():
        if (model := config[section].get(system.get(key))) is not None:
            yield f"{folder}/{section}/{system[key]}/{model['checkpoint']}/model.safetensors"
    if kind == "bm25":
        yield f"{folder}/bm25/index/manifest.json"
        if "tune" in config["bm25"] and "bm25" not in system:
            yield f"{folder}/bm25/parameters.json"
    elif kind == "rerank":
        base_model = config["rerankers"][system["reranker"]]["base_model"]
        yield f"{folder}/tokens/{base_model}/passages.arrow"
    elif "retrieve" in system:
        yield from shards(system["retrieve"])
        if kind in GRAPHS:
            yield f"{folder}/{kind}/{system['retrieve']}/meta.json"
            if system[kind][GRAPHS[kind].width] == "auto":
                yield audit_file(config, name)


def check_latency(config: Config, sound: Config) -> Iterator[str]:
    """Yield a line for each mistake in what is said of latencies.

    :param config: with defaults; parts of a wrong shape are None.
    :param sound: the same, with systems that can be followed in the place of others.
    """
    asked = config.get("latency")
    if asked is None:
        return
    splits = ranked_splits(config)
    if asked["split"] not in splits:
        yield f"latency.split: found {asked['split']!r}, expected one of {', '.join(splits)}; fix the name"
    known = searchable(sound)
    for name, times in Counter(asked["systems"]).items():
        if name not in config["systems"]:
            yield f"latency.systems: found {name!r}, expected one of {', '.join(known)}; add it or fix the name"
        elif name not in known:
            yield f"latency.systems: found {name}, made from a published run, which cannot be searched; remove it"
        if times > 1:
            yield f"latency.systems: found {name} {times} times, expected each system once; remove one"


def _model(config: Config, folder: str, section: str, name: str, files: Sequence[str]) -> dict[str, Any]:
    model = config[section][name]
    return {
        "model": f"{folder}/{section}/{name}/{model['checkpoint']}",
        "cleaning": config["base_models"][model["base_model"]]["cleaning"],
        "precision": model["precision"],
        "files": list(files),
    }


def _system(config: Config, folder: str, name: str) -> dict[str, Any]:
    system = config["systems"][name]
    match kind_of(system):
        case "bm25":
            bm25 = config["bm25"] | system.get("bm25", {})
            tuned = {"parameters": f"{folder}/bm25/parameters.json"}
            return {"kind": "bm25"} | ({"k1": bm25["k1"], "b": bm25["b"]} if "k1" in bm25 else tuned)
        case "interleave" | "fuse":
            return {"kind": fusion_of(system), "parts": parts_of(system)}
        case "rerank":
            # A run has no more candidates.
            depth = min(system["depth"], config["depth"])
            return {
                "kind": "rerank",
                "candidates": system["rerank"],
                "reranker": system["reranker"],
                "depth": depth,
            }
        case kind if kind in GRAPHS:
            encoder = system["retrieve"]
            width = system[kind][GRAPHS[kind].width]
            auto = {"audit": audit_file(config, name), "recall": system[kind].get("recall")}
            found = {"kind": kind, "encoder": encoder, "index": f"{folder}/{kind}/{encoder}"}
            return found | (auto if width == "auto" else {"width": width})
        case kind:
            return {"kind": kind, "encoder": system["retrieve"]}


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
