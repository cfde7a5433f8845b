"""Settings as params of rules: words of a command line whose repr, which Snakemake compares, is the config's values.

The code of a stage is a param, too, so that a change of the code reruns its rules. A part is a function of the
experiment and a job's wildcards that returns such words. Paths in the config have dots, and wildcards in braces:
"encoders.{encoder}.margin".
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from cort.experiment.comparisons import pairs
from cort.experiment.experiment import Experiment
from cort.experiment.keys import affecting_results
from cort.experiment.splits import pairs_of_splits, splits_apart
from cort.experiment.stored import needed_for
from cort.experiment.variants import DESCRIBED, OF_TRIPLES
from cort.retrieval.indexes import INDEXES
from cort.runtime.checksums import checksum
from cort.runtime.files import write_text
from cort.runtime.options import words_of
from cort.runtime.program import CACHE, ROOT, program_of
from cort.settings import paths
from cort.settings.config import (
    LEARNERS,
    TRAINING_SPLITS,
    Config,
    flat,
    is_sparse,
    one_or_more,
)
from cort.systems.base import Option
from cort.training.losses import ENCODER_OBJECTIVES, RERANKER_OBJECTIVES, Objectives, settings_of
from workflow import inputs
from workflow.inputs import Wildcards, entry_of

Part: TypeAlias = "Callable[[Experiment, Wildcards], Words]"

# Keys that define an encoder or re-ranker; for a released one, its files give them.
FRAMING = {
    "encoders": (
        *("pooling", "dimension", "query_length", "passage_length", "similarity", "projection"),
        *("query_segment", "passage_segment"),
    ),
    "rerankers": (
        *("kind", "head", "query_length", "max_length", "dimension", "similarity"),
        *("term_weights", "fill_queries", "skip_punctuation", "filters"),
    ),
}
# Further keys of released models.
ORIGIN = ("pretrained", "revision", "query_prompt", "passage_prompt", "query_prompt_name", "passage_prompt_name")
OBJECTIVES: dict[str, Objectives] = {"encoders": ENCODER_OBJECTIVES, "rerankers": RERANKER_OBJECTIVES}
# Keys that are no options of the stage: systems are inputs, and `epochs` belongs to the sampling of examples.
NO_OPTIONS = ("epochs", "gpus", "system")
# What the files of a folder contained when they were last read.
CONTENTS = Path(".snakemake/contents")


#: beginning of the repr of settings
SETTINGS = "settings "


class Words(list[str]):
    """Words of a command line; their repr, which Snakemake compares, is the settings they come from."""

    def __init__(self, words: Iterable[str] = (), settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(words)
        self.settings = dict(settings or {})

    def __repr__(self) -> str:
        return f"{SETTINGS}{json.dumps(self.settings, ensure_ascii=False)}"

    def __add__(self, other: list[str]) -> Words:  # type: ignore[override]
        return Words([*self, *other], {**self.settings, **getattr(other, "settings", {})})

    # That of a list would lose the settings.
    __iadd__ = __add__  # type: ignore[assignment]


def look_up(experiment: Experiment, path: str, wildcards: Wildcards) -> tuple[str, Any]:
    """Return a path in the config with its wildcards filled in, and its value."""
    keys = [key.format(**wildcards) if "{" in key else key for key in path.split(".")]
    value: Any = experiment.config
    for key in keys:
        value = value[int(key) if isinstance(value, list) else key]
    return ".".join(keys), value


def at(path: str, name: str | None = None) -> Part:
    """Give the value at a path as the option `name`, by default the path's last key."""

    def read(experiment: Experiment, wildcards: Wildcards) -> Words:
        place, value = look_up(experiment, path, wildcards)
        return Words(words_of(name or path.rpartition(".")[2], value), {place: value})

    return read


def optional(path: str) -> Part:
    """Give the value at a path, if it is set."""
    section, _, key = path.rpartition(".")

    def read(experiment: Experiment, wildcards: Wildcards) -> Words:
        return at(path)(experiment, wildcards) if key in look_up(experiment, section, wildcards)[1] else Words()

    return read


def among(section: str, *names: str) -> Part:
    """Give the values of some keys of a section as options of these names."""
    return join(*(f"{section}.{name}" for name in names))


def all_of(section: str, but: Iterable[str] = ()) -> Part:
    """Give all values of a section, except those of some keys, as options."""
    left_out = frozenset(but)

    def read(experiment: Experiment, wildcards: Wildcards) -> Words:
        place, values = look_up(experiment, section, wildcards)
        names = sorted(values.keys() - left_out)
        words = [word for name in names for word in words_of(name, values[name])]
        return Words(words, {f"{place}.{name}": values[name] for name in names})

    return read


def join(*parts: str | Part, **renamed: str) -> Part:
    """Join parts: paths, other parts, and paths of options with other names."""
    read_all = [at(part) if isinstance(part, str) else part for part in parts]
    read_all += [at(path, name) for name, path in renamed.items()]

    def read(experiment: Experiment, wildcards: Wildcards) -> Words:
        return sum((part(experiment, wildcards) for part in read_all), Words())

    return read


@functools.cache
def code_of(stage: str) -> dict[str, str]:
    """Hash each file that `stage` (``"fuse"``, or with a command ``"encode tokens"``) imports, by path.

    :raises ValueError: if there is no such stage.
    """
    # Snakemake creates this folder later.
    (ROOT / CACHE).parent.mkdir(exist_ok=True)
    code = program_of(f"cort.{stage}")
    if f"cort/{stage.split()[0]}.py" not in code:
        raise ValueError(f"workflow/rules: found code_of({stage!r}), expected a stage; name a module of cort/")
    return code


def read_code(param: str) -> dict[str, str] | None:
    """Read the code of a stage from the repr of a param; None for other params."""
    return dict(ast.literal_eval(param)) if param.startswith("{") and ".py'" in param else None


def framing(section: str) -> Part:
    """Give the keys that define a model; none for a `pretrained` one, whose base model has them."""

    def read(experiment: Experiment, wildcards: Wildcards) -> Words:
        entry = entry_of(experiment, section, wildcards)
        keys = [key for key in FRAMING[section] if key in entry and "pretrained" not in entry]
        return among(f"{section}.{{{section.removesuffix('s')}}}", *keys)(experiment, wildcards)

    return read


def cleaning(section: str) -> Part:
    """Give how the texts of a model are cleaned."""

    def read(experiment: Experiment, wildcards: Wildcards) -> Words:
        names = {"base_model": entry_of(experiment, section, wildcards)["base_model"]}
        return at("base_models.{base_model}.cleaning", "cleaning")(experiment, names)

    return read


def pretrained(section: str) -> Part:
    """Give type and origin of a released model, and the keys of the config that override its files."""
    model = section.removesuffix("s")
    possible = [*ORIGIN, *(key for key in ("kind", *FRAMING.get(section, ())) if key in {"kind", *DESCRIBED})]

    def read(experiment: Experiment, wildcards: Wildcards) -> Words:
        keys = [key for key in possible if key in entry_of(experiment, section, wildcards)]
        own = Words() if section in LEARNERS else Words(words_of("kind", model))
        return own + among(f"{section}.{{{model}}}", *keys)(experiment, wildcards)

    return read


def objective(section: str) -> Part:
    """Give a model's objective, and the settings of all objectives."""
    return among(f"{section}.{{{section.removesuffix('s')}}}", "loss", *settings_of(OBJECTIVES[section]))


def representation(experiment: Experiment, wildcards: Wildcards) -> Words:
    """Give the keys that define a trained encoder; of a sparse one also its FLOPS, and what encodes queries."""
    place, entry = "encoders.{encoder}", entry_of(experiment, "encoders", wildcards)
    if not is_sparse(entry):
        return framing("encoders")(experiment, wildcards)
    lengths = [key for key in ("query_length", "passage_length") if key in entry and "pretrained" not in entry]
    keys = among(place, "kind", "query_flops", "passage_flops", "flops_warmup", *lengths)
    return join(keys, query_encoder=f"{place}.queries")(experiment, wildcards)


def training(model: str) -> Part:
    """Give the settings of the training of the model at a path in the config."""
    return all_of(f"{model}.training", but=NO_OPTIONS)


def examples(model: str, source: str) -> Part:
    """Give the settings of a model's training examples, with the number of epochs to sample (one for validation)."""
    drawn = all_of(f"{model}.{source}", but=(*NO_OPTIONS, "file", *OF_TRIPLES))
    configured = at(f"{model}.training.epochs")

    def read(experiment: Experiment, wildcards: Wildcards) -> Words:
        epochs = configured(experiment, wildcards) if wildcards.split == "train" else Words(words_of("epochs", 1))
        return drawn(experiment, wildcards) + epochs

    return read


def released_examples(model: str, source: str) -> Part:
    """Give the selection from a file of released triples, and the number of epochs."""
    return join(among(f"{model}.{source}", *sorted(OF_TRIPLES)), f"{model}.training.epochs")


def collection(experiment: Experiment, wildcards: Wildcards) -> Words:
    """Give the source of passages or documents, how these are divided, and names of fields."""
    keys = [key for key in ("passages", "fields") if isinstance(experiment.config["collection"].get(key), dict)]
    source = experiment.source
    if source in ("folder", "irds", "hf"):
        words = join(f"collection.{source}", optional("collection.ids"))(experiment, wildcards)
    else:
        # The passages of a file, if queries are made of their titles or sentences, are documents that stay whole.
        files = inputs.origin_of_collection(experiment)
        words = Words(
            words_of("documents" if source else "passages", files), {f"collection.{source or 'passages'}": files}
        )
    sources = ["--output-sources", experiment.at(paths.IMPORT_SOURCES)] if source else []
    words = words + sources + join(*(all_of(f"collection.{key}") for key in keys))(experiment, wildcards)
    if origin := experiment.copied_from:
        keys = [f"splits.{name}.generate.from" for name in experiment.config["splits"]]
        table = ["--output-candidates", experiment.at(paths.CANDIDATES)]
        return words + Words(["--generate", origin, *table], dict.fromkeys(keys, origin))
    return words


def state_of_folder(experiment: Experiment) -> str:
    """Digest the contents of a folder of documents; files of the same size and time as before are not read again."""
    name = experiment.config["collection"].get("folder")
    if not name or not Path(name).is_dir():
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


def imported_split(experiment: Experiment, wildcards: Wildcards) -> Words:
    """Give the source of queries and judgements."""
    if "irds" in experiment.config["splits"][wildcards.split]:
        return join("splits.{split}.irds")(experiment, wildcards)
    return join("collection.hf", part="splits.{split}.hf")(experiment, wildcards)


def generated_split(experiment: Experiment, wildcards: Wildcards) -> Words:
    """Give the lengths of generated queries, and the splits that documents are divided among."""
    names = experiment.splits_with("generate")
    lengths = among("splits.{split}.generate", "min_words", "max_words")(experiment, wildcards)
    settings = {"splits": names, f"splits.{wildcards.split}.generate.from": experiment.generated_from}
    return lengths + Words(["--splits", *names, "--split", wildcards.split], settings)


def passage_queries(experiment: Experiment, wildcards: Wildcards) -> Words:
    """Give the splits for which an endpoint makes queries of passages, and their samples."""
    names = experiment.splits_with("generate")
    samples = {f"splits.{name}.sample": experiment.config["splits"][name]["sample"] for name in names}
    return Words([*words_of("splits", names), *words_of("samples", [*samples.values()])], samples)


def endpoint(experiment: Experiment, wildcards: Wildcards) -> Words:
    """Give the model, the file of its answers, and limits, which are no settings of results."""
    settings = experiment.config["endpoint"].items()
    limits = [word for name, value in settings if name != "model" for word in words_of(name, value)]
    return at("endpoint.model")(experiment, wildcards) + Words(["--cache", paths.ANSWERS, *limits])


def depth(experiment: Experiment, wildcards: Wildcards) -> Words:
    """Results per query of a split's runs; runs for tuning weights are as deep as evaluated ones."""
    for_training = wildcards.split == "train" or (wildcards.split == "validation" and not experiment.tuned_systems)
    return at("training_depth" if for_training else "depth", "depth")(experiment, wildcards)


def dropped(split: str) -> Part:
    """Give which results of a split are dropped; nothing if none are."""

    def read(experiment: Experiment, wildcards: Wildcards) -> Words:
        name = split.format(**wildcards)
        keys = [key for key in ("ignore_own", "exclude") if experiment.config["splits"][name].get(key)]
        how = join("collection.aggregate")(experiment, wildcards) if keys else Words()
        return among(f"splits.{name}", *keys)(experiment, wildcards) + how

    return read


def results(experiment: Experiment, wildcards: Wildcards) -> Words:
    """Give how many results a search returns, and which are dropped."""
    return depth(experiment, wildcards) + dropped("{split}")(experiment, wildcards)


def selection(experiment: Experiment, wildcards: Wildcards) -> Words:
    """Which queries a split keeps, and which ones are held out of train."""
    splits = experiment.config["splits"]
    split, name = splits[wildcards.split], experiment.files_of_split(wildcards.split)
    held = [name for name, other in splits.items() if "hold_out" in other]
    parts = [f"splits.{name}.numbered", *([f"splits.{name}.topics.field"] if "topics" in splits[name] else [])]
    if experiment.is_judged(wildcards.split):
        parts += ["splits.{split}.unjudged_queries", "splits.{split}.unknown"]
    sampled = "sample" in split and split.get("generate", {}).get("from") != "endpoint"
    parts += ["splits.{split}.sample"] if sampled else []
    part = []
    if held and wildcards.split in (*held, "train"):
        parts.append(f"splits.{held[0]}.hold_out")
        part += ["--part", "held-out" if wildcards.split in held else "rest"]
    parts += ["seed"] if part or sampled else []
    # Both parts of train are drawn from the same queries.
    part += ["--for-training"] if wildcards.split in (*TRAINING_SPLITS, *held) else []
    return join(*parts)(experiment, wildcards) + Words(part)


def inspection(experiment: Experiment, wildcards: Wildcards) -> Words:
    """Give the splits, pairs that are compared, and what the passages should fit: lengths of encoders, languages."""
    pairs = [f"{first}={second}" for first, second in pairs_of_splits(experiment)]
    apart = [f"{first}={second}" for first, second in splits_apart(experiment)]
    config, splits = experiment.config, [*experiment.config["splits"]]
    words = words_of("splits", splits) + words_of("pairs", pairs) + words_of("apart", apart)
    settings: dict[str, Any] = {"splits": [*splits, *pairs, *apart]}
    lengths = {name: "passage_length" for name in experiment.used_models("encoders")}
    for name, section, keys in (
        ("own", "splits", dict.fromkeys(splits, "ignore_own")),
        ("limits", "encoders", lengths),
        ("languages", "lexical", dict.fromkeys(config["lexical"], "language")),
    ):
        values = {entry: config[section][entry].get(key) for entry, key in keys.items()}
        settings |= {f"{section}.{entry}.{keys[entry]}": value for entry, value in values.items()}
        words += words_of(
            name, [entry if value is True else f"{entry}={value}" for entry, value in values.items() if value]
        )
    return Words(words, settings)


def base_model(experiment: Experiment, wildcards: Wildcards) -> Words:
    """Origin of a base model: a pretrained one, or an architecture and the passages."""
    model = experiment.config["base_models"][wildcards.base_model]
    place = "base_models.{base_model}"
    if "pretrained" in model:
        return among(place, *(key for key in ("pretrained", "revision") if key in model))(experiment, wildcards)
    words = words_of("architecture", json.dumps(model["architecture"], sort_keys=True))
    words += words_of("passages", experiment.at(paths.PASSAGES))
    architecture = Words(words, flat(model["architecture"], f"{place.format(**wildcards)}.architecture"))
    return among(place, "vocabulary_size", "embeddings", "cleaning")(experiment, wildcards) + architecture


def of_run(experiment: Experiment, wildcards: Wildcards) -> Words:
    """Give inputs and options of the stage that makes a system's run; a file of an index or model gives its folder."""
    system = experiment.systems[wildcards.system]
    options = system.options(wildcards.split)
    words = _words(options)
    if not system.parts():
        words = words + results(experiment, wildcards)
    # A re-ranker's own depth is that of the candidates.
    elif all(option.name != "depth" for option in options):
        words = words + depth(experiment, wildcards)
    # Tuned weights and audits are options already.
    given, files = [option.value for option in options], list[str]()
    for name, listed in inputs.of_system(experiment, wildcards).items():
        left = [file for file in one_or_more(listed) if file not in given]
        files += words_of(name, [os.path.dirname(file) if name in ("index", "model") else file for file in left])
    return Words(files) + words


def ivfpq(experiment: Experiment, wildcards: Wildcards) -> Words:
    """Give the settings of the IVF-PQ index of an encoder or re-ranker."""
    ((section, name),) = inputs.searched_exactly(experiment, wildcards).models()
    return all_of(f"{section}.{name}.ivfpq")(experiment, wildcards)


def of_exact_search(experiment: Experiment, wildcards: Wildcards) -> Words:
    """Give the options of exact search over the vectors of an index."""
    return _words(inputs.searched_exactly(experiment, wildcards).options(wildcards.split))


def weight(experiment: Experiment, wildcards: Wildcards) -> Words:
    """Weight of a re-ranker: from the config, or tuned."""
    options = experiment.systems[wildcards.system].options(wildcards.split)
    return _words([option for option in options if option.name in ("weight", "tuned", "folded")])


def tuning(experiment: Experiment, wildcards: Wildcards) -> Words:
    """Give the options of the rule that tunes a system's weights; on generated queries, carefully."""
    system = experiment.systems[wildcards.system]
    split, carefully = "validation" if system.learns() else wildcards.split, list[Option]()
    if experiment.labels_of(split) == "synthetic":
        lexical = [part for part in system.parts() if experiment.systems[part].lexical_index()]
        carefully = [Option("carefully", True), Option("lexical", lexical)]
    return _words([*system.tuning(), *carefully])


def deployment(experiment: Experiment, wildcards: Wildcards) -> Words:
    """Give how a deployed system merges its parts, k1, b and the language; tuned by folds, those of all queries."""
    names = experiment.with_parts([experiment.config["deploy"][wildcards.deployment]["system"]])
    options = [option for name in names for option in experiment.systems[name].options("")]
    for index in filter(None, (experiment.systems[name].lexical_index() for name in names)):
        options.append(Option("language", experiment.config["lexical"][index]["language"], f"lexical.{index}.language"))
    # Engines have one normalisation, and the term-based part is the one that is named as BM25's.
    return _words([option for option in options if option.name not in ("normalization", "term_based")])


def _words(options: list[Option]) -> Words:
    words = [word for name, value, _ in options if name for word in words_of(name, value)]
    return Words(words, {place: value for _, value, place in options if place})


def audit(experiment: Experiment, wildcards: Wildcards) -> Words:
    """Measures, depths, search widths and queries of an audit."""
    config, split = experiment.config, wildcards.split
    depths = sorted({config["depth"], *(depth for depth in config["audit"]["depths"] if depth < config["depth"])})
    measures = "splits.{split}.measures" if "measures" in config["splits"][split] else "evaluation.measures"
    words = join(
        *([measures] if experiment.is_judged(split) else []),
        "splits.{split}.relevance_level",
        "seed",
        widths=f"audit.{INDEXES[wildcards.index].audited}",
        sample="audit.queries",
    )(experiment, wildcards)
    return words + Words(words_of("depths", depths), {"audit.depths": depths})


def scored_depths(experiment: Experiment, wildcards: Wildcards) -> Words:
    """Give how many candidates per query of each run a re-ranker scores."""
    depths = experiment.reranked_by(wildcards.reranker, wildcards.split)
    return Words(words_of("depths", [*depths.values()]), {f"rerankers.{wildcards.reranker}.depth": depths})


def curve_depths(experiment: Experiment, wildcards: Wildcards) -> Words:
    """Depths of a re-ranked system's curve."""
    depths = experiment.curve_depths(wildcards.system)
    return Words(words_of("depths", depths), {"evaluation.depths": depths})


def compared_systems(experiment: Experiment, wildcards: Wildcards) -> Words:
    """Names of the systems that are compared with the baseline, and pairs of these compared with each other."""
    names, related = experiment.compared(wildcards.split), pairs(experiment, wildcards.split)
    words = [
        word for relation, listed in related.items() for word in words_of(relation, [f"{a}={b}" for a, b in listed])
    ]
    systems = {"compared": names, "parts": related["parts"], "starts": related["starts"]}
    return Words(
        [*words_of("systems", names), *words], {"systems": systems, "evaluation.contrasts": related["contrasts"]}
    )


def explored(experiment: Experiment, wildcards: Wildcards) -> Words:
    """Names of the systems in the explorer."""
    names = experiment.on_split(wildcards.split)
    return Words(words_of("systems", names), {"systems": names})


def whole_config(experiment: Experiment, wildcards: Wildcards) -> Words:
    """Return every setting that affects results, and the number of shards, as JSON."""
    return _as_json("config", experiment.config)


def measured(experiment: Experiment, wildcards: Wildcards) -> Words:
    """Return the same of the systems whose latencies are measured."""
    return _as_json("settings", needed_for(experiment, experiment.config["latency"]["systems"]))


def _as_json(name: str, config: Config) -> Words:
    settings = {"shards": config["shards"], **affecting_results(config)}
    return Words(words_of(name, json.dumps(settings, ensure_ascii=False)), flat(settings))


def submission(experiment: Experiment, wildcards: Wildcards) -> Words:
    """Give the id of a TREC run (by default the submission's name); none for the leaderboard."""
    place = f"submissions.{wildcards.submission}"
    entry = experiment.config["submissions"][wildcards.submission]
    form, run_id = entry["form"], entry.get("run_id", wildcards.submission)
    if form != "trec":
        return Words((), {f"{place}.form": form})
    return Words(words_of("run_id", run_id), {f"{place}.form": form, f"{place}.run_id": run_id})
