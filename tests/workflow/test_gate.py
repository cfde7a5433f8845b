"""`make gate` around its build: what it stores, refuses, prints and returns."""

import json

import numpy as np
import pytest

from cort.config import paths
from cort.evaluation.values import write_values
from cort.formats import tables
from tests.support.common import write_rows
from workflow import gate

CONFIG = """
dataset: d
collection: {passages: p.tsv}
splits: {test: {queries: q.tsv, qrels: r.tsv}}
systems: {bm25: {retrieve: bm25}, other: {run: {test: o.trec}}}
evaluation: {measures: [nDCG@10], resamples: 1000}
"""
SYSTEMS = {"bm25": 0.3, "other": 0.6}


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """A function that runs the gate on results with some means, and gives its status and what it printed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.yaml").write_text(CONFIG, "utf-8")
    built = []
    monkeypatch.setattr(gate, "build", lambda config, *targets: built.append(targets))

    def run(*words, queries=60, lost=0.0, text="what"):
        names = [f"q{number}" for number in range(queries)]
        for name, mean in SYSTEMS.items():
            values = np.clip(np.random.default_rng(len(name)).normal(mean - lost, 0.1, queries), 0, 1)
            path = paths.PER_QUERY.format(dataset="d", split="test", system=name)
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            write_values(path, {query: {"nDCG@10": value} for query, value in zip(names, values, strict=True)})
        for path, schema, rows in (
            (paths.QUERIES, tables.QUERIES, [(name, text) for name in names]),
            (paths.QRELS, tables.QRELS, [(name, "d1", 1) for name in names]),
        ):
            path = path.format(dataset="d", split="test")
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            write_rows(path, schema, rows)
        status = gate.main(["--configfile", "my.yaml", "--baseline", "b.json", *words])
        return status, capsys.readouterr()

    return run


def test_without_a_baseline_nothing_can_be_told(call):
    status, printed = call()
    assert status == 2
    assert "b.json: found no baseline, expected one of an earlier build; write it with UPDATE=1" in printed.err


def test_the_best_system_is_stored_and_a_loss_fails(call, tmp_path):
    status, printed = call("--update")
    assert (status, json.loads((tmp_path / "b.json").read_text())["system"]) == (0, "other")
    assert printed.out.startswith("b.json: other on test, nDCG@10 0.")
    status, printed = call()
    assert status == 0
    assert printed.out.splitlines()[1].startswith("no significant loss; p 1.0000")
    status, printed = call(lost=0.05)
    assert status == 1
    lines = printed.out.splitlines()
    assert len(lines) == 3
    assert lines[0].endswith("(-0.050)")
    assert lines[1].startswith("LOSS: a significant loss; p 0.0010")
    assert lines[2] == "settings: those of the baseline"
    # As large a loss was accepted.
    assert call("--loss", "0.06", lost=0.05)[0] == 0


def test_what_changed_since_the_baseline_is_named(call, tmp_path):
    call("--update", "--system", "bm25")
    (tmp_path / "my.yaml").write_text(f"{CONFIG}depth: 77\n", "utf-8")
    status, printed = call()
    assert status == 0
    assert printed.out.startswith("bm25 on test, ")
    assert printed.out.splitlines()[2] == "settings changed: depth: 1000 -> 77"


@pytest.mark.parametrize(
    ("words", "changes", "message"),
    [
        ((), {"text": "who"}, "found other queries or judgements, expected those of the baseline"),
        (("--system", "bm25"), {}, "found bm25, expected other of the baseline"),
        (("--system", "x"), {}, "SYSTEM: found x, expected one of bm25, other"),
        (("--split", "x"), {}, "SPLIT: found x, expected one of test"),
        (("--loss", "2"), {}, "LOSS: found 2.0, expected a number from 0 to below 1"),
    ],
)
def test_what_cannot_be_compared_is_refused(call, words, changes, message):
    call("--update")
    status, printed = call(*words, **changes)
    assert status == 2
    assert message in printed.err


def test_few_queries_tell_nothing(call):
    call("--update", queries=24)
    status, printed = call(queries=24)
    assert status == 2
    assert "found 24 queries, expected at least 25; judge more" in printed.err
