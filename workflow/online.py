"""What a searcher needs, as the options of the stage `manifest` say it: from the config alone.

A published run cannot be searched, nor what is made from one: those systems are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from workflow.experiment import Config, kind_of, parts_of, used_models

#: kinds of graph index; each is a folder of results and a section of a system with the settings of a search
GRAPHS = ("onng",)


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
        name: _model(config, folder, "rerankers", name, [f"{folder}/tokens/{one['language_model']}/passages.arrow"])
        for name in used_models(config, "rerankers")
        if (one := config["rerankers"][name])
        and any(config["systems"][system].get("reranker") == name for system in systems)
    }
    tree = {name: _system(config, folder, name) for name in systems}
    return [
        *("--passages", f"{folder}/collection/passages.parquet", "--depth", str(config["depth"])),
        *("--bm25-index", f"{folder}/bm25/index", "--bm25-text", config["bm25"]["text"]),
        *("--encoders", _as_json(encoders), "--rerankers", _as_json(rerankers), "--systems", _as_json(tree)),
    ]


def _model(config: Config, folder: str, section: str, name: str, files: Sequence[str]) -> dict[str, Any]:
    model = config[section][name]
    return {
        "model": f"{folder}/{section}/{name}/{model['checkpoint']}",
        "text": config["language_models"][model["language_model"]]["text"],
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
        case "interleave":
            return {"kind": "interleave", "parts": system["interleave"]}
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
            return {"kind": kind, "encoder": encoder, "index": f"{folder}/{kind}/{encoder}", **system[kind]}
        case kind:
            return {"kind": kind, "encoder": system["retrieve"]}


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
