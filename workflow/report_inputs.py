"""Inputs of the rules that evaluate, report and export, and the outputs of an experiment.

As in `workflow/inputs.py`, the config comes first and the wildcards last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from cort.experiment.checks import ConfigError
from cort.experiment.config import compared, evaluated_runs, has_curve, on_split, ranked_runs, splits_of, tuned_systems
from cort.experiment.deployment import checked_split, deployed_parts
from cort.experiment.models import indexes_of, named_models, trainings, used_models
from cort.reporting.reproduction.paper import find_mistakes, read_paper
from cort.settings import paths
from cort.settings.config import (
    LEARNERS,
    Config,
    copied_from,
    evaluated_splits,
    generated_from,
    is_judged,
    is_sparse,
    source_of,
    splits_with,
    title_of_split,
    unjudged_splits,
)
from cort.systems.base import Results
from cort.systems.registry import all_systems, system_of
from workflow.params import Wildcards

TABLES = ("csv", "md", "tex")
SUFFIXES = {"msmarco": "tsv", "trec": "trec"}


def of_systems(config: Config, path: str) -> list[str]:
    """Return a file of each evaluated run."""
    return [paths.at(path, config, split=split, system=name) for split, name in evaluated_runs(config)]


def depths(config: Config) -> list[str]:
    """Curves by the number of re-ranked candidates, of all evaluated runs that have one."""
    pairs = [(split, name) for split, name in evaluated_runs(config) if has_curve(config, name)]
    return [paths.at(paths.DEPTHS, config, split=split, system=name) for split, name in pairs]


def of_compared(config: Config, path: str, wildcards: Wildcards) -> list[str]:
    """Return a file of each system that is compared with the baseline."""
    names = compared(config, wildcards.split)
    return [paths.at(path, config, split=wildcards.split, system=name) for name in names]


def of_split(config: Config, path: str, wildcards: Wildcards) -> list[str]:
    """Return a file of each system that has a run for a split."""
    return [paths.at(path, config, split=wildcards.split, system=name) for name in on_split(config, wildcards.split)]


def explorers(config: Config) -> list[str]:
    """Pages of the explorer, one per ranked split."""
    return [*dict.fromkeys(paths.at(paths.EXPLORER, config, split=split) for split, _ in ranked_runs(config))]


def measured_of_split(config: Config, wildcards: Wildcards) -> list[str]:
    """Measures per query of each system on a split, if it has judgements."""
    return of_split(config, paths.PER_QUERY, wildcards) if is_judged(config, wildcards.split) else []


def overlaps(config: Config) -> list[str]:
    """Overlaps of systems on the splits without judgements."""
    splits = [split for split in unjudged_splits(config) if on_split(config, split)]
    return [paths.at(paths.OVERLAP, config, split=split) for split in splits]


def computed_in_auto(config: Config, shards: int) -> list[str]:
    """Return a shard of the vectors, or the scores, of each model whose precision a machine chooses."""
    files = []
    for split, run in ranked_runs(config):
        system = system_of(config, run, Results(config, shards))
        for section, name in system.models():
            scores = paths.at(paths.SCORES, config, reranker=name, split=split)
            if config[section][name]["precision"] == "auto":
                files.append(scores if system.reranker() else system.results.vectors(section, name)[0])
    return list(dict.fromkeys(files))


def comparisons(config: Config) -> list[str]:
    """Comparisons on every evaluated split with runs of the baseline and another system."""
    splits = [split for split in evaluated_splits(config) if len(compared(config, split)) > 1]
    return [paths.at(paths.COMPARISON, config, split=split) + ".json" for split in splits]


def audits(config: Config) -> list[str]:
    """Audits of every index on every evaluated split on which it is searched."""
    return [
        paths.at(paths.AUDIT, config, split=split, encoder=encoder, index=kind)
        for split in evaluated_splits(config)
        for encoder, kind in indexes_of(config, split)
    ]


def sparsities(config: Config) -> list[str]:
    """Return the numbers of terms of each sparse encoder on the splits that systems with it are evaluated on."""
    sparse = [name for name in used_models(config, "encoders") if is_sparse(config["encoders"][name])]
    return [
        paths.at(paths.SPARSITY, config, split=split, encoder=name)
        for split in evaluated_splits(config)
        for name in sparse
        if any(
            split in splits_of(config, system.name)
            for system in all_systems(config).values()
            if ("encoders", name) in system.models()
        )
    ]


def disagreements(config: Config) -> list[str]:
    """Disagreements on every evaluated split with runs of both systems."""
    both = config["evaluation"]["disagreements"]
    splits = [split for split in evaluated_splits(config) if all(split in splits_of(config, name) for name in both)]
    return [paths.at(paths.DISAGREEMENTS, config, split=split) for split in splits] if both else []


def disagreeing_run(config: Config, position: int, wildcards: Wildcards) -> str:
    """Run of the first or second of the disagreeing systems."""
    name = config["evaluation"]["disagreements"][position]
    return paths.at(paths.RUN, config, split=wildcards.split, system=name)


def latencies(config: Config) -> list[str]:
    """Latencies that the workflow measures, if the config has a section for them."""
    return [paths.at(paths.LATENCY, config, split=config["latency"]["split"])] if "latency" in config else []


def all_latencies(config: Config) -> list[str]:
    """Latencies that the workflow measures, and those that users put beside them."""
    files = Path(paths.at(paths.LATENCY, config, split="")).parent.glob("*.json")
    return sorted({*latencies(config), *map(str, files)})


def reproduction(config: Config) -> list[str]:
    """Return the comparison with published numbers, if the config names papers."""
    return [paths.at(paths.REPRODUCTION, config) + "reproduction.json"] if config["papers"] else []


def of_trainings(config: Config, path: str) -> dict[str, str]:
    """Return a file of each trained model, by its name in the report."""
    return {
        title: paths.at(path, config, section=section, model=name)
        for (section, name), title in trainings(config).items()
    }


def models(config: Config) -> dict[str, str]:
    """Return the weights of each encoder and re-ranker in use, by its name in the report."""
    used = {(section, name) for section in LEARNERS for name in used_models(config, section)}
    return {title: Results(config).weights(*model) for title, model in named_models(config).items() if model in used}


def read_texts(config: Config) -> dict[str, dict[str, str]]:
    """Return the token caches of passages and evaluated queries that these models read, by model and text."""
    caches: dict[str, dict[str, str]] = {}
    for title in models(config):
        section, name = named_models(config)[title]
        own = [system.name for system in all_systems(config).values() if (section, name) in system.models()]
        splits = [
            split for split in evaluated_splits(config) if any(split in splits_of(config, system) for system in own)
        ]
        base_model = config[section][name]["base_model"]
        texts = ["passages", *(f"queries.{split}" for split in splits)]
        caches[title] = {text: paths.at(paths.TOKENS, config, base_model=base_model, text=text) for text in texts}
    return caches


def filters(config: Config) -> dict[str, str]:
    """Return counts of dropped examples, by title."""
    files = {"docstrings": paths.at(paths.RAW_FILTERS, config)} if "pydocs" in config["collection"] else {}
    files |= {"documents": paths.at(paths.IMPORT_COUNTS, config)} if source_of(config) else {}
    for split in splits_with(config, "generate"):
        source = f"{generated_from(config)}{' of documents' if copied_from(config) else ''}"
        title = f"{source} as queries of {title_of_split(config, split)}"
        files[title] = paths.at(paths.GENERATED_COUNTS, config, split=split)
    for split in splits_with(config, "judge"):
        files[f"grades of {title_of_split(config, split)}"] = paths.at(paths.GENERATED_COUNTS, config, split=split)
    for split in config["splits"]:
        files[f"judgements of {title_of_split(config, split)}"] = paths.at(paths.JUDGEMENT_COUNTS, config, split=split)
    for section, name in trainings(config):
        source = LEARNERS[section]
        files[f"{source} of {name}"] = paths.at(paths.EXAMPLE_COUNTS, config, source=source, model=name, split="train")
    return files


def tuned_weights(config: Config) -> dict[str, str]:
    """Tuned weights, by system; those that are tuned by folds, by system and split."""
    files = {name: paths.at(paths.WEIGHTS, config, system=name) for name in tuned_systems(config)}
    for split, name in evaluated_runs(config):
        system = system_of(config, name)
        if system.folds() and system.parts():
            files[f"{name} on {split}"] = system.tuned_files(split)[0]
    return files


def named(files: dict[str, str]) -> list[str]:
    """Write a mapping as words NAME=FILE."""
    return [f"{name}={file}" for name, file in files.items()]


def submissions(config: Config) -> list[str]:
    """Submissions to leaderboards and TREC."""
    return [
        paths.at(paths.SUBMISSION, config, submission=name, suffix=SUFFIXES[submission["form"]])
        for name, submission in config["submissions"].items()
    ]


def deployments(config: Config) -> list[str]:
    """Deployed systems; a file stands for the folder of each."""
    return [f"{paths.at(paths.DEPLOYMENT, config, deployment=name)}check.json" for name in config["deploy"]]


def deployed(config: Config, shards: int, wildcards: Wildcards) -> dict[str, str | list[str]]:
    """Return the runs of a deployed system's parts on the split that checks it, and what each part needs."""
    name, results = config["deploy"][wildcards.deployment]["system"], Results(config, shards)
    split, system = checked_split(config, name), system_of(config, name)
    files: dict[str, str | list[str]] = {"runs": [], "bm25": [], "vectors": [], "query_vectors": []}
    for part in deployed_parts(config, name, results):
        run = results.run(split, part.name)
        files["runs"] = [*files["runs"], run]
        if part.lexical_index():
            files |= {"bm25": run, "parameters": part.tuned_files()}
        else:
            own = part.inputs(split)
            files |= {"vectors": own["passages"], "query_vectors": own["queries"]}
    weights = system.tuned_files() if system.parts() else []
    return {**files, "queries": results.at(paths.QUERIES, split=split), "weights": weights}


def consistency(config: Config) -> list[str]:
    """Consistency factors, one file per system and split with a run of the reference."""
    if (settings := config["evaluation"].get("consistency")) is None:
        return []
    return [
        paths.at(paths.CONSISTENCY, config, split=split, system=name)
        for split in splits_of(config, settings["reference"])
        for name in settings["systems"]
        if split in splits_of(config, name)
    ]


def reproduced(config: Config) -> list[str]:
    """Tables and figures for all papers, as outputs of a rule."""
    files = []
    for path in config["papers"]:
        paper, name = read_paper(path), Path(path).stem
        files += [f"tables/{name}.{table.name}.{ending}" for table in paper.tables for ending in TABLES]
        files += [f"figures/{name}.{figure.name}.svg" for figure in paper.figures]
    return [paths.REPRODUCTION + file for file in files]


def check_papers(files: Sequence[str]) -> None:
    """Check all files of published numbers; those with equal names would overwrite each other's outputs.

    :raises ConfigError: with a line per mistake.
    """
    lines = [
        f"papers: found the name {name} {times} times, expected each once; rename a file"
        for name, times in Counter(Path(path).stem for path in files).items()
        if times > 1
    ]
    lines += [line for path in dict.fromkeys(files) for line in find_mistakes(path)]
    if lines:
        raise ConfigError("\n".join(lines))
