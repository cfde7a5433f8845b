"""Metadata of runs in the schema ir_metadata (Breuer, Keller and Schaer, SIGIR 2022): the components of PRIMAD."""

from __future__ import annotations

import sys
from typing import Any

from cort.downloads.catalog import load_catalog
from cort.experiment.config import with_parts
from cort.experiment.downloads import PREFIX, path_of
from cort.experiment.models import models_of, triples_file
from cort.formats.artifacts import read_json
from cort.settings import paths
from cort.settings.config import SOURCES, Config, files_of_split, is_trained, one_or_more
from cort.settings.lexical import LexicalIndex
from cort.systems.base import Results, System
from cort.systems.registry import system_of

# What Anserini's analyser of English consists of; it chooses those of other languages.
ENGLISH = {
    "tokenizer": "org.apache.lucene.analysis.standard.StandardTokenizer",
    "stemmer": "org.apache.lucene.analysis.en.PorterStemFilter",
    "stopwords": "org.apache.lucene.analysis.en.EnglishAnalyzer.ENGLISH_STOP_WORDS_SET",
}


def describe_run(results: Results, split: str, name: str, origin: Config) -> Any:
    """Describe the run of a system; what is unknown is left out.

    :param origin: code, software and hardware, as `cort.provenance` records them.
    """
    config, code = results.config, origin["code"]
    # A system has more parts than each of them.
    ordered = sorted(with_parts(config, [name]), key=lambda part: len(with_parts(config, [part])))
    systems = [system_of(config, part, results) for part in ordered]
    commit = code["commit"] and f"{code['commit']}{'-dirty' if code['modified'] else ''}"
    record = {
        "schema-version": 0.1,
        "tag": name,
        "research goal": {
            "description": config["title"],
            "evaluation": {"baseline": [config["evaluation"]["baseline"]]},
        },
        "platform": _platform(origin["software"], origin["hardware"]),
        "implementation": {
            "executable": {"cmd": f"snakemake --cores all {paths.at(paths.PROVENANCE, config)}"},
            "source": {"lang": ["Python"], "commit": commit},
        },
        "method": {
            "automatic": all(system.searchable for system in systems) or None,
            "score ties": "by doc_id",
            "indexing": _analysis(config, systems),
            "retrieval": [_component(system, split) for system in systems],
        },
        "data": {"test collection": _collection(config, split), "training data": _training_data(config, systems)},
    }
    # Readers expect all components.
    return {**_known(record), "actor": {}}


def _known(value: Any) -> Any:
    """Drop what is None or empty."""
    if isinstance(value, dict):
        return {key: known for key, part in value.items() if (known := _known(part)) not in (None, "", [], {})}
    return [_known(part) for part in value] if isinstance(value, list) else value


def _platform(software: Config, hardware: Config) -> Config:
    packages = [f"{name}=={version}" for name, version in software["packages"].items()]
    java = ["==".join(software["java"].split()[:2])] if software["java"] else []
    cards = zip(*(card.split(", ") for card in hardware["gpus"]), strict=False)
    return {
        "hardware": {
            "cpu": {
                "model": hardware["processor"],
                "architecture": hardware["architecture"],
                "operation mode": f"{sys.maxsize.bit_length() + 1}-bit",
                "number of cores": hardware["cores"],
            },
            "gpu": dict(zip(("model", "memory"), map("; ".join, cards), strict=False)),
            "ram": f"{hardware['memory_mb'] / 1024:.0f} GB",
        },
        "operating system": {key: software[key] for key in ("kernel", "distribution")},
        "software": {
            "libraries": {"python": packages, "java": java},
            "retrieval toolkit": [package for package in packages if package.startswith("pyserini==")],
        },
    }


def _analysis(config: Config, systems: list[System]) -> Config:
    """Name what divides texts into terms; nothing without BM25, or with BM25 in several languages."""
    languages = {config["lexical"][name]["language"] for system in systems if (name := system.lexical_index())}
    if languages == {LexicalIndex.language}:
        return ENGLISH
    names = ENGLISH if len(languages) == 1 else ()
    return dict.fromkeys(names, f"io.anserini.analysis.AnalyzerMap.getLanguageSpecificAnalyzer({''.join(languages)})")


def _component(system: System, split: str) -> Config:
    """Describe a system with the settings of its rule, and tuned values; those of folds are in the file it names."""
    config, parts = system.config, system.parts()
    given = {option.name: option.value for option in system.options(split) if option.name not in (None, "method")}
    if system.tuned_option in given and "folded" not in given:
        tuned = read_json(given.pop(system.tuned_option)).of(dict)
        given |= {key: tuned[key] for key in ("k1", "b", "weights") if key in tuned}
    bases = [config["base_models"][config[section][name]["base_model"]] for section, name in system.models()]
    return {
        "name": system.name,
        "method": system.describe(),
        **{key: base.get(key) for base in bases for key in ("pretrained", "revision")},
        "depth": config["depth"] if system.searchable else None,
        "weight": given.pop("weights", None),
        **given,
        **({"reranks": parts[0]} if system.reranker() else {"interpolates": parts}),
    }


def _collection(config: Config, split: str) -> Config:
    collection, files = config["collection"], files_of_split(config, split)
    sources = [one_or_more(collection[key]) for key in (*SOURCES, "passages") if key in collection]
    return {
        "name": config["dataset"],
        "source": _addresses(config, sources[0] if sources else []),
        "qrels": _addresses(config, files.get("qrels", [])),
        "topics": _addresses(config, files.get("queries", [])),
        "ir_datasets": files.get("irds", collection.get("irds")),
    }


def _training_data(config: Config, systems: list[System]) -> list[Config]:
    """Describe what models were trained on here: the split `train`, or files of triples."""
    models = [(section, config[section][name]) for system in systems for section, name in models_of(config, system)]
    files = dict.fromkeys(triples_file(*model) for model in models if is_trained(model[1]))
    return [{"source": _addresses(config, file)} if file else _collection(config, "train") for file in files]


def _addresses(config: Config, named: str | list[str]) -> str:
    """List paths, but of public files the addresses that they are fetched from."""
    files, found = load_catalog().files, []
    for path in one_or_more(named):
        name = "/".join(path.split("/")[-2:])
        public = files.get(name) if path == path_of(PREFIX + name, config["dataset"]) else None
        found.append(files[public.archive or name].urls[0] if public else path)
    return ", ".join(dict.fromkeys(found))
