"""What runs again after a change: the table in staleness.yaml against Snakemake's plan, exactly, job by job.

The tiny experiment is really built. Others, for the settings it cannot have, are marked as built instead: empty
files instead of results, and `snakemake --touch` to record how they would have been made.

For most keys and files, what runs again follows from the jobs that name them: one test checks all of these, without a
plan of Snakemake for each. `make test` plans one change of each other kind, `make test-all` every row. Modules are
not in the table: which jobs run again follows from what stages import.
"""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import yaml

from cort.experiment.keys import Experiment
from cort.settings.config import flat as flat_settings
from scripts.json_schema import schema_of
from tests.support.changes import mark_as_built, planned_jobs, prepare, put, replace
from tests.support.common import COMMIT, write_file
from tests.support.forking import run_module, snakemake
from tests.support.imports import APART, program
from tests.support.sandbox import TINY
from tests.support.workflow import (
    RULES,
    command_of,
    endpoint_config,
    late_config,
    leaves,
    ready_config,
    released_config,
    sparse_config,
    weighed_config,
)
from workflow import why
from workflow.snakemake_api import Job

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TABLE = yaml.safe_load((ROOT / "tests" / "workflow" / "staleness.yaml").read_text("utf-8"))
SCHEMA = schema_of(Experiment)


LEAVES = dict(leaves(SCHEMA))
# The number of shards affects no result, but is part of the names of files.
IDLE = {key for key, part in LEAVES.items() if part.get("affects_results") is False} - {"shards"}


def flat(jobs):
    """Names of jobs in lists of lists."""
    return {jobs} if isinstance(jobs, str) else {name for job in jobs for name in flat(job)}


def entries():
    """Every entry of the table by its section and name."""
    found = {("keys", key): entry for key, entry in TABLE["keys"].items()}
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


@pytest.fixture(scope="module")
def planned_before(built, tmp_path_factory):
    """A copy of the project in which the tiny experiment is built and others are marked as built; the others' jobs."""
    folder = shutil.copytree(built, tmp_path_factory.mktemp("stale") / "tree", copy_function=os.link, symlinks=True)
    config = yaml.safe_load((folder / TINY).read_text("utf-8"))
    shutil.copytree(folder / "results" / "tiny" / "base_models" / "small", folder / "tiny" / "model")
    (folder / "tiny" / "texts").mkdir()
    write_file(folder / "tiny" / "texts" / "corpus.jsonl", "{}")
    (folder / "tiny" / "data" / "encoder.ckpt").write_text("pretended", "utf-8")
    shutil.copy(folder / "tiny" / "data" / "qrels.test.tsv", folder / "tiny" / "data" / "qrels.other.tsv")
    return folder, {other["dataset"]: pretend(folder, other) for other in other_experiments(config)}


def other_experiments(config):
    """Experiments with the settings that the tiny one cannot have."""
    without_tuning = config | {"lexical": {name: one for name, one in config["lexical"].items() if "tune" not in one}}
    pretrained = {"small": {"pretrained": "tiny/model", "revision": COMMIT}}
    yield without_tuning | {"dataset": "plain", "base_models": pretrained}
    released = released_config(config) | {"dataset": "released", "base_models": pretrained}
    # Queries without judgements.
    released["splits"]["open"] = {"queries": "tiny/data/queries.train.tsv"}
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


def pretend(folder, config):
    """Mark an experiment as built; return its jobs."""
    configfile = f"tiny/{config['dataset']}.yaml"
    (folder / configfile).write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
    jobs = jobs_of(folder, configfile)
    mark_as_built(folder, configfile, jobs)
    return jobs


def jobs_of(folder, configfile):
    """All jobs of an experiment."""
    status, output = run_module(folder, "tests.support.jobs", "jobs.json", "--configfile", configfile)
    assert status == 0, output
    return [Job(**one) for one in json.loads((folder / "jobs.json").read_text("utf-8"))]


@pytest.fixture(scope="module")
def tree(planned_before):
    return planned_before[0]


@pytest.fixture(scope="module")
def reruns(tree, tmp_path_factory):
    """Jobs that Snakemake would run after the change an entry describes."""

    def check(entry):
        folder = tmp_path_factory.mktemp("changed") / "tree"
        arguments = prepare(tree, folder, entry)
        status, output = snakemake(folder, "--dry-run", "--printshellcmds", *arguments)
        shutil.rmtree(folder)
        assert status == 0, output[-3_000:]
        return planned_jobs(output)

    return check


# The table.


def test_every_key_of_the_config_is_in_the_table():
    assert sorted(TABLE["keys"]) == sorted(LEAVES)
    assert {*TABLE["planned"], *TABLE["more_than_params"]} <= {*LEAVES, *TABLE["inputs"]}


def test_settings_that_do_not_affect_results_rerun_nothing():
    assert {key for key, entry in TABLE["keys"].items() if entry["reruns"] == []} == IDLE


def test_keys_that_are_planned_or_predicted_rerun_every_rule_there_is():
    left_out = set(TABLE["more_than_params"]) - set(TABLE["planned"])
    entries = [ENTRIES["keys", key] for key in TABLE["keys"] if key not in left_out]
    rules = {job.split(" ")[0] for entry in entries for job in flat(entry["reruns"])}
    assert RULES.keys() - rules == {"download"}


@pytest.mark.parametrize("entry", list(params()))
def test_exactly_what_the_table_says_runs_again(reruns, entry):
    assert reruns(ENTRIES[entry]) == flat(ENTRIES[entry]["reruns"])


# Settings, as params of rules.


@pytest.fixture(scope="module")
def graphs(planned_before):
    """All jobs of each experiment, with settings and code of their params."""
    tree, jobs = planned_before
    config = yaml.safe_load((tree / TINY).read_text("utf-8"))
    changed = (
        "splits.<name>.sample",
        "splits.<name>.without",
        "splits.<name>.exclude",
        "splits.<name>.topics.field",
        "systems.<name>.onng.recall",
        "systems.<name>.fuse.method",
        "rerankers.<name>.filters",
    )
    for key in changed:
        for path, value in TABLE["keys"][key]["set"].items():
            put(config, path.split("."), value)
    linear = {"systems": ["cort", "bm25"], "method": "linear"}
    config["systems"] |= {
        "weighed": {"fuse": {**linear, "weights": [1, 2]}},
        "tuned": {"fuse": {**linear, "tune": "RR@10"}},
        "light": {"rerank": "tuned", "reranker": "cross", "tune": "RR@10"},
        "folded": {"fuse": {**linear, "tune": {"measure": "RR@10", "folds": 3}}},
        "folded-cross": {"rerank": "cort", "reranker": "cross", "tune": {"measure": "RR@10", "folds": 3}},
    }
    del config["lexical"]["expanded"]["b"]
    config["lexical"]["expanded"]["tune"] = {"k1": [0.9], "b": [0.3, 0.4], "measure": "RR@10", "folds": 3}
    (tree / "tiny" / "more.yaml").write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
    jobs = {**{name: jobs_of(tree, f"tiny/{name}.yaml") for name in ("tiny", "more")}, **jobs}
    return {name: [(job, why.parse(job.params)) for job in listed] for name, listed in jobs.items()}


def names(settings, path):
    """Whether settings of a job have one at a path, or a mapping that it lies in."""
    return path in settings or any(
        isinstance(value, dict) and path.startswith(f"{place}.") for place, value in settings.items()
    )


def predict(jobs, entry):
    """Jobs whose params name a setting that an entry changes, or that read a file it edits, and all that follow."""
    paths = {path for key, value in entry.get("set", {}).items() for path in flat_settings(value, key)}
    edited = set(entry.get("edit", []))
    first = {
        name_of(job)
        for job, params in jobs
        if edited & set(job.inputs) or any(names(params.settings, path) for path in paths)
    }
    return after([job for job, _ in jobs], first)


def test_what_names_a_setting_or_reads_a_file_and_what_follows_runs_again(graphs):
    different = [
        name
        for (section, name), entry in ENTRIES.items()
        if section != "events" and predict(graphs[entry.get("experiment", "tiny")], entry) != flat(entry["reruns"])
    ]
    assert sorted(different) == sorted(TABLE["more_than_params"])


def key_of(path):
    """The key of the schema that a path in a config belongs to, or lies in; None if there is none."""
    for key in LEAVES:
        # A released model is a base model of its section and name.
        released = r"((encoder|reranker|weigher|expander)\.)?" if key.startswith("base_models") else ""
        pattern = re.escape(key).replace("<name>", released + r"[^.]+")
        if re.fullmatch(rf"{pattern}(\..+)?", path):
            return key
    return None


def test_params_name_every_key_of_the_config(graphs):
    found = [(job.rule, path) for jobs in graphs.values() for job, params in jobs for path in params.settings]
    # A section may be named as a whole.
    sections = {".".join(key.split(".")[:end]) for key in LEAVES for end in range(1, key.count(".") + 1)}
    whole = "|".join(re.escape(section).replace("<name>", "[^.]+") for section in sections)
    unknown = {path for rule, path in found if key_of(path) is None}
    # The base model that a released one is, which nobody names.
    derived = {path for path in unknown if re.fullmatch(r"(expanders|weighers)\.\w+\.base_model", path)}
    assert sorted(path for path in unknown - derived if not re.fullmatch(whole, path)) == []
    named = {key_of(path) for _, path in found}
    assert sorted(named & IDLE) == []
    assert sorted(set(LEAVES) - IDLE - named) == sorted(TABLE["structural"])


# Modules: what a stage imports, at once or later, is part of its code. cort/runtime/ is not: it knows no results. Nor
# are the declarations of keys in cort/settings/, whose values are params.


def name_of(job):
    """Name of a job as its log file is called."""
    _, _, rule, name = job.benchmark.removesuffix(".tsv").split("/", 3)
    return rule if name == rule else f"{rule} {name}"


def test_every_job_watches_what_its_stage_imports(graphs):
    code = {
        job.rule: {path for path in params.code if path.endswith(".py")}
        for jobs in graphs.values()
        for job, params in jobs
    }
    assert code == {rule: program(command_of(rule)) for rule in code}
    # Made only for an encoder that has a teacher.
    assert RULES.keys() - code.keys() == {"score_triples"}


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
    jobs = [job for job, _ in graphs["tiny"]]
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
    status, output = snakemake(folder, "--cores", 2, "--printshellcmds", "--configfile", TINY)
    assert status == 0, output[-3_000:]
    jobs = [job for job, _ in graphs["tiny"]]
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
