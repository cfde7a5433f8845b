"""`make compare`: two builds on the queries that both have, also of other passages, with known answers."""

import subprocess

import numpy as np
import pytest
import yaml

import cort
from cort.config import paths
from cort.config.load import load
from cort.config.stored import write_experiment
from cort.evaluation.significance import randomization_test
from cort.evaluation.values import write_values
from cort.formats import tables
from tests.support.common import ROOT, write_rows
from workflow import versus

QUERIES = [f"q{number}" for number in range(40)]
CONFIG = {
    "collection": {"folder": "docs"},
    "splits": {"test": {"queries": "q.tsv", "qrels": "r.tsv"}},
    "systems": {"bm25": {"retrieve": "bm25"}, "other": {"run": {"test": "o.trec"}}},
    "evaluation": {"measures": ["nDCG@10", "R@5"], "resamples": 2000},
}
OLD = np.random.default_rng(1).random((len(QUERIES), 2))


@pytest.fixture
def build(tmp_path, monkeypatch):
    """A function that writes what a build leaves: settings, queries, judgements, values of its systems."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("a text", "utf-8")
    for name, text in (("q.tsv", "q0\ta\n"), ("r.tsv", "q0\t0\ta\t1\n"), ("o.trec", "q0 Q0 a 1 1 o\n")):
        (tmp_path / name).write_text(text, "utf-8")

    def write(name, gained=0.0, queries=QUERIES, texts=None, judged=None, **changes):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({**CONFIG, "dataset": name, **changes}), "utf-8")
        experiment = load(tmp_path / f"{name}.yaml")
        values = np.clip(OLD[: len(queries)] + np.array([gained, 0.0]), 0, 1)
        for system, more in zip(experiment.on_split("test"), (0.0, 0.01), strict=False):
            rows = {
                query: dict(zip(experiment.measures_of("test"), (row + more).tolist(), strict=False))
                for query, row in zip(queries, values, strict=True)
            }
            write_values(place(experiment, paths.PER_QUERY, system=system), rows)
        texts, judged = texts or {}, judged or {}
        known = [(query, texts.get(query, f"about {query}")) for query in queries]
        write_rows(place(experiment, paths.QUERIES), tables.QUERIES, known)
        qrels = [(query, doc, 1) for query in queries for doc in judged.get(query, ["a"])]
        write_rows(place(experiment, paths.QRELS), tables.QRELS, qrels)
        write_experiment(experiment.at(paths.EXPERIMENT), experiment.config)
        return experiment

    def place(experiment, path, **names):
        file = tmp_path / experiment.at(path, split="test", **names)
        file.parent.mkdir(parents=True, exist_ok=True)
        return file

    return write


@pytest.fixture
def compared(capsys):
    """A function that compares the builds old and new, and gives the status and what is printed."""

    def run(*words, split="test"):
        capsys.readouterr()
        status = versus.main(["--a", "results/old", "--b", "new.yaml", "--split", split, *words])
        printed = capsys.readouterr()
        return status, printed.out.splitlines() if not status else printed.err

    return run


def test_differences_queries_and_settings_are_those_of_the_builds(build, compared):
    build("old")
    build("new", 0.1, depth=77)
    status, lines = compared()
    assert status == 0
    assert lines[0] == "results/new against results/old on test: 40 queries that both have, documents are measured"
    place = lines.index("bm25")
    after = np.clip(OLD[:, 0] + 0.1, 0, 1)
    p = randomization_test((after - OLD[:, 0])[:, None], 2000, 42)[0]
    assert lines[place + 1].startswith(f"  nDCG@10  {OLD[:, 0].mean():.3f} -> {after.mean():.3f}  +")
    # Two systems are compared.
    assert lines[place + 1].endswith(f"  p {2 * p:.4f}  WIN")
    assert lines[place + 2].split("->")[1].split()[1:] == [
        "0.000",
        "[0.000,",
        "0.000]",
        "p",
        "1.0000",
        "NOT",
        "SIGNIFICANT",
    ]
    assert any("corrected over 2 comparisons (Holm)" in line for line in lines)
    assert lines[lines.index("queries that moved most by other, nDCG@10:") + 1].startswith("  +0.100  ")
    assert lines[lines.index("settings that differ:") + 1 :] == ["  depth: 1000 -> 77"]


def test_other_queries_texts_and_judgements_are_left_out_and_counted(build, compared):
    build("old", queries=QUERIES[:-1])
    build("new", queries=[*QUERIES[1:], "more"], texts={"q3": "another"}, judged={"q4": ["b"], "q5": ["a", "b"]})
    status, lines = compared()
    assert status == 0
    assert ": 35 queries that both have" in lines[0]
    assert lines[1] == (
        "left out: 1 query of results/old that another lacks, 2 queries of results/new that another lacks, "
        "1 query with another text, 2 queries with other judgements"
    )


def test_values_follow_the_ids_in_any_order(build, tmp_path):
    build("old")
    experiment = build("again", queries=QUERIES[::-1])
    for system in ("bm25", "other"):
        rows = zip(QUERIES[::-1], OLD[::-1] + 0.01 * (system == "other"), strict=True)
        values = {query: dict(zip(("nDCG@10", "R@5"), row.tolist(), strict=True)) for query, row in rows}
        write_values(experiment.at(paths.PER_QUERY, split="test", system=system), values)
    (tmp_path / "results" / "again" / "runs").mkdir()
    with cort.open("results/again") as x:
        found = x.compare_with("results/old", "test")
    assert found.differences["difference"].tolist() == [0.0] * 4
    assert found.left_out == {}


def test_systems_that_one_lacks_are_named_and_others_can_be_paired(build, compared):
    build("old")
    systems = {"bm25": {"retrieve": "bm25"}, "renamed": {"run": {"test": "o.trec"}}}
    build("new", 0.1, systems=systems)
    status, lines = compared()
    assert status == 0
    assert "not compared of results/old: other" in lines
    assert "not compared of results/new: renamed" in lines
    status, lines = compared("--system", "other=renamed")
    assert status == 0
    assert "other -> renamed" in lines
    assert not any("Holm" in line for line in lines)
    assert "queries that moved most by renamed, nDCG@10:" in lines


def test_passages_that_are_divided_differently_are_compared_as_documents(build, compared, tmp_path):
    """The best passage of a document counts: q0 finds it at rank 2, then at rank 1."""
    builds = {"old": ("b#0 a#1 a#0", 10), "new": ("a#7 b#3 b#2", 20)}
    for name, (ranked, words) in builds.items():
        collection = {"folder": "docs", "aggregate": "none", "passages": {"words": words, "overlap": 0}}
        judged = {"q0": ["a#1", "a#0"] if name == "old" else ["a#7"]}
        one = build(name, queries=["q0"], judged=judged, collection=collection, systems={"bm25": {"retrieve": "bm25"}})
        run = tmp_path / one.run("test", "bm25")
        run.parent.mkdir(parents=True)
        rows = enumerate(ranked.split(), start=1)
        run.write_text("".join(f"q0 Q0 {doc} {rank} {-rank} x\n" for rank, doc in rows), "utf-8")
    status, lines = compared()
    assert status == 0
    assert lines[0].endswith("1 query that both have, documents are measured")
    # The gain at rank 2 is 1 / log2(3).
    assert f"  nDCG@10  {1 / np.log2(3):.3f} -> 1.000  +0.369 " in lines[2]
    assert lines[-1] == "  collection.passages.words: 10 -> 20"


@pytest.mark.parametrize(
    ("changes", "words", "message"),
    [
        ({}, {"split": "dev"}, "SPLIT: found dev, expected one of test, which have judgements in results/old"),
        ({}, {"words": ["--system", "x"]}, "SYSTEM: found x, expected one of bm25, other"),
        ({}, {"words": ["--system", "bm25=x"]}, "SYSTEM: found x, expected one of bm25, other, which results/new has"),
        ({}, {"words": ["--system", "bm25=other=bm25"]}, "expected 2 names joined with ="),
        ({}, {"words": ["--a", "new.yaml"]}, "A, B: found new.yaml twice"),
        ({}, {"words": ["--a", "absent"]}, "absent: found no readable file"),
        ({"queries": ["x"]}, {}, "found 40 queries of results/old that another lacks; 1 query of results/new"),
        (
            {"evaluation": {"measures": ["R@7"]}},
            {},
            "evaluation.measures: found nDCG@10, R@5 in results/old; R@7 in results/new, expected a measure of all",
        ),
        (
            {"splits": {"test": {**CONFIG["splits"]["test"], "relevance_level": 2}}},
            {},
            "splits.test.relevance_level: found 1 and 2, expected one of all builds",
        ),
        ({"systems": {"mine": {"retrieve": "bm25"}}}, {}, "SYSTEM: found bm25, other in results/old; mine in"),
    ],
)
def test_what_cannot_be_compared_is_one_line(build, compared, changes, words, message):
    build("old")
    if "systems" in changes:
        changes = changes | {"evaluation": {**CONFIG["evaluation"], "baseline": "mine"}}
    build("new", **changes)
    status, error = compared(*words.get("words", ()), split=words.get("split", "test"))
    assert status == 1
    assert message in error
    assert error.count("\n") == 1


def test_an_unfinished_build_is_one_line(build, compared, tmp_path):
    build("old")
    new = build("new")
    (tmp_path / new.at(paths.PER_QUERY, split="test", system="other")).unlink()
    status, error = compared()
    assert status == 1
    assert "measures/test/other.parquet: found no such file, expected a finished build" in error


def test_arguments_of_make_come_as_they_are():
    """Quotes, blanks and dollars are no words of the shell, nor of make."""
    given = {"A": "it's", "B": "$(shell echo x) y", "SPLIT": "`ls` $HOME", "SYSTEM": 'a"b'}
    options = ["--no-print-directory", "--dry-run", "--assume-old=.venv/.installed"]
    command = ["make", *options, "compare", *map("=".join, given.items())]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    shown = printed.replace(".venv/bin/python -m workflow.versus", "printf '%s\\n'")
    words = subprocess.run(["bash", "-c", shown], check=True, capture_output=True, text=True).stdout.splitlines()
    assert words == [word for name, value in given.items() for word in (f"--{name.lower()}", value)]
