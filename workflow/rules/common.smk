"""The config, wildcard constraints, and the helpers of the rules that make runs."""

import json
import os
import signal
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

from workflow.experiment.checks import (
    OF_TRAINING,
    ConfigError,
    check_duplicate_keys,
    complete,
    load_schema,
)
from workflow.experiment.config import (
    LEARNERS,
    TRAINING_SPLITS,
    deciding,
    GRAPHS,
    describe,
    encoders_pattern,
    fusion_of,
    is_judged,
    kind_of,
    names_of_kind,
    parts_of,
    published_run,
    reranked_by,
    used_models,
)
from workflow.lock import guard
from workflow.experiment.papers import check_papers

# Jobs run the Python that runs Snakemake, whether its environment was activated or not.
os.environ.update(PATH=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()]))

# SLURM warns all processes of a job of its time limit (profiles/slurm): who cannot use the warning must not die of it.
# Stages inherit this; one that can save its work handles the signal.
signal.signal(signal.SIGUSR1, signal.SIG_IGN)

# No shell between Snakemake and a stage: signals reach the stage, and its end is the job's. So each rule is one command.
shell.prefix("set -euo pipefail; exec ")

try:
    for file in workflow.configfiles:
        check_duplicate_keys(file)
    config.update(complete(config, str(workflow.configfiles[-1]) if workflow.configfiles else "config"))
    check_papers(config["papers"])
except ConfigError as error:
    raise WorkflowError(str(error)) from None

guard(workflow, config["dataset"])


wildcard_constraints:
    dataset=config["dataset"],
    split="|".join(config["splits"]),
    system="[^/]+",
    encoder="[^/]+",
    reranker="[^/]+",
    model="[^/]+",
    index="|".join(GRAPHS),
    base_model="[^/]+",
    text=r"passages|queries\.[^/]+",


def setting(*path):
    """Value of the config at `path`, in which "{encoder}" and the like stand for wildcards."""

    def get(wildcards):
        value = config
        for key in path:
            value = value[key.format(**wildcards)]
        return value

    return get


def options(section, *names):
    """Long options of a stage for the config values `names` of a section given like `setting`'s path."""

    def get(wildcards):
        values = setting(*section)(wildcards)
        return [word for name in names for word in (f"--{name.replace('_', '-')}", str(values[name]))]

    return get


MODEL_FILES = (
    "model.safetensors",
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
)
MODEL_SUFFIXES = (".json", ".safetensors", ".txt", ".model")
HNSW_FILES = ("meta.json", "ids.arrow", "graph.hnsw")
ONNG_FILES = ("meta.json", "ids.arrow", "grp", "obj", "prf", "robj", "tre")
TRAINING_NAMES = (
    "batch_size",
    "gradient_accumulation",
    "learning_rate",
    "weight_decay",
    "decay",
    "warmup_updates",
    "validate_every",
    "max_gradient_norm",
    "precision",
    "tokens_at_once",
    "gradient_checkpointing",
    "adam_epsilon",
    "best_model_metric",
    "pool_depth",
    "patience",
    "compile",
)


def get_raw_passages(wildcards):
    """File the collection is built from."""
    default = f"results/{wildcards.dataset}/raw/collection.tsv"
    return config["collection"].get("passages", default)


def get_raw_split(kind):
    """File of `kind` ("queries" or "qrels") a split is built from; a held-out split is a part of train."""

    def get(wildcards):
        split = config["splits"][wildcards.split]
        if "hold_out" in split:
            split = config["splits"]["train"]
        if kind == "qrels" and not is_judged(config, wildcards.split):
            return []
        return split.get(kind, f"results/{wildcards.dataset}/raw/{kind}.{wildcards.split}.tsv")

    return get


def get_raw_inputs(dataset):
    """Every file the results of the experiment were made from that the workflow did not make."""
    pydocs = "pydocs" in config["collection"]
    files = ["requirements.lock"] if pydocs else [config["collection"]["passages"]]
    files += [split[kind] for split in config["splits"].values() for kind in ("queries", "qrels") if kind in split]
    for split, name in pairs_of_split_and_system("run"):
        files.append(published_run(config["systems"][name], split))
    for model in config["base_models"].values():
        files += pretrained_files(model)
    files += [encoder["released"] for encoder in config["encoders"].values() if "released" in encoder]
    files += config["papers"]
    return list(dict.fromkeys(files))


def get_excluded(wildcards):
    """Queries a split must not have: those of another split. A held-out split is drawn from what train may have."""
    split = config["splits"][wildcards.split]
    if "hold_out" in split:
        split = config["splits"]["train"]
    return f"results/{wildcards.dataset}/collection/queries.{split['without']}.parquet" if "without" in split else []


def get_selection(wildcards):
    """Options that say which of its queries a split has."""
    split = config["splits"][wildcards.split]
    options = ["--unjudged-queries", split["unjudged_queries"]] if is_judged(config, wildcards.split) else []
    if "sample" in split:
        options += ["--sample", str(split["sample"]), "--seed", str(config["seed"])]
    return options


def get_settings(wildcards):
    """Every setting that decides results, as JSON."""
    return json.dumps(deciding(config, load_schema()), sort_keys=True)


def get_hold_out(wildcards):
    """Options that part the held-out queries from those of train."""
    held = [name for name, split in config["splits"].items() if "hold_out" in split]
    if not held or wildcards.split not in (*held, "train"):
        return []
    part = "held-out" if wildcards.split in held else "rest"
    return [
        *("--hold-out", str(config["splits"][held[0]]["hold_out"])),
        *("--part", part),
        *("--seed", str(config["seed"])),
    ]


def get_depth(wildcards):
    """Results per query of a split's runs."""
    return config["training_depth" if wildcards.split in TRAINING_SPLITS else "depth"]


def get_bm25_parameters(wildcards):
    """Options for (k1, b): the system's own, or those of the config, or the grid search's."""
    bm25 = config["bm25"] | config["systems"][wildcards.system].get("bm25", {})
    if "k1" not in bm25:
        return ["--parameters", f"results/{wildcards.dataset}/bm25/parameters.json"]
    return ["--k1", str(bm25["k1"]), "--b", str(bm25["b"])]


def get_tuned(wildcards):
    """The grid search's choice, if it is asked for."""
    own = "bm25" in config["systems"][wildcards.system]
    return f"results/{wildcards.dataset}/bm25/parameters.json" if "tune" in config["bm25"] and not own else []


def get_base_model_source(wildcards):
    """Options for a pretrained model, or for one from scratch."""
    model = config["base_models"][wildcards.base_model]
    if "pretrained" in model:
        revision = ["--revision", model["revision"]] if "revision" in model else []
        return ["--pretrained", model["pretrained"], *revision]
    return [
        *("--architecture", json.dumps(model["architecture"], sort_keys=True)),
        *("--vocabulary-size", str(model["vocabulary_size"])),
        *("--passages", f"results/{wildcards.dataset}/collection/passages.parquet"),
        *("--cleaning", model["cleaning"]),
    ]


def get_base_model_files(wildcards):
    """Files a base model is made from: a pretrained folder's, or the passages its tokenizer is trained on."""
    model = config["base_models"][wildcards.base_model]
    if "pretrained" not in model:
        return f"results/{wildcards.dataset}/collection/passages.parquet"
    return pretrained_files(model)


def pretrained_files(model):
    """Files of a pretrained base model's folder; none for a hub name, whose revision says all."""
    folder = Path(model["pretrained"]) if "pretrained" in model else None
    return sorted(str(path) for path in folder.glob("*") if path.suffix in MODEL_SUFFIXES) if folder else []


def is_on_hub(model):
    """Tell whether a base model is one of the hub, which has a name and a revision."""
    return "revision" in model and not Path(model["pretrained"]).is_dir()


def learner(section, wildcards):
    """Name of the encoder or re-ranker a rule is about."""
    return wildcards.encoder if section == "encoders" else wildcards.reranker


def base_model_of(section):
    """The base model of an encoder or re-ranker."""

    def get(wildcards):
        model = config[section][learner(section, wildcards)]
        return f"results/{wildcards.dataset}/base_models/{model['base_model']}/model.safetensors"

    return get


def tokens_of(section, text):
    """Token cache of `text` for an encoder or re-ranker."""

    def get(wildcards):
        model = config[section][learner(section, wildcards)]
        name = text.format(**wildcards)
        return f"results/{wildcards.dataset}/tokens/{model['base_model']}/{name}.arrow"

    return get


def teacher_of(section, source):
    """Run of the system whose results give the negatives of an encoder or re-ranker."""

    def get(wildcards):
        model = config[section][learner(section, wildcards)]
        return f"results/{wildcards.dataset}/runs/{wildcards.split}/{model[source]['system']}.trec"

    return get


def checkpoint_of(section):
    """Weights of an encoder or re-ranker: of its best or its last model."""

    def get(wildcards):
        name = learner(section, wildcards)
        kept = config[section][name]["checkpoint"]
        return f"results/{wildcards.dataset}/{section}/{name}/{kept}/model.safetensors"

    return get


def guarded(files):
    """Files of trained models, write-protected if the experiment asks for it."""
    return protected(files) if config["protect"] else files


def judgements_for_loss(split):
    """Judgements for a loss that recognises all relevant passages of a batch."""

    def get(wildcards):
        encoder = config["encoders"][wildcards.encoder]
        selects = split == "validation" and encoder["training"]["best_model_metric"] != "loss"
        needed = encoder["loss"] in ("multilabel_margin", "info_nce") or selects
        return f"results/{wildcards.dataset}/collection/qrels.{split}.parquet" if needed else []

    return get


def for_selection(section, path):
    """A file of the validation queries, for a best model that is chosen by a measure: `path` in the results."""

    def get(wildcards):
        model = config[section][learner(section, wildcards)]
        system = model[LEARNERS[section][1]]["system"]
        by_measure = model["training"]["best_model_metric"] != "loss"
        return f"results/{wildcards.dataset}/{path.format(system=system)}" if by_measure else []

    return get


def teacher_scores(split):
    """Scores that an encoder's teacher gives the pairs of its triples."""

    def get(wildcards):
        encoder, name = config["encoders"][wildcards.encoder], wildcards.encoder
        path = f"results/{wildcards.dataset}/scores/{encoder.get('teacher')}/triples/{name}.{split}.parquet"
        return path if "teacher" in encoder else []

    return get


def get_start(wildcards):
    """Weights of the encoder that one starts from."""
    start = config["encoders"][wildcards.encoder].get("start")
    if start is None:
        return []
    kept = config["encoders"][start]["checkpoint"]
    return f"results/{wildcards.dataset}/encoders/{start}/{kept}/model.safetensors"


def get_epochs(section):
    """Epochs to sample: all for training, one for validation."""

    def get(wildcards):
        name = learner(section, wildcards)
        return config[section][name]["training"]["epochs"] if wildcards.split == "train" else 1

    return get


def get_vectors(wildcards):
    """All passage shards of the encoder a system retrieves with."""
    encoder = config["systems"][wildcards.system]["retrieve"]
    return gather.encode(f"results/{wildcards.dataset}/embeddings/{encoder}/passages.{{scatteritem}}.arrow")


def get_query_vectors(wildcards):
    """Query vectors of the encoder a system retrieves with."""
    encoder = config["systems"][wildcards.system]["retrieve"]
    return f"results/{wildcards.dataset}/embeddings/{encoder}/queries.{wildcards.split}.arrow"


def get_index(wildcards):
    """Graph index of the encoder a system retrieves with."""
    system = config["systems"][wildcards.system]
    return f"results/{wildcards.dataset}/{kind_of(system)}/{system['retrieve']}/meta.json"


def get_audit(wildcards):
    """Audit that chooses the width of a system's searches: of the validation queries, or else of the split's own."""
    system = config["systems"][wildcards.system]
    kind, encoder = kind_of(system), system["retrieve"]
    split = "validation" if "validation" in config["splits"] else wildcards.split
    audit = f"results/{wildcards.dataset}/audit/{split}/{encoder}.{kind}.json"
    return audit if system[kind][GRAPHS[kind].width] == "auto" else []


def get_width(wildcards):
    """Options for the width of a system's searches: the config's own, or the recall an audit is to show."""
    system = config["systems"][wildcards.system]
    kind = kind_of(system)
    audit = get_audit(wildcards)
    if audit:
        return ["--audit", audit, "--recall", str(system[kind]["recall"])]
    return ["--width", str(system[kind][GRAPHS[kind].width])]


def get_audit_settings(wildcards):
    """Options that say what an audit measures on which queries."""
    audit, split = config["audit"], config["splits"][wildcards.split]
    depth = config["depth"]
    depths = sorted({depth, *(one for one in audit["depths"] if one < depth)})
    return [
        *("--widths", *map(str, audit[GRAPHS[wildcards.index].widths])),
        *("--depths", *map(str, depths)),
        *("--measures", *split.get("measures", config["evaluation"]["measures"])),
        *("--relevance-level", str(split["relevance_level"])),
        *([] if audit["queries"] is None else ["--sample", str(audit["queries"])]),
    ]


def get_kind(wildcards):
    """Kind of graph index that a system searches."""
    return kind_of(config["systems"][wildcards.system])


def get_fusion(wildcards):
    """How the runs of a system are merged."""
    return fusion_of(config["systems"][wildcards.system])


def get_order(wildcards):
    """Systems whose runs a system merges, the first-named first."""
    return parts_of(config["systems"][wildcards.system])


def get_fused(wildcards):
    """Runs a system merges, the first-named first."""
    names = get_order(wildcards)
    return [f"results/{wildcards.dataset}/runs/{wildcards.split}/{name}.trec" for name in names]


def get_candidates(wildcards):
    """Run a system re-ranks."""
    name = config["systems"][wildcards.system]["rerank"]
    return f"results/{wildcards.dataset}/runs/{wildcards.split}/{name}.trec"


def get_scores(wildcards):
    """Scores of the pairs a system re-ranks."""
    reranker = config["systems"][wildcards.system]["reranker"]
    return f"results/{wildcards.dataset}/scores/{reranker}/{wildcards.split}.parquet"


def get_all_candidates(wildcards):
    """Runs whose candidates a re-ranker scores."""
    return [
        f"results/{wildcards.dataset}/runs/{wildcards.split}/{name}.trec"
        for name in reranked_by(config, wildcards.reranker, wildcards.split)
    ]


def get_published_run(wildcards):
    """File of a published run for a split."""
    return published_run(config["systems"][wildcards.system], wildcards.split)
