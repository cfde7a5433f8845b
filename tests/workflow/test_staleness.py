"""What runs again after a change: the table in staleness.yaml against Snakemake's plan, exactly, job by job.

The tiny experiment is really built. Others, for the settings it cannot have, are marked as built instead: empty
files instead of results, and `snakemake --touch` to record how they would have been made.

For most keys and files, what runs again follows from the jobs that get other params or inputs, or read the file: one
test checks all of these, without a plan of Snakemake for each. `make test` plans one change of each other kind, `make
test-all` every row. Modules are not in the table: which jobs run again follows from what stages import.
"""

import os
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from cort.config.root import Root
from scripts.config_reference import schema_of
from tests.support.changes import mark_as_built, planned_jobs, prepare, replace
from tests.support.common import COMMIT, write_file
from tests.support.forking import snakemake, succeed
from tests.support.imports import APART, program
from tests.support.jobs import changed, plan
from tests.support.sandbox import TINY
from tests.support.workflow import (
    RULES,
    command_of,
    endpoint_config,
    late_config,
    leaves,
    plan_jobs,
    process_as_it_was,
    ready_config,
    released_config,
    served_config,
    sparse_config,
    weighed_config,
)
from workflow.snakemake_api import Job

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TABLE = yaml.safe_load((ROOT / "tests" / "workflow" / "staleness.yaml").read_text("utf-8"))
LEAVES = dict(leaves(schema_of(Root)))
# The number of shards affects no result, but is part of the names of files.
IDLE = {key for key, part in LEAVES.items() if part.get("affects_results") is False} - {"shards"}


def keys():
    """The change of every key: a row of its own, or one of those that are alike."""
    found = dict(TABLE["keys"])
    for group in TABLE["alike"]:
        common = {name: group[name] for name in ("experiment", "reruns") if name in group}
        places = {place: values for place, values in group.items() if place not in common}
        values = {f"{place}.{key}": value for place, keys in places.items() for key, value in keys.items()}
        for path, value in values.items():
            (name,) = (key for key in LEAVES if re.fullmatch(re.escape(key).replace("<name>", r"[^.]+"), path))
            assert name not in found, f"{name} has two rows"
            found[name] = common | {"set": {path: value}}
    return found


KEYS = keys()


def flat(jobs):
    """Names of jobs in lists of lists."""
    return {jobs} if isinstance(jobs, str) else {name for job in jobs for name in flat(job)}


def entries():
    """Every entry of the table by its section and name."""
    found = {("keys", key): entry for key, entry in KEYS.items()}
    for name, entry in TABLE["inputs"].items():
        found["inputs", name] = ({"reruns": entry} if isinstance(entry, list) else entry) | {"edit": [name]}
    found |= {("events", name): entry for name, entry in TABLE["events"].items()}
    # The stored settings are written again with every one that affects results.
    for key, entry in found.items():
        if entry.get("set") and entry["reruns"]:
            found[key] = entry | {"reruns": ["resolve", entry["reruns"]]}
    return found


ENTRIES = entries()


# Repetitions of other events.
REPEATED = {"cut the passages whose terms are weighed into two shards", "add an interleaved system"}


def params():
    """All entries; those whose kind of change another one has are exhaustive."""
    for section, name in ENTRIES:
        rare = name in REPEATED if section == "events" else name not in TABLE["planned"]
        yield pytest.param((section, name), id=f"{section} {name}", marks=[pytest.mark.exhaustive] if rare else [])


# The experiments.


class Graph(NamedTuple):
    """All jobs of an experiment; and by key, the names of those to which its change gives other params or inputs."""

    jobs: list[Job]
    changed: dict[str, set[str]]


@pytest.fixture(scope="module")
def tree(built, tmp_path_factory):
    """A copy of the project in which the tiny experiment is built, with files of others."""
    # What no build reads would be linked again for each change.
    ignored = shutil.ignore_patterns("tests", "docs", "__pycache__")
    folder = tmp_path_factory.mktemp("stale") / "tree"
    shutil.copytree(built, folder, ignore=ignored, copy_function=os.link, symlinks=True)
    shutil.copytree(folder / "results" / "tiny" / "base_models" / "small", folder / "tiny" / "model")
    (folder / "tiny" / "texts").mkdir()
    write_file(folder / "tiny" / "texts" / "corpus.jsonl", "{}")
    (folder / "tiny" / "data" / "encoder.ckpt").write_text("pretended", "utf-8")
    shutil.copy(folder / "tiny" / "data" / "qrels.test.tsv", folder / "tiny" / "data" / "qrels.other.tsv")
    return folder


@pytest.fixture(scope="module")
def graphs(tree):
    """The graph of each experiment by name."""
    others = list(other_experiments(yaml.safe_load((tree / TINY).read_text("utf-8"))))
    for other in others:
        (tree / "tiny" / f"{other['dataset']}.yaml").write_text(yaml.safe_dump(other, sort_keys=False), "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tree)
        return {name: graph_of(name) for name in ("tiny", *(other["dataset"] for other in others))}


def other_experiments(config):
    """Experiments with the settings that the tiny one cannot have."""
    without_tuning = config | {"lexical": {name: one for name, one in config["lexical"].items() if "tune" not in one}}
    pretrained = {"small": {"pretrained": "tiny/model", "revision": COMMIT}}
    yield without_tuning | {"dataset": "plain", "base_models": pretrained}
    released = released_config(config) | {"dataset": "released", "base_models": pretrained}
    # Queries without judgements.
    released["splits"]["open"] = {"queries": "tiny/data/queries.train.tsv"}
    released["systems"]["cort-8"] = {"retrieve": "encoder", "dimension": 8}
    yield released
    yield ready_config(config, "tiny/model", revision=COMMIT)
    bm25 = {"bm25": {"retrieve": "bm25"}}
    files = {"queries": "download:scifact/queries.jsonl", "qrels": "download:dl-hard/qrels.txt"}
    passages = {"passages": "download:scifact/corpus.jsonl"}
    yield {"dataset": "public", "collection": passages, "splits": {"test": files}, "systems": bm25}
    files = {key: f"tiny/data/{key}.test.tsv" for key in ("queries", "qrels")}
    timed = {"dataset": "timed", "collection": config["collection"], "splits": {"test": files, "again": files}}
    timed["systems"] = {**bm25, "second": {"retrieve": "bm25", "bm25": {"k1": 1.0, "b": 0.5}}}
    timed["deploy"] = {"search": {"system": "bm25", "targets": ["parquet"]}}
    yield timed | {"latency": {"split": "test", "queries": 5, "systems": ["bm25"]}}
    judged = {"test": files, "other": files | {"qrels": "tiny/data/qrels.other.tsv"}}
    yield {"dataset": "twice", "collection": config["collection"], "splits": judged, "systems": bm25}
    yield served_config(config)
    yield weighed_config(config, "tiny/model", COMMIT)
    yield late_config(config, indexed=True)
    yield sparse_config(config)
    sources = {
        "folder": (
            {"folder": "tiny/texts", "ids": "path", "fields": {"id": "key", "title": "head", "text": ["text"]}},
            files,
        ),
        "documents": ({"documents": "tiny/data/collection.tsv"}, files),
        "irds": ({"irds": "beir/scifact"}, {"irds": "beir/scifact/test"}),
        "hf": ({"hf": "tiny/texts"}, {"hf": "test"}),
        "generated": ({"documents": "tiny/data/collection.tsv"}, {"generate": {"from": "headings"}}),
    }
    for name, (collection, test) in sources.items():
        yield {"dataset": name, "collection": collection, "splits": {"test": test}, "systems": bm25}
    yield {"collection": config["collection"], "systems": bm25, **endpoint_config(files)}
    splits = {"train": {}, "validation": {}, "test": {}}
    yield {"dataset": "docstrings", "collection": {"pydocs": {}}, "splits": splits, "systems": bm25}


def graph_of(name):
    """Jobs of an experiment, and what the changes of keys in the table do to them."""
    configfile = f"tiny/{name}.yaml"
    changes = {key: entry["set"] for key, entry in KEYS.items() if entry.get("experiment", "tiny") == name}
    with process_as_it_was():
        jobs, planned = plan(configfile)
        found = changed(planned, yaml.safe_load(Path(configfile).read_text("utf-8")), changes.values())
        names = ({name_of(jobs[number]) for number in numbers} for numbers in found)
        return Graph(jobs, dict(zip(changes, names, strict=True)))


def changes_program(entry):
    """Tell whether an entry changes the project itself, of which a process knows what it has imported."""
    changed = [name for how in ("edit", "describe", "touch") for name in entry.get(how, ())]
    return any(name.startswith(("cort/", "workflow/", "Snakefile")) for name in changed)


@pytest.fixture(scope="module")
def reruns(tree, graphs, tmp_path_factory):
    """Jobs that Snakemake would run after the change an entry describes."""
    built = {"tiny"}

    def check(entry):
        if (name := entry.get("experiment", "tiny")) not in built:
            mark_as_built(tree, f"tiny/{name}.yaml", graphs[name].jobs)
            built.add(name)
        folder = tmp_path_factory.mktemp("changed") / "tree"
        arguments = prepare(tree, folder, entry)
        if changes_program(entry):
            found = planned_jobs(succeed(folder, "snakemake", "--dry-run", "--printshellcmds", *arguments))
        else:
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(folder)
                found = {name_of(job) for job in plan_jobs(arguments)[0] if job.planned}
        shutil.rmtree(folder)
        return found

    return check


# The table.


def test_every_key_of_the_config_is_in_the_table():
    assert sorted(KEYS) == sorted(LEAVES)
    assert {*TABLE["planned"], *TABLE["other_jobs"]} <= {*LEAVES, *TABLE["inputs"]}


def test_settings_that_do_not_affect_results_rerun_nothing():
    assert {key for key, entry in KEYS.items() if entry["reruns"] == []} == IDLE


def test_keys_that_are_planned_or_predicted_rerun_every_rule_there_is():
    left_out = set(TABLE["other_jobs"]) - set(TABLE["planned"])
    entries = [ENTRIES["keys", key] for key in KEYS if key not in left_out]
    rules = {job.split(" ")[0] for entry in entries for job in flat(entry["reruns"])}
    assert RULES.keys() - rules == {"download"}


@pytest.mark.parametrize("entry", list(params()))
def test_exactly_what_the_table_says_runs_again(reruns, entry):
    assert reruns(ENTRIES[entry]) == flat(ENTRIES[entry]["reruns"])


# Settings, as params and inputs of rules.


def predict(graph, section, name, entry):
    """Jobs that get other params or inputs, or read a file that an entry edits, and all that follow."""
    if section == "keys":
        return after(graph.jobs, graph.changed[name])
    return after(graph.jobs, {name_of(job) for job in graph.jobs if {*entry["edit"]} & {*job.inputs}})


def test_what_gets_other_params_or_inputs_and_what_follows_runs_again(graphs):
    different = {}
    for (section, name), entry in ENTRIES.items():
        graph, expected = graphs[entry.get("experiment", "tiny")], flat(entry["reruns"])
        if section != "events" and (found := predict(graph, section, name, entry)) != expected:
            different[name] = {name_of(job) for job in graph.jobs} & expected - found
    assert sorted(different) == sorted(TABLE["other_jobs"])
    # Whatever else runs is a new job. All files of another data set are new.
    assert {name for name, jobs in different.items() if jobs} == {"dataset"}


def test_every_key_that_affects_results_and_no_other_changes_params_or_inputs_of_jobs(graphs):
    changed = {key: names for graph in graphs.values() for key, names in graph.changed.items()}
    assert {key for key, names in changed.items() if not names} == IDLE
    # The stored settings hold every key.
    assert {key for key, names in changed.items() if names == {"resolve"}} == {*TABLE["reported"]}


# Modules: what a stage imports, at once or later, is part of its code. cort/runtime/ is not: it knows no results. Nor
# are the declarations of keys and paths in cort/config/, whose values are params, inputs and outputs.


def name_of(job):
    """Name of a job as its log file is called."""
    _, _, rule, name = job.benchmark.removesuffix(".tsv").split("/", 3)
    return rule if name == rule else f"{rule} {name}"


def test_every_rule_watches_what_its_stage_imports():
    code = {name: {path for path in rule.params.code if path.endswith(".py")} for name, rule in RULES.items()}
    assert code == {name: program(command_of(name)) for name in RULES}


def after(jobs, first):
    """Jobs of a graph that are in `first` or use what these make, at once or later."""
    makers = {path: name_of(job) for job in jobs for path in job.outputs}
    users = {name_of(job): {makers[path] for path in job.inputs if path in makers} for job in jobs}
    found = set()
    while new := first - found:
        found |= new
        first = {name for name, used in users.items() if used & new}
    return found


EDITED = ("cort/training/losses.py", "cort/evaluation/measures.py", "cort/formats/tables.py")


@pytest.mark.parametrize(
    "path", [EDITED[0], *(pytest.param(path, marks=pytest.mark.exhaustive) for path in EDITED[1:])]
)
def test_an_edited_module_reruns_the_stages_that_import_it_and_what_follows(graphs, reruns, path):
    jobs = graphs["tiny"].jobs
    expected = after(jobs, {name_of(job) for job in jobs if path in program(command_of(job.rule))})
    found = reruns({"edit": [path]})
    assert found == expected
    assert "train encoder" in found


def test_comments_and_docstrings_and_what_knows_no_results_rerun_nothing(reruns):
    assert reruns({"describe": EDITED, "edit": sorted(APART)}) == set()


# Modules that are really edited and built, of three rooms.
BUILT_AGAIN = ("cort/training/losses.py", "cort/evaluation/measures.py", "cort/formats/shards.py")
RESULTS = ("triples", "encoders", "embeddings", "scores", "runs", "measures", "comparisons")


@pytest.mark.exhaustive
@pytest.mark.parametrize("path", BUILT_AGAIN)
def test_an_edited_module_is_built_again_to_the_same_bytes(graphs, built, tmp_path, path):
    folder = shutil.copytree(built, tmp_path / "tree", symlinks=True)
    before = contents(folder)
    replace(folder / path, (folder / path).read_bytes() + b"\nEDITED = True\n")
    output = succeed(folder, "snakemake", "--cores", 2, "--printshellcmds", "--configfile", TINY)
    jobs = graphs["tiny"].jobs
    assert planned_jobs(output) == after(jobs, {name_of(job) for job in jobs if path in program(command_of(job.rule))})
    assert contents(folder) == before
    assert planned_jobs(snakemake(folder, "--dry-run", "--printshellcmds", "--configfile", TINY)[1]) == set()


def contents(folder):
    """Bytes of what the tiny experiment learned, ranked and measured."""
    results = folder / "results" / "tiny"
    paths = [path for name in RESULTS for path in (results / name).rglob("*") if path.is_file()]
    # The curve of training has times.
    paths = [path for path in paths if "curve.csv" not in path.name]
    assert {path.relative_to(results).parts[0] for path in paths} == set(RESULTS)
    return {path: path.read_bytes() for path in paths}
