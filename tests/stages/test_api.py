"""cort.open: what docs/python.md shows, on the tiny experiment; the same answers as those of the search command."""

import json
import re
import shutil
import subprocess
import sys

import pytest
import yaml

import cort
from cort.config.stored import write_experiment
from cort.formats.runs import read_run
from cort.online import neural, searcher
from tests.support.common import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results(built):
    return built / "results" / "tiny"


def test_the_code_of_the_pages_runs(results, monkeypatch):
    pages = [(ROOT / name).read_text("utf-8") for name in ("docs/python.md", "README.md")]
    blocks = [block for page in pages for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)]
    assert len(blocks) == 4
    names = {'"results/pydocs"': repr(str(results)), '"fused"': '"cort+bm25"', '"cort")': '"encoder")'}
    code = "\n".join(blocks)
    for old, new in names.items():
        assert old in code
        code = code.replace(old, new)
    scope = {}
    exec(compile(code, "docs/python.md", "exec"), scope)  # noqa: S102  # the page is ours
    assert list(scope["run"].columns) == ["query_id", "doc_id", "score", "rank"]
    assert list(scope["compared"].columns)[:3] == ["system", "baseline", "verdict"]
    assert scope["vectors"].shape[0] == 1
    scope["x"].close()


def test_frames_are_what_the_files_say(results):
    x = cort.open(results)
    assert ("test" in x.splits, x.systems[0]) == (True, "bm25")
    assert {"published", "cort"} <= set(x.systems)
    run = x.run("cort", "test")
    expected = read_run(results / "runs" / "test" / "cort.trec")
    assert run["doc_id"].tolist() == expected.doc_ids.to_pylist()
    assert run["score"].tolist() == expected.scores.tolist()
    assert run["query_id"].drop_duplicates().tolist() == expected.query_ids
    assert run.groupby("query_id", observed=True)["rank"].min().eq(1).all()
    assert list(x.queries("test").columns) == ["query_id", "text"]
    assert list(x.qrels("test").columns) == ["query_id", "doc_id", "relevance"]
    means = json.loads((results / "measures" / "test" / "cort.json").read_text())["mean"]
    assert x.measures("test").loc["cort"].to_dict() == means
    per_query = x.per_query("cort", "test")
    assert per_query.mean().to_dict() == pytest.approx({name: means[name] for name in per_query.columns})
    row = x.compare("cort", "bm25", "test").loc["RR@10"]
    report = json.loads((results / "comparisons" / "test.json").read_text())["comparisons"]
    [same] = [one for one in report if (one["system"], one["baseline"], one["measure"]) == ("cort", "bm25", "RR@10")]
    names = ["difference", "won", "lost", "randomization_test"]
    assert row[names].to_dict() == {name: same[name] for name in names}


def test_what_the_experiment_no_longer_has_is_gone(results, tmp_path):
    """A system, a split and a measure, whose files are still there."""
    folder = shutil.copytree(results, tmp_path / "tiny", ignore=shutil.ignore_patterns("checkpoints"))
    for kind in ("runs", "measures"):
        shutil.copytree(folder / kind / "test", folder / kind / "removed")
    for name in ("queries", "qrels"):
        shutil.copy(folder / "collection" / f"{name}.test.parquet", folder / "collection" / f"{name}.removed.parquet")
    config = yaml.safe_load((folder / "experiment.yaml").read_text("utf-8"))
    without = {name: system for name, system in config["systems"].items() if name != "cort-onng"}
    measures = [name for name in config["splits"]["test"]["measures"] if name != "R@20"]
    splits = config["splits"] | {"test": config["splits"]["test"] | {"measures": measures}}
    write_experiment(folder / "experiment.yaml", config | {"systems": without, "splits": splits})
    x, before = cort.open(folder), cort.open(results)
    assert x.splits == before.splits
    assert x.systems == [name for name in before.systems if name != "cort-onng"]
    assert x.measures("test").equals(before.measures("test").drop(index="cort-onng", columns="R@20"))
    assert x.per_query("cort", "test").equals(before.per_query("cort", "test").drop(columns="R@20"))
    assert "R@20" not in x.compare("cort", "bm25", "test").index
    for call in (
        lambda: x.run("cort-onng", "test"),
        lambda: x.per_query("cort-onng", "test"),
        lambda: x.compare("cort", "cort-onng", "test"),
        lambda: x.search("neriga", "cort-onng"),
        lambda: x.run("cort", "removed"),
        lambda: x.measures("removed"),
        lambda: x.queries("removed"),
        lambda: x.qrels("removed"),
    ):
        with pytest.raises(ValueError, match=r"found .*(cort-onng|removed).*, expected one of ") as caught:
            call()
        assert "\n" not in str(caught.value)


def test_search_answers_as_the_command_does(stage, results, capsys):
    with cort.open(results) as x:
        text = x.queries("test")["text"][0]
        found = x.search(text, "cort+bm25", k=5)
    capsys.readouterr()
    stage("search", results=results, systems="cort+bm25", depth=5, query=text)
    answer = json.loads(capsys.readouterr().out)["results"]
    for name in ("doc_id", "text"):
        assert found[name].tolist() == [one[name] for one in answer]
    assert found["score"].tolist() == pytest.approx([one["score"] for one in answer])


def test_models_and_java_are_opened_once(results, monkeypatch):
    opened = []
    load, start = neural.load_encoder, searcher.LuceneProcess
    monkeypatch.setattr(neural, "load_encoder", lambda *given: opened.append("encoder") or load(*given))
    monkeypatch.setattr(searcher, "LuceneProcess", lambda *given: opened.append("Java") or start(*given))
    with cort.open(results) as x:
        alone = [x.search("neriga", system, k=3)["doc_id"].tolist() for system in ("bm25", "cort", "cort+bm25")]
        one, two = x.encode("neriga balune", "encoder"), x.encode(["neriga", "balune"], "encoder")
        assert x.encode([], "encoder").shape == (0, one.shape[1])
    # One encoder searches, the other one encodes.
    assert sorted(opened) == ["Java", "encoder", "encoder"]
    assert (one.shape[0], two.shape[0]) == (1, 2)
    assert {*alone[2]} <= {*alone[0], *alone[1]}


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda x: x.run("corrt", "test"), r"^system: found corrt, expected one of .*bm25.*"),
        (lambda x: x.run("cort", "tset"), r"^split: found tset, expected one of "),
        (lambda x: x.encode(["a"], "nobody"), r"^encoder: found nobody, expected one of encoder"),
        (lambda x: x.queries("tset"), r"^split: found tset, expected one of test, train, validation"),
        (lambda x: x.qrels("tset"), r"^split: found tset, expected one of test, train, validation"),
        (lambda x: x.measures("tset"), r"^split: found tset, expected one of test;"),
        (lambda x: x.per_query("bm25", "train"), r"^split: found train, expected one of test;"),
        (lambda x: cort.open(x.folder / "runs"), r"found no runs, expected a folder of results"),
    ],
)
def test_a_mistake_is_one_line(results, call, line):
    with pytest.raises(ValueError, match=line) as caught:
        call(cort.open(results))
    assert "\n" not in str(caught.value)


def test_a_run_is_read_without_torch(results):
    code = f"import sys, cort; print(len(cort.open({str(results)!r}).run('bm25', 'test')), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"[1-9]\d* False\n", done.stdout)
