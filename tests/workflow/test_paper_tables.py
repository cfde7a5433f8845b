"""One table of a paper (`make plan TABLE=cort/1`), and what a variation leaves out of what it extends."""

import os
import subprocess

import pytest
import yaml

from cort.config.experiment import Experiment
from cort.config.learners import Learner
from cort.config.load import complete, extended, load, read
from tests.support import coverage
from tests.support.common import ROOT
from tests.support.configs import changed, mistakes_in
from tests.support.workflow import plan_jobs

TABLES = {
    path.relative_to(ROOT / "config/tables").with_suffix("").as_posix(): path
    for path in sorted((ROOT / "config" / "tables").glob("*/*.yaml"))
}
PAPERS = {
    "CoRT (2021)": "cort",
    "CoRT at TREC 2020": "trec-2020",
    "RepBERT (2020)": "repbert",
    "Passage Re-ranking with BERT (2019)": "bert",
}
# The rest of this experiment is of other splits.
OWN_SPLITS = "cort/6"
BASE = {
    "systems cort-twice": {"fuse": {"systems": ["cort", "bm25"], "method": "rrf"}},
    "evaluation contrasts": [["cort-twice", "cort+bm25"], ["cort", "bm25"]],
    "evaluation consistency": {"reference": "bm25", "systems": ["cort", "cort-twice"]},
    "latency": {"split": "test", "systems": ["bm25", "cort-twice"]},
    "submissions": {
        "first": {"system": "cort-twice", "split": "test", "form": "trec"},
        "second": {"system": "bm25", "split": "test", "form": "trec"},
    },
    "deploy": {"both": {"system": "cort-twice", "targets": ["parquet"]}},
    "rerankers unused": {"base_model": "small", "pairs": {"system": ["bm25", "cort-twice"], "last_rank": 20}},
}  # fmt: skip


def exhibits():
    """Map the tables, in the names of TABLE, to their numbers."""
    found = {}
    for number in coverage.published():
        if folder := PAPERS.get(number["paper"]):
            name = number["table"].lower().replace(" ", "-").removeprefix("table-")
            found.setdefault(f"{folder}/{name}", []).append(number)
    return found


@pytest.fixture(scope="module")
def whole():
    return load(ROOT / "config" / "msmarco.yaml").config


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    path = tmp_path_factory.mktemp("base") / "base.yaml"
    path.write_text(yaml.safe_dump(changed(BASE), sort_keys=False), "utf-8")
    return path


def computed(numbers, config):
    measured = coverage.Measured(Experiment.of(config))
    return [number for number in numbers if measured.computes(number)]


def needed(config, names):
    """Systems with all that they are made and learn from, and the baseline."""
    experiment, found = Experiment.of(config), {config["evaluation"]["baseline"], *names}
    while True:
        systems = {*experiment.with_parts(found)}
        models = {model for name in systems for model in experiment.models_of(name)}
        for section, name in models:
            model = experiment.models[section][name]
            systems.update(model.examples.systems if isinstance(model, Learner) else ())
        if systems == found:
            return found
        found = systems


def test_every_table_with_numbers_that_are_computed_has_an_experiment(whole):
    config = {**whole, "splits": {**whole["splits"], **load(TABLES[OWN_SPLITS]).config["splits"]}}
    assert {name for name, numbers in exhibits().items() if computed(numbers, config)} == TABLES.keys()


@pytest.mark.parametrize("name", sorted(TABLES.keys() - {OWN_SPLITS}))
def test_a_table_has_its_numbers_and_only_the_systems_and_splits_of_these(name, whole, monkeypatch):
    monkeypatch.chdir(ROOT)
    written = read(TABLES[name])
    experiment, numbers = complete(written, name), exhibits()[name]
    config = experiment.config
    expected = computed(numbers, whole)
    assert computed(numbers, config) == expected
    assert config["papers"] == ["config/papers.csv"]
    # Latencies of parts are measured with the system.
    assert {*config["systems"]} == needed(whole, {number["system"] for number in expected} & whole["systems"].keys())
    # Validation leaves out the queries of dev, so that is always there.
    assert {*experiment.evaluated_splits} - {"dev"} == {number["split"] for number in expected} - {"dev"}
    assert {*config["splits"]} <= whole["splits"].keys() - {"eval"}
    shared = ("dataset", "seed", "collection", "lexical", "base_models", "encoders", "depth", "training_depth")
    assert [config[key] for key in shared] == [whole[key] for key in shared]
    for section in ("systems", "splits", "rerankers"):
        assert config[section].items() <= whole[section].items()


@pytest.mark.slow
def test_the_plan_of_corts_table_1_has_only_the_jobs_it_needs(monkeypatch):
    monkeypatch.chdir(ROOT)
    jobs, _ = plan_jobs(["--cores", "2", "--configfile", str(TABLES["cort/1"])])
    values = {key: {job.wildcards[key] for job in jobs if key in job.wildcards}
              for key in ("system", "encoder", "reranker", "split", "base_model")}  # fmt: skip
    assert values["system"] <= {*load(TABLES["cort/1"]).systems}
    assert values["encoder"] == {"cort-e768"}
    assert values["split"] == {"train", "validation", "dev"}
    assert values["reranker"] == set()
    assert "electra" not in values["base_model"]
    assert {job.rule for job in jobs}.isdisjoint({"latency", "submission", "rerank", "score", "audit"})


def test_make_takes_a_table_and_lists_them_for_a_wrong_name():
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}

    def make(table):
        words = ["make", "--dry-run", "--assume-old=.venv/.installed", "plan", f"TABLE={table}", "CONFIG=other.yaml"]
        return subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    assert make("cort/1").stdout.rstrip().endswith("--configfile 'config/tables/cort/1.yaml'")
    wrong = make("cort/9")
    assert wrong.returncode != 0
    assert f"TABLE: found cort/9, expected one of {' '.join(sorted(TABLES))}; name one" in wrong.stderr
    assert len(wrong.stderr.splitlines()) == 1


# What a variation leaves out.


def test_a_list_of_names_selects_entries(base):
    whole = read(base)
    merged = extended({"extends": str(base), "systems": ["bm25", "cort-twice", "cort"]}, "own.yaml")
    assert list(merged["systems"].items()) == [(n, whole["systems"][n]) for n in ("bm25", "cort-twice", "cort")]
    # A list in the place of a list is a value.
    assert extended({"extends": str(base), "papers": ["x"]}, "own.yaml")["papers"] == ["x"]
    (line,) = mistakes_in({"extends": str(base), "systems": ["bm25", "cort-twin"]})
    assert line.startswith("systems: found 'cort-twin', expected one of bm25, ")
    assert line.endswith("; did you mean cort-twice?")


def test_references_to_what_is_left_out_are_mistakes(base):
    own = {"extends": str(base), "systems": ["bm25"], "rerankers": None}
    places = {line.split(": found")[0] for line in mistakes_in(own)}
    assert {"evaluation.contrasts"} <= places
    assert all("expected" in line for line in mistakes_in(own))


def test_a_mistake_of_the_other_experiment_remains_one(base, tmp_path):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(yaml.safe_dump(changed({**BASE, "evaluation baseline": "typo"})), "utf-8")
    (line,) = mistakes_in({"extends": str(wrong), "systems": [*read(base)["systems"]]})
    assert line.startswith("evaluation.baseline: found 'typo'")
