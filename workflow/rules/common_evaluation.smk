"""The helpers of the rules that evaluate, compare, report and hand in runs."""

from pathlib import Path

from workflow.experiment.config import (
    FUSION_KINDS,
    LEARNERS,
    evaluated_splits,
    graphs_of,
    is_trained,
    kind_of,
    section_of,
    splits_of,
    systems_with,
    trained_models,
)
from workflow.experiment.online import latency_file, manifest_options, searched_files
from workflow.experiment.outputs import (
    consistency_files,
    export_files,
    reproduction_files,
    run_id_of,
    submission_files,
)
from workflow.experiment.papers import names_of_files

# Settings of an encoder or re-ranker that its file is the same without.
NOT_OF_THE_MODEL = {"onng", "hnsw", "storage", "precision", "depth"}


def pairs_of_split_and_system(*kinds):
    """(split, system) of all evaluated runs, of some kinds only if any is named."""
    return [
        (split, name)
        for split in evaluated_splits(config)
        for name, system in config["systems"].items()
        if split in splits_of(config, name) and (not kinds or kind_of(system) in kinds)
    ]


def get_measures(dataset):
    """Measures of every system on every evaluated split."""
    return [f"results/{dataset}/measures/{split}/{name}.json" for split, name in pairs_of_split_and_system()]


def get_comparisons(dataset):
    """Comparisons with the baseline, on every evaluated split that it and another system have runs for."""
    splits = dict.fromkeys(split for split in evaluated_splits(config) if len(compared(split)) > 1)
    return [f"results/{dataset}/comparisons/{split}.json" for split in splits]


def compared(split):
    """Systems of a split's comparison; none without the baseline."""
    names = [name for name in config["systems"] if split in splits_of(config, name)]
    return names if config["evaluation"]["baseline"] in names else []


def get_compared(folder, suffix):
    """A file of each system that is compared."""

    def get(wildcards):
        names = compared(wildcards.split)
        return [f"results/{wildcards.dataset}/{folder}/{wildcards.split}/{name}{suffix}" for name in names]

    return get


def get_audits(dataset):
    """Audits of every graph index on every evaluated split that it is searched on."""
    return [
        f"results/{dataset}/audit/{split}/{encoder}.{kind}.json"
        for split in evaluated_splits(config)
        for encoder, kind in graphs_of(config, split)
    ]


def get_depth_curves(dataset):
    """Curves of every re-ranked system on every evaluated split."""
    return [f"results/{dataset}/depths/{split}/{name}.json" for split, name in pairs_of_split_and_system("rerank")]


def get_curve_depths(wildcards):
    """Depths of the curve, the last one that of what was scored."""
    reranker = config["systems"][wildcards.system]["reranker"]
    limit = min(config["rerankers"][reranker]["depth"], config["depth"])
    return sorted({limit, *(depth for depth in config["evaluation"]["depths"] if depth < limit)})


def get_contender(config):
    """First system that merges runs: what the report's headline compares with the baseline."""
    names = [name for name, system in config["systems"].items() if kind_of(system) in FUSION_KINDS]
    return ["--contender", names[0]] if names else []


def get_disagreements(dataset):
    """Examples of every evaluated split that has runs of both systems."""
    both = config["evaluation"]["disagreements"]
    splits = [split for split in evaluated_splits(config) if all(split in splits_of(config, name) for name in both)]
    return [f"results/{dataset}/disagreements/{split}.json" for split in splits] if both else []


def get_consistency_reference(wildcards):
    """Run that others are compared with."""
    reference = config["evaluation"]["consistency"]["reference"]
    return f"results/{wildcards.dataset}/runs/{wildcards.split}/{reference}.trec"


def get_latencies(dataset):
    """Latencies that are measured here, and those that somebody put beside them."""
    found = map(str, Path(f"results/{dataset}/latency").glob("*.json"))
    return sorted({*latency_file(config), *found})


def get_shards(encoder):
    """All passage shards of an encoder."""
    return gather.encode(f"results/{config['dataset']}/embeddings/{encoder}/passages.{{scatteritem}}.arrow")


def get_manifest_options(wildcards):
    """Options that say what a searcher opens."""
    return manifest_options(config, get_shards)


def get_searched_files(wildcards):
    """What is opened to measure latencies."""
    return searched_files(config, get_shards)


def get_reproduction_files():
    """Tables and figures of all papers."""
    return reproduction_files({Path(path).stem: names_of_files(path) for path in config["papers"]})


def get_reproduction(dataset):
    """The comparison with published numbers, if any are named."""
    return [f"results/{dataset}/report/reproduction/reproduction.json"] if config["papers"] else []


def get_submitted(path):
    """A file that a submission is made of: `path` in the results, of its system and split."""

    def get(wildcards):
        submission = config["submissions"][wildcards.submission]
        return f"results/{wildcards.dataset}/{path.format(**submission)}"

    return get


def get_run_id(wildcards):
    """Option for the id of a TREC run."""
    submission = config["submissions"][wildcards.submission]
    return ["--run-id", run_id_of(config, wildcards.submission)] if submission["form"] == "trec" else []


def get_curves(dataset):
    """Training curves by name."""
    return {
        name: f"results/{dataset}/{section}/{name}/curve.csv"
        for section in LEARNERS
        for name in trained_models(config, section)
    }


def get_filters(dataset):
    """Counts of what was dropped, by a title."""
    found = {"docstrings": f"results/{dataset}/raw/filters.json"} if "pydocs" in config["collection"] else {}
    for section, (_, source) in LEARNERS.items():
        for name in trained_models(config, section):
            found[f"{source} of {name}"] = f"results/{dataset}/{source}/{name}.train.json"
    return found


def get_exported(wildcards):
    """Weights of an exported model."""
    section = section_of(config, wildcards.model)
    kept = config[section][wildcards.model]["checkpoint"]
    return f"results/{wildcards.dataset}/{section}/{wildcards.model}/{kept}/model.safetensors"


def export_counts(wildcards):
    """Counts of the training examples of an exported model, by split; none of one that was not trained here."""
    section = section_of(config, wildcards.model)
    if wildcards.model not in trained_models(config, section):
        return {}
    source = LEARNERS[section][1]
    return {split: f"results/{wildcards.dataset}/{source}/{wildcards.model}.{split}.json" for split in TRAINING_SPLITS}


def get_export_counts(wildcards):
    """Files of these counts."""
    return list(export_counts(wildcards).values())


def get_export_count_words(wildcards):
    """The same as SPLIT=FILE words."""
    return named(export_counts(wildcards))


def get_export_measures(wildcards):
    """Measures of the systems that an exported model is part of."""
    return [
        f"results/{wildcards.dataset}/measures/{split}/{name}.json"
        for split in evaluated_splits(config)
        for name in systems_with(config, wildcards.model)
        if split in splits_of(config, name)
    ]


def get_export_settings(wildcards):
    """Options that tell an exported model's card where the model comes from."""
    section = section_of(config, wildcards.model)
    schema = load_schema()["properties"][section]["additionalProperties"]
    own = config[section][wildcards.model]
    left_out = NOT_OF_THE_MODEL | (set() if is_trained(own) else OF_TRAINING)
    settings = {key: value for key, value in deciding(own, schema).items() if key not in left_out}
    base_model = config["base_models"][own["base_model"]]
    words = ["--settings", json.dumps({**settings, "seed": config["seed"]}), "--cleaning", base_model["cleaning"]]
    if is_on_hub(base_model):
        words += ["--hub-name", base_model["pretrained"], "--revision", base_model["revision"]]
    return words


def named(files):
    """NAME=FILE words of a mapping."""
    return [f"{name}={file}" for name, file in files.items()]


def get_disagreements_pair(position):
    """Run of the first or second system whose disagreements are shown."""

    def get(wildcards):
        name = config["evaluation"]["disagreements"][position]
        return f"results/{wildcards.dataset}/runs/{wildcards.split}/{name}.trec"

    return get
