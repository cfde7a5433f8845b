"""One table of a paper (`make plan TABLE=cort/1`), and what a variation leaves out of what it extends."""

import os
import subprocess

import pytest
import yaml

from cort.experiment.checks import complete, extended, load, read
from cort.experiment.config import with_parts
from cort.experiment.models import models_of
from cort.reporting.reproduction.paper import read_paper
from cort.settings.config import LEARNERS, evaluated_splits, is_trained, sources
from cort.systems.registry import system_of
from tests.support import coverage
from tests.support.common import ROOT
from tests.support.configs import changed, mistakes_in
from tests.support.workflow import plan_jobs
from workflow import plan

TABLES = {
    path.relative_to(ROOT / "config/tables").with_suffix("").as_posix(): path
    for path in sorted((ROOT / "config" / "tables").glob("*/*.yaml"))
}
PAPERS = {
    "cort": "cort-2021",
    "trec-2020": "cort-trec-2020",
    "repbert": "repbert-2020",
    "bert": "bert-reranking-2019",
}
# The rest of this experiment is of other splits.
OWN_SPLITS = "cort/6"
BASE = {
    "systems cort-twice": {"fuse": {"systems": ["cort", "bm25"], "method": "rrf"}},
    "evaluation disagreements": ["cort", "bm25"],
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
    papers = {folder: read_paper(ROOT / "config" / "papers" / f"{name}.yaml") for folder, name in PAPERS.items()}
    return {
        f"{folder}/{one.name.removeprefix('table-')}": one.numbers
        for folder, paper in papers.items()
        for one in paper.exhibits
    }


@pytest.fixture(scope="module")
def whole():
    return load(ROOT / "config" / "msmarco.yaml")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    path = tmp_path_factory.mktemp("base") / "base.yaml"
    path.write_text(yaml.safe_dump(changed(BASE), sort_keys=False), "utf-8")
    return path


def computed(numbers, config):
    measured = coverage.Measured(config)
    return [number for number in numbers if measured.computes(number)]


def needed(config, names):
    """Systems with all that they are made and learn from, and the baseline."""
    found = {config["evaluation"]["baseline"], *names}
    while True:
        systems = {*with_parts(config, found)}
        models = {model for name in systems for model in models_of(config, system_of(config, name))}
        for section, name in models:
            model = config[section].get(name, {}) if section in LEARNERS else {}
            systems.update(sources(model[LEARNERS[section]]) if is_trained(model) else ())
        if systems == found:
            return found
        found = systems


def test_every_table_with_numbers_that_are_computed_has_an_experiment(whole):
    config = {**whole, "splits": {**whole["splits"], **load(TABLES[OWN_SPLITS])["splits"]}}
    assert {name for name, numbers in exhibits().items() if computed(numbers, config)} == TABLES.keys()


@pytest.mark.parametrize("name", sorted(TABLES.keys() - {OWN_SPLITS}))
def test_a_table_has_its_numbers_and_only_the_systems_and_splits_of_these(name, whole, monkeypatch):
    monkeypatch.chdir(ROOT)
    written = read(TABLES[name])
    assert extended(written, name)[1] == []
    config, numbers = complete(written, name), exhibits()[name]
    expected = computed(numbers, whole)
    assert computed(numbers, config) == expected
    assert config["papers"] == [f"config/papers/{PAPERS[name.partition('/')[0]]}.yaml"]
    # Latencies of parts, and of several GPUs, are measured with the system.
    assert {*config["systems"]} == needed(whole, {number.system for number in expected} & whole["systems"].keys())
    # Validation leaves out the queries of dev, so that is always there.
    assert {*evaluated_splits(config)} - {"dev"} == {number.split for number in expected} - {"dev"}
    assert {*config["splits"]} <= whole["splits"].keys() - {"eval"}
    shared = ("dataset", "seed", "collection", "lexical", "base_models", "encoders", "depth", "training_depth")
    assert [config[key] for key in shared] == [whole[key] for key in shared]
    for section in ("systems", "splits", "rerankers"):
        assert config[section].items() <= whole[section].items()


def test_coverage_counts_a_table_and_names_who_computes_the_others(whole):
    path = "config/tables/cort/1.yaml"
    found = coverage.of_experiment(path, {coverage.MSMARCO: whole})
    assert {one.by for one in found if one.number.where == "table-1"} == {path}
    assert {one.by for one in found if one.number.where == "table-4"} == {path, coverage.MSMARCO}


@pytest.mark.slow
def test_the_plan_of_corts_table_1_has_only_the_jobs_it_needs(monkeypatch):
    monkeypatch.chdir(ROOT)
    jobs, _ = plan_jobs(["--cores", "2", "--configfile", str(TABLES["cort/1"])])
    values = {key: {job.wildcards[key] for job in jobs if key in job.wildcards}
              for key in ("system", "encoder", "reranker", "split", "base_model")}  # fmt: skip
    assert values["system"] <= {*load(TABLES["cort/1"])["systems"]}
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

    assert make("cort/1").stdout.rstrip().endswith('--configfile "config/tables/cort/1.yaml"')
    wrong = make("cort/9")
    assert wrong.returncode != 0
    assert f"TABLE: found cort/9, expected one of {' '.join(sorted(TABLES))}; name one" in wrong.stderr
    assert len(wrong.stderr.splitlines()) == 1


# What a variation leaves out.


@pytest.mark.slow
def test_the_plan_notes_what_is_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(plan, "plan", lambda _: ([], True))
    (tmp_path / "own.yaml").write_text("extends: config/msmarco.yaml\nsystems: [bm25, cort-e768, cort-e768+bm25]\n")
    plan.main(["--configfile", str(tmp_path / "own.yaml")])
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    assert notes[2].endswith("own.yaml: evaluation.consistency: left out what names top1000, not in this experiment")
    assert len(notes) == 7


def test_a_list_of_names_selects_entries(base):
    whole = read(base)
    merged, _ = extended({"extends": str(base), "systems": ["bm25", "cort-twice", "cort"]}, "own.yaml")
    assert list(merged["systems"].items()) == [(n, whole["systems"][n]) for n in ("bm25", "cort-twice", "cort")]
    # A list in the place of a list is a value.
    assert extended({"extends": str(base), "papers": ["x"]}, "own.yaml")[0]["papers"] == ["x"]
    (line,) = mistakes_in({"extends": str(base), "systems": ["bm25", "cort-twin"]})
    assert line.startswith("systems: found 'cort-twin', expected one of bm25, ")
    assert line.endswith("; did you mean cort-twice?")


def test_references_to_systems_that_are_gone_are_left_out_and_named(base):
    own = {"extends": str(base), "systems": {"bm25": {"retrieve": "bm25"}, "new": {"retrieve": "encoder"}}}
    own |= {"rerankers": None}
    _, notes = extended(own, "own.yaml")
    assert [note.removeprefix("own.yaml: ").removesuffix(", not in this experiment") for note in notes] == [
        "evaluation.disagreements: left out what names cort",
        "evaluation.contrasts: left out what names cort-twice, cort+bm25",
        "evaluation.contrasts: left out what names cort",
        "evaluation.consistency.systems: left out what names cort, cort-twice",
        "evaluation.consistency: left out, as no system is left",
        "latency.systems: left out what names cort-twice",
        "submissions.first: left out what names cort-twice",
        "deploy.both: left out what names cort-twice",
    ]
    config = complete(own, "own.yaml")
    assert (config["evaluation"]["disagreements"], config["evaluation"]["contrasts"]) == ([], [])
    assert "consistency" not in config["evaluation"]
    assert config["latency"]["systems"] == ["bm25"]
    assert [*config["submissions"]] == ["second"]
    assert config["deploy"] == {}


def test_a_split_that_is_gone_takes_latency_and_submissions_along(base):
    own = {"extends": str(base), "splits": {"other": {"queries": "q.tsv", "qrels": "r.tsv"}}}
    merged, notes = extended(own, "own.yaml")
    assert "latency" not in merged
    assert merged["submissions"] == {}
    assert [note.split(":")[1].strip() for note in notes] == ["latency", "submissions.first", "submissions.second"]


def test_what_the_variation_itself_writes_remains_a_mistake(base):
    own = {"extends": str(base), "systems": ["bm25"], "rerankers": None}
    own |= {"evaluation": {"disagreements": ["cort", "bm25"]}, "latency": {"split": "test", "systems": ["cort"]}}
    assert [line.split(": found")[0] for line in mistakes_in(own)] == ["evaluation.disagreements", "latency.systems"]


def test_a_mistake_of_the_other_experiment_remains_one(base, tmp_path):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(yaml.safe_dump(changed({**BASE, "evaluation disagreements": ["typo", "bm25"]})), "utf-8")
    (line,) = mistakes_in({"extends": str(wrong), "systems": [*read(base)["systems"]]})
    assert line.startswith("evaluation.disagreements: found 'typo'")


def test_a_model_that_cannot_be_trained_is_left_out_unless_it_is_used(base):
    some = [name for name in read(base)["systems"] if name != "cort-twice"]
    merged, notes = extended({"extends": str(base), "systems": some}, "own.yaml")
    assert "unused" not in merged["rerankers"]
    assert "own.yaml: rerankers.unused: left out what names cort-twice, not in this experiment" in notes
    systems = read(base)["systems"] | {"re": {"rerank": "bm25", "reranker": "unused"}}
    del systems["cort-twice"]
    (line,) = mistakes_in({"extends": str(base), "systems": systems})
    assert line.startswith("rerankers.unused.pairs.system: found 'cort-twice', expected one of ")


@pytest.mark.parametrize("broken", [5, ["bm25"], None, {"bm25": None}])
def test_sections_of_a_broken_shape_are_left_to_the_schema(base, tmp_path, broken):
    wrong = tmp_path / "wrong.yaml"
    for section in ("systems", "evaluation", "latency", "rerankers", "submissions"):
        wrong.write_text(yaml.safe_dump(changed({**BASE, section: broken})), "utf-8")
        for own in ({"systems": {"bm25": {"retrieve": "bm25"}}}, {"systems": broken or 5}):
            extended({"extends": str(wrong), **own}, "own.yaml")
