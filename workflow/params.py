"""Params of rules, which Snakemake compares: the options of a stage as words of its command line, and its code.

Paths in the config have dots, and wildcards in braces: "encoders.{encoder}.margin".
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

from cort.config import paths
from cort.config.collection import Folder, Generated, HeldOut, Whole
from cort.config.comparisons import pairs, pairs_of_splits, splits_apart
from cort.config.entries import LEARNERS, TRAINING_SPLITS, Config
from cort.config.evaluation import TrecRun
from cort.config.experiment import Experiment
from cort.config.learners import Learner
from cort.config.models import PretrainedBase, ReleasedScoring, Service
from cort.config.root import Root, affecting_results
from cort.config.stored import needed_for
from cort.retrieval.indexes import INDEXES
from cort.runtime.checksums import checksum
from cort.runtime.command_line import words_of
from cort.runtime.files import write_text
from cort.runtime.program import program_of
from cort.runtime.sections import Section, keys_of, plain, variant_of
from cort.systems.registry import exact_search
from workflow import inputs
from workflow.inputs import Wildcards, learner_of, name_of

# What the files of a folder contained when they were last read.
CONTENTS = Path(".snakemake/contents")
# Keys of training examples that say which results are drawn.
DRAWN = ("first_rank", "last_rank", "negatives", "random", "positives")
#: a path; a place with the sections or names of its keys; or a function that gives options by their names
Part: TypeAlias = "str | tuple[str | type[Section], ...] | Callable[[Experiment, Wildcards], Config]"


def options(experiment: Experiment, *parts: Part, **renamed: str) -> Callable[[Wildcards], list[str]]:
    """Return a function of a job's wildcards that gives options as words, sorted by name; none for keys not set.

    :param parts: paths in the config, such as "seed"; places in it, each with sections, or names, of the keys there
        that are options; and functions that give options by name.
    :param renamed: paths of values whose option has another name.
    """

    def read(wildcards: Wildcards) -> list[str]:
        found: Config = {}
        for part in parts:
            if callable(part):
                found |= part(experiment, wildcards)
            else:
                place, *keys = part.rpartition(".")[::2] if isinstance(part, str) else part
                found |= _values_at(str(place), keys, experiment, wildcards)
        for name, path in renamed.items():
            place, _, key = path.rpartition(".")
            found[name] = _values_at(place, [key], experiment, wildcards).get(key)
        return words_of({name: found[name] for name in sorted(found)})

    return read


def look_up(experiment: Experiment, path: str, wildcards: Wildcards) -> Any:
    """Return the value at a path in the config."""
    value: Any = experiment.config
    for key in path.split(".") if path else ():
        value = value[key.format(**wildcards)]
    return value


def _values_at(place: str, keys: Iterable[str | type[Section]], experiment: Experiment, wildcards: Wildcards) -> Config:
    """Give the values of these keys, or of the keys of sections, as far as the entry is of them and has them."""
    entry = look_up(experiment, place, wildcards)
    names = [name for key in keys for name in ([key] if isinstance(key, str) else _keys(place, key, entry))]
    return {name: entry[name] for name in names if name in entry}


def _keys(place: str, section: type[Section], entry: Config) -> Iterable[str]:
    """List the keys of a section; none if the entry is of a class without it, as a released encoder is."""
    top, _, name = place.partition(".")
    if name and "." not in name and typing.get_origin(Root.model_fields[top].annotation) is dict:
        variant = variant_of(Root.model_fields[top], entry)
        return keys_of(section) if variant and issubclass(variant, section) else ()
    return keys_of(section)


@functools.cache
def code_of(stage: str) -> dict[str, str]:
    """Hash each file that `stage` (``"fuse"``, or with a command ``"encode tokens"``) imports, by path.

    :raises ValueError: if there is no such stage.
    """
    code = program_of(f"cort.{stage}")
    if code.keys() <= {"cort/__init__.py"}:
        raise ValueError(f"workflow/rules: found code_of({stage!r}), expected a stage; name a module of cort/")
    return code


# The collection and its splits.


def collection(experiment: Experiment, wildcards: Wildcards) -> Config:
    """Give the source of passages or documents, how these are divided, and names of fields."""
    settings, source = plain(experiment.collection), experiment.source
    if source in ("folder", "irds", "hf"):
        found = {key: settings[key] for key in (source, "ids") if key in settings}
    else:
        # The passages of a file, if queries are made of their titles or sentences, are documents that stay whole.
        found = {"documents" if source else "passages": inputs.origin_of_collection(experiment)}
    if source:
        found["output_sources"] = experiment.at(paths.IMPORT_SOURCES)
    for key in ("passages", "fields"):
        found |= settings[key] if isinstance(settings.get(key), dict) else {}
    if origin := experiment.copied_from:
        found |= {"generate": origin, "output_candidates": experiment.at(paths.CANDIDATES)}
    return found


def state_of_folder(experiment: Experiment) -> str:
    """Digest the contents of a folder of documents; files of the same size and time as before are not read again."""
    if not isinstance(experiment.collection, Folder) or not Path(name := experiment.collection.folder).is_dir():
        return ""
    from cort.sources.folder import list_files

    cache = CONTENTS / f"{hashlib.sha256(os.path.realpath(name).encode()).hexdigest()[:16]}.json"
    known = json.loads(cache.read_text("utf-8")) if cache.is_file() else {}
    found = {}
    for path, *seen in list_files(name):
        *before, digest = known.get(path, [None])
        found[path] = [*seen, digest if before == seen else checksum(Path(name, path))]
    if found != known:
        write_text(cache, json.dumps(found))
    digests = {path: digest for path, (*_, digest) in found.items()}
    return hashlib.sha256(repr(digests).encode()).hexdigest()[:16]


def imported_split(experiment: Experiment, wildcards: Wildcards) -> Config:
    """Give the source of queries and judgements."""
    split = experiment.config["splits"][wildcards.split]
    if "irds" in split:
        return {"irds": split["irds"]}
    return {"hf": experiment.config["collection"]["hf"], "part": split["hf"]}


def generated_split(experiment: Experiment, wildcards: Wildcards) -> Config:
    """Give the split, its sample, and all that documents are divided among."""
    split = experiment.splits[wildcards.split]
    # What other splits have is left out before a sample is drawn.
    sample = {} if split.left_out else {"sample": getattr(split, "sample", None)}
    return {"splits": experiment.splits_of_class(Generated), "split": wildcards.split, **sample}


def passage_queries(experiment: Experiment, wildcards: Wildcards) -> Config:
    """Give the splits for which an endpoint makes queries of passages, and their samples."""
    samples = {name: split.sample for name, split in experiment.splits.items() if isinstance(split, Generated)}
    return {"splits": [*samples], "samples": [*samples.values()]}


def selection(experiment: Experiment, wildcards: Wildcards) -> Config:
    """Say which queries a split keeps, and which ones are held out of train."""
    name, splits, seed = wildcards.split, experiment.splits, experiment.root.seed
    split, files = splits[name], splits[experiment.files_of_split(name)]
    held = {name: other.hold_out for name, other in splits.items() if isinstance(other, HeldOut)}
    found: Config = {"numbered": files.numbered, **(plain(files.topics) if files.topics else {})}
    if experiment.source == "folder":
        found["visible"] = True
    if experiment.is_judged(name):
        found |= {"unjudged_queries": split.unjudged_queries, "unknown": split.unknown}
    asked = isinstance(split, Generated) and split.generate.from_ == "endpoint"
    if isinstance(split, Whole) and split.sample and not asked:
        found |= {"sample": split.sample, "seed": seed}
    if held and name in (*held, "train"):
        found |= {"hold_out": max(held.values()), "part": "held-out" if name in held else "rest", "seed": seed}
    # Both parts of train are drawn from the same queries.
    return found | ({"for_training": True} if name in (*TRAINING_SPLITS, *held) else {})


def inspection(experiment: Experiment, wildcards: Wildcards) -> Config:
    """Give the splits, pairs that are compared, and what the passages should fit: lengths of encoders, languages."""
    encoders = {name: experiment.encoders[name] for name in experiment.used_models("encoders")}
    lengths = {name: encoder.passage_length for name, encoder in encoders.items() if not isinstance(encoder, Service)}
    languages = {name: index.language for name, index in experiment.lexical.items()}
    return {
        "splits": [*experiment.splits],
        "pairs": _joined(pairs_of_splits(experiment)),
        "apart": _joined(splits_apart(experiment)),
        "own": [name for name, split in experiment.splits.items() if split.ignore_own],
        "limits": _joined((name, length) for name, length in lengths.items() if length),
        "languages": _joined(languages.items()),
    }


def _joined(couples: Iterable[tuple[Any, Any]]) -> list[str]:
    return [f"{first}={second}" for first, second in couples]


# Models.


def place_of_model(wildcards: Wildcards) -> tuple[str, str]:
    """Return section and name of a job's encoder or re-ranker."""
    section = next(section for section in LEARNERS if hasattr(wildcards, section.removesuffix("s")))
    return section, name_of(section, wildcards)


def base_model(experiment: Experiment, wildcards: Wildcards) -> Config:
    """Give the origin of a base model: a pretrained one, or an architecture and the passages."""
    model = experiment.base_models[wildcards.base_model]
    if isinstance(model, PretrainedBase):
        return {"pretrained": model.pretrained, **({"revision": model.revision} if model.revision else {})}
    return plain(model) | {"architecture": json.dumps(model.architecture), "passages": experiment.at(paths.PASSAGES)}


def cleaning(experiment: Experiment, wildcards: Wildcards) -> Config:
    """Give how the texts of a model are cleaned."""
    return {"cleaning": experiment.base_models[experiment.base_model_of(*place_of_model(wildcards))].cleaning}


def kind_of_new(experiment: Experiment, wildcards: Wildcards) -> Config:
    """Give the kind of a new re-ranker; the files of a released one define it."""
    model = experiment.rerankers[wildcards.reranker]
    return {} if isinstance(model, ReleasedScoring) else {"kind": model.kind}


def nested_sizes(experiment: Experiment, wildcards: Wildcards) -> Config:
    """Give the numbers of vectors that an encoder is trained to make vectors of their own."""
    sizes = getattr(experiment.encoders[wildcards.encoder], "matryoshka", None)
    return {"matryoshka": [*sizes]} if isinstance(sizes, tuple) else {}


def lora(experiment: Experiment, wildcards: Wildcards) -> Config:
    """Give the rank of the adapters that are trained; nothing if all weights are."""
    adapters = learner_of(experiment, place_of_model(wildcards)[0], wildcards).training.lora
    return {"lora_rank": adapters.rank} if adapters else {}


def epochs(experiment: Experiment, wildcards: Wildcards) -> Config:
    """Give the number of epochs for which training examples are sampled: one for validation."""
    model = learner_of(experiment, place_of_model(wildcards)[0], wildcards)
    return {"epochs": model.training.epochs if wildcards.split == "train" else 1}


# Indexes and runs.


def depth(experiment: Experiment, wildcards: Wildcards) -> Config:
    """Count the results per query of a split's runs; runs for tuning weights are as deep as evaluated ones."""
    for_training = wildcards.split == "train" or (wildcards.split == "validation" and not experiment.tuned_systems)
    return {"depth": experiment.training_depth if for_training else experiment.depth}


def dropped(experiment: Experiment, wildcards: Wildcards) -> Config:
    """Give which results of a split, by default of train, are dropped; nothing if none are."""
    split = experiment.splits[getattr(wildcards, "split", "train")]
    how = {key: value for key in ("ignore_own", "exclude") if (value := getattr(split, key))}
    return how | ({"aggregate": experiment.collection.aggregate} if how else {})


def run(experiment: Experiment, wildcards: Wildcards) -> Config:
    """Give the depth of a run and the options of its system; a re-ranker's own depth is that of the candidates."""
    system = experiment.systems[wildcards.system]
    left_out = {} if system.parts() else dropped(experiment, wildcards)
    return depth(experiment, wildcards) | left_out | system.options(wildcards.split)


def negatives(experiment: Experiment, wildcards: Wildcards) -> Config:
    """Give which results a model draws, and how a system and its parts make the run that has them."""
    model = next(models[wildcards.model] for models in experiment.models.values() if wildcards.model in models)
    if not isinstance(model, Learner):
        raise LookupError(f"negatives: found no training of {wildcards.model}")
    own = {key: value for key, value in plain(model.examples).items() if key in DRAWN}
    epochs = model.training.epochs if wildcards.split == "train" else 1
    made = searches(experiment, wildcards.system, wildcards.split, model.examples.last_rank)
    return {**own, "epochs": epochs, "searches": json.dumps(made, ensure_ascii=False)}


def searches(experiment: Experiment, name: str, split: str, depth: int) -> dict[str, Config]:
    """Say for `cort.negatives` how a system and its parts, which come after it, make their runs."""
    found = {}
    for part in experiment.with_parts([name]):
        system = experiment.systems[part]
        given, own = system.inputs(split), {"depth": depth, **system.options(split)}
        if not system.parts():
            own |= dropped(experiment, SimpleNamespace(split=split))
        for key in given.keys() & {"index", "model", "passages"}:
            own[key] = given[key] if key == "passages" else os.path.dirname(str(given[key]))
        queries = {"queries": given["queries"]} if "queries" in given else {}
        words = words_of({key: own[key] for key in sorted(own)})
        found[part] = {"rule": system.rule, "options": words, "runs": system.parts(), **queries}
    return found


def parts(experiment: Experiment, wildcards: Wildcards) -> list[str]:
    """List the systems that a run is made from: their order matters, and Snakemake compares inputs as a set."""
    return experiment.systems[wildcards.system].parts()


def ivfpq(experiment: Experiment, wildcards: Wildcards) -> Config:
    """Give the settings of the IVF-PQ index of an encoder or re-ranker."""
    ((section, name),) = exact_search(experiment, wildcards.encoder).models()
    settings: Config = experiment.config[section][name]["ivfpq"]
    return settings


def exact(experiment: Experiment, wildcards: Wildcards) -> Config:
    """Give the options of exact search over the vectors of an index."""
    return exact_search(experiment, wildcards.encoder).options(wildcards.split)


def weight(experiment: Experiment, wildcards: Wildcards) -> Config:
    """Give the weight of a re-ranker: from the config, or tuned."""
    given = experiment.systems[wildcards.system].options(wildcards.split)
    return {name: value for name, value in given.items() if name in ("weight", "tuned", "folded")}


def tuning(experiment: Experiment, wildcards: Wildcards) -> Config:
    """Give the options of the stage that tunes a system's weights; on generated queries, carefully."""
    system = experiment.systems[wildcards.system]
    if experiment.labels_of("validation" if system.learns() else wildcards.split) != "synthetic":
        return system.tuning()
    lexical = [part for part in system.parts() if experiment.systems[part].lexical_index()]
    return {**system.tuning(), "carefully": True, "lexical": lexical}


# What is measured and shown.


def audit(experiment: Experiment, wildcards: Wildcards) -> Config:
    """Give measures, depths and search widths of an audit."""
    audit, limit = experiment.root.audit, experiment.depth
    found = {
        "widths": getattr(audit, INDEXES[wildcards.index].audited),
        "depths": sorted({limit, *(depth for depth in audit.depths if depth < limit)}),
    }
    is_judged = experiment.is_judged(wildcards.split)
    return found | ({"measures": experiment.measures_of(wildcards.split)} if is_judged else {})


def scored_depths(experiment: Experiment, wildcards: Wildcards) -> Config:
    """Give how many candidates per query of each run a re-ranker scores."""
    return {"depths": [*experiment.reranked_by(wildcards.reranker, wildcards.split).values()]}


def curve_depths(experiment: Experiment, wildcards: Wildcards) -> Config:
    """Give the depths of a re-ranked system's curve."""
    return {"depths": experiment.curve_depths(wildcards.system)}


def compared_systems(experiment: Experiment, wildcards: Wildcards) -> Config:
    """Name the systems that are compared with the baseline, and pairs of these compared with each other."""
    related = {relation: _joined(couples) for relation, couples in pairs(experiment, wildcards.split).items()}
    return {"systems": experiment.compared(wildcards.split), **related}


def explored(experiment: Experiment, wildcards: Wildcards) -> Config:
    """Name the systems in the explorer."""
    return {"systems": experiment.on_split(wildcards.split)}


def whole_config(experiment: Experiment, wildcards: Wildcards) -> Config:
    """Give every setting that affects results, and the number of shards, as JSON."""
    return {"config": _as_json(experiment.config)}


def measured(experiment: Experiment, wildcards: Wildcards) -> Config:
    """Give the same of the systems whose latencies are measured."""
    latency = experiment.root.latency
    return {"settings": _as_json(needed_for(experiment, latency.systems if latency else []))}


def _as_json(config: Config) -> str:
    return json.dumps({"shards": config["shards"], **affecting_results(config)}, ensure_ascii=False)


def submission(experiment: Experiment, wildcards: Wildcards) -> Config:
    """Give the id of a TREC run (by default the submission's name); none for the leaderboard."""
    entry = experiment.root.submissions[wildcards.submission]
    return {"run_id": entry.run_id or wildcards.submission} if isinstance(entry, TrecRun) else {}


def deployment(experiment: Experiment, wildcards: Wildcards) -> Config:
    """Give how a deployed system merges its parts, k1, b and the language; tuned by folds, those of all queries."""
    found: Config = {}
    for name in experiment.with_parts([experiment.root.deploy[wildcards.deployment].system]):
        system = experiment.systems[name]
        found |= system.options("")
        if index := system.lexical_index():
            found["language"] = experiment.lexical[index].language
    # Engines have one normalisation, and the term-based part is the one that is named as BM25's.
    return {name: value for name, value in found.items() if name not in ("normalization", "term_based")}
