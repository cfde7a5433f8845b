"""What runs again after a change: the table in staleness.yaml against Snakemake's plan, exactly, job by job.

The tiny experiment is really built. Five more, for the settings it cannot have, are marked as built instead: empty
files in the place of results, and `snakemake --touch` to record how they would have been made.
"""

import contextlib
import io
import multiprocessing
import os
import re
import shutil
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
import yaml

from scripts.sandbox import TINY, mark_as_built
from tests.end_to_end.test_workflow import RULES, module_of, released_config, stage_modules

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TABLE = yaml.safe_load((ROOT / "tests" / "workflow" / "staleness.yaml").read_text("utf-8"))
SCHEMA = yaml.safe_load((ROOT / "workflow" / "schemas" / "experiment.schema.yaml").read_text("utf-8"))
# What a plan would spend most of its time on, imported once for all.
IMPORTED = ["snakemake.cli", "snakemake.report.html_reporter", "smart_open", "jsonschema"]
LOG = re.compile(r"--log logs/([^/\s]+)/(\S+)\.log$", re.MULTILINE)


def leaves(schema, path=""):
    """Every key that has a value of its own, names of entries as <name>."""
    rest = schema.get("additionalProperties")
    if isinstance(rest, dict) and "properties" in rest:
        yield from leaves(rest, f"{path}.<name>")
    for key, part in schema.get("properties", {}).items():
        place = f"{path}.{key}".lstrip(".")
        nested = list(leaves(part, place))
        yield from nested or [place]


def flat(jobs):
    """Names of jobs in lists of lists."""
    return {jobs} if isinstance(jobs, str) else {name for job in jobs for name in flat(job)}


def plain_entry(entry):
    """Write an entry that is only a list of jobs in full."""
    return {"reruns": entry} if isinstance(entry, list) else entry


# The experiments.


@pytest.fixture(scope="module")
def tree(built, tmp_path_factory):
    """A copy of the project in which the tiny experiment is built and five more are marked as built."""
    folder = shutil.copytree(built, tmp_path_factory.mktemp("stale") / "tree", symlinks=True)
    config = yaml.safe_load((folder / TINY).read_text("utf-8"))
    shutil.copytree(folder / "results" / "tiny" / "base_models" / "small", folder / "tiny" / "model")
    without_tuning = {key: value for key, value in config.items() if key != "bm25"}
    pretrained = {"small": {"pretrained": "tiny/model"}}
    pretend(folder, without_tuning | {"dataset": "plain", "base_models": pretrained})
    (folder / "tiny" / "data" / "encoder.ckpt").write_text("pretended", "utf-8")
    pretend(folder, released_config(config) | {"dataset": "released", "base_models": pretrained})
    splits = {"train": {}, "validation": {}, "test": {}}
    systems = {"bm25": {"retrieve": "bm25"}}
    files = {"queries": "download:scifact/queries.jsonl", "qrels": "download:dl-hard/qrels.txt"}
    passages = {"passages": "download:scifact/corpus.jsonl"}
    bm25 = {"bm25": {"retrieve": "bm25"}}
    pretend(folder, {"dataset": "public", "collection": passages, "splits": {"test": files}, "systems": bm25})
    files = {key: f"tiny/data/{key}.test.tsv" for key in ("queries", "qrels")}
    timed = {"dataset": "timed", "collection": config["collection"], "splits": {"test": files, "again": files}}
    timed["systems"] = {**systems, "second": {"retrieve": "bm25", "bm25": {"k1": 1.0, "b": 0.5}}}
    pretend(folder, timed | {"latency": {"split": "test", "queries": 5, "systems": ["bm25"]}})
    pretend(folder, {"dataset": "docstrings", "collection": {"pydocs": {}}, "splits": splits, "systems": systems})
    return folder


def pretend(folder, config):
    path = folder / "tiny" / f"{config['dataset']}.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
    mark_as_built(folder, path)


# The plan.


def plan(folder, arguments):
    """Names of the jobs Snakemake would run, in a process that has just been started."""
    from snakemake.cli import main

    os.chdir(folder)
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            status = main(["--dry-run", "--printshellcmds", *arguments])
        except SystemExit as end:
            status = end.code
    return status, said.getvalue()


@pytest.fixture(scope="module")
def pool():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    with ProcessPoolExecutor(2, mp_context=context, max_tasks_per_child=1) as executor:
        yield executor


def prepare(tree, folder, entry):
    """Link the tree to `folder`, change there what the entry says; the arguments of the call."""
    # Hard links: whatever changes a file must put a new one in its place.
    shutil.copytree(tree, folder, copy_function=os.link, symlinks=True)
    source = folder / "tiny" / f"{entry.get('experiment', 'tiny')}.yaml"
    config = yaml.safe_load(source.read_text("utf-8"))
    for path, value in entry.get("set", {}).items():
        put(config, path.split("."), value)
    (folder / "changed.yaml").write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
    for new, old in entry.get("copy", {}).items():
        copy = shutil.copytree if (folder / old).is_dir() else shutil.copy
        copy(folder / old, folder / new)
    for name in entry.get("edit", []):
        text = (folder / name).read_bytes()
        (folder / name).unlink()
        (folder / name).write_bytes(text + (b"\n# Edited.\n" if name.endswith((".py", ".yaml")) else b"edited"))
    for pattern in entry.get("touch", []):
        for path in folder.glob(pattern):
            if path.is_file():
                again(path)
    for name in entry.get("delete", []):
        (folder / name).unlink()
    return ["--configfile", "changed.yaml", *entry.get("options", [])]


def put(config, path, value):
    *parents, last = path
    for key in parents:
        config = config.setdefault(key, {})
    if value is None:
        del config[last]
    else:
        config[last] = value


def again(path):
    """Give a file a new time and leave its links alone."""
    text = path.read_bytes()
    path.unlink()
    path.write_bytes(text)


@pytest.fixture(scope="module")
def plans(tree, pool, tmp_path_factory):
    """Jobs per entry of the table."""
    base = tmp_path_factory.mktemp("plans")
    waiting = {}
    for number, (name, entry) in enumerate(ENTRIES.items()):
        folder = base / str(number)
        arguments = prepare(tree, folder, entry)
        waiting[name] = pool.submit(plan, str(folder), arguments)
    return {name: result.result() for name, result in waiting.items()}


def entries():
    """Every entry of the table by its section and name."""
    found = {("keys", key): entry for key, entry in TABLE["keys"].items()}
    for module, entry in TABLE["modules"].items():
        found["modules", module] = plain_entry(entry) | {"edit": [f"cort/{module}.py"]}
    for name, entry in TABLE["inputs"].items():
        found["inputs", name] = plain_entry(entry) | {"edit": [name]}
    return found | {("events", name): entry for name, entry in TABLE["events"].items()}


ENTRIES = entries()


# The tests.


def test_every_key_of_the_config_is_in_the_table():
    assert sorted(TABLE["keys"]) == sorted(leaves(SCHEMA))


def test_every_module_is_in_the_table():
    assert set(TABLE["modules"]) == stage_modules() == {module_of(rule) for rule in RULES}


def test_settings_that_decide_nothing_rerun_nothing():
    def idle(schema, path=""):
        rest = schema.get("additionalProperties")
        if isinstance(rest, dict):
            yield from idle(rest, f"{path}.<name>")
        for key, part in schema.get("properties", {}).items():
            place = f"{path}.{key}".lstrip(".")
            if part.get("affects_results") is False:
                yield place
            yield from idle(part, place)

    assert {key for key, entry in TABLE["keys"].items() if entry["reruns"] == []} == set(idle(SCHEMA))


@pytest.mark.parametrize("entry", ENTRIES, ids=" ".join)
def test_exactly_what_the_table_says_runs_again(plans, entry):
    status, output = plans[entry]
    assert status == 0, output[-3_000:]
    found = {path.replace("/", " ", 1) for _, path in LOG.findall(output)}
    assert found == flat(ENTRIES[entry]["reruns"])
