"""Latencies: statistics of injected times, what is measured, and how reports show it with published numbers."""

import json
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from cort import latency
from cort.config.load import ConfigError, load
from cort.config.stored import needed_for, open_systems, read_experiment
from cort.formats import tables
from cort.formats.artifacts import read_artifact
from cort.online.searcher import WARM_UP, Searcher
from cort.reporting.format import MISSING
from cort.reporting.published import mean_latencies
from cort.reporting.results import Latencies, LatencyRow
from cort.reporting.sections import latency_table
from cort.reporting.tables import to_csv
from cort.systems.timing import PARTS
from tests.support.online import SYSTEMS, results_with, write_results
from workflow.inputs import reported, searched


class Injected:
    """A searcher that takes the given times, one after the other."""

    def __init__(self, results, *times):
        self.results, self.times, self.calls = results, list(times), []
        self.opened = open_systems(results, SYSTEMS)

    def search_batch(self, system, texts, depth, *, concurrent=True):
        self.calls.append((system, list(texts), depth, concurrent))
        return [], self.times[len(self.calls) - 1]


def test_statistics_are_those_of_numpy():
    values = np.random.default_rng(4).exponential(20, 501)
    statistics = latency.summarize([{"bm25": value, "merge": 2 * value} for value in values])
    for name, factor in (("bm25", 1), ("merge", 2)):
        for rank in (50, 95, 99):
            assert statistics[name][f"p{rank}"] == pytest.approx(np.percentile(factor * values, rank))
        assert statistics[name]["mean"] == pytest.approx(factor * values.mean())


def test_parts_add_up_to_the_sequential_total_and_the_concurrent_one_is_measured(tmp_path):
    results = results_with(tmp_path)
    apart = {"tokenize": 1.0, "encode": 7.0, "search": 12.0, "bm25": 30.0, "merge": 1.0, "total": 99.0}
    beside = {**apart, "bm25": 31.0, "total": 34.1}
    searcher = Injected(results, apart, beside)
    searches, statistics = latency.time_batches(searcher, "both", [["q"]], 10)
    assert searches == 1
    assert statistics["sequential"]["mean"] == 51
    assert statistics["concurrent"]["p99"] == 34.1
    assert statistics["encode"]["p50"] == 7
    assert [call[3] for call in searcher.calls] == [False, True]
    _, alone = latency.time_batches(Injected(results, {"bm25": 30.0, "total": 30.1}), "bm25", [["q"]], 10)
    assert "concurrent" not in alone


def test_no_query_is_searched_again_at_once(tmp_path):
    """Caches would be warm for the second search; each query is searched once in either way."""
    times = [{"bm25": 1.0, "tokenize": 1.0, "encode": 1.0, "search": 1.0, "total": 1.0}] * 12
    searcher = Injected(results_with(tmp_path), *times)
    assert latency.time_batches(searcher, "both", [[f"q{n}"] for n in range(6)], 10)[0] == 6
    queries = [call[1][0] for call in searcher.calls]
    assert sorted(queries[::2]) == sorted(queries[1::2]) == [f"q{n}" for n in range(6)]
    assert all(first not in queries[place + 1 : place + 3] for place, first in enumerate(queries))


def test_batches_are_complete_and_nothing_is_re_ranked_in_batches(tmp_path):
    times = [{"bm25": 1.0, "total": 1.0}] * 100
    searcher = Injected(results_with(tmp_path), *times)
    rows = list(latency.rows_of(searcher, ["bm25", "reranked"], [f"q{n}" for n in range(7)], 10, 3, "cpu"))
    assert [(row["system"], row["batch"], row["searches"]) for row in rows] == [
        ("bm25", 1, 7),
        ("bm25", 3, 2),
        ("reranked", 1, 7),
    ]
    assert [call[1] for call in searcher.calls[7:9]] == [["q0", "q1", "q2"], ["q3", "q4", "q5"]]


def test_slow_searches_are_measured_for_a_while(tmp_path, monkeypatch):
    now = iter(range(0, 1000, latency.LONGEST // 2))
    monkeypatch.setattr(latency, "time", SimpleNamespace(monotonic=lambda: next(now)))
    searcher = Injected(results_with(tmp_path), *[{"bm25": 1.0, "total": 1.0}] * 9)
    [row] = latency.rows_of(searcher, ["bm25"], [f"q{n}" for n in range(9)], 10, 10, "cpu")
    assert row["searches"] == len(searcher.calls) == 2


def row(system, batch=1, **means):
    times = {name: dict.fromkeys(("p50", "p95", "p99", "mean"), value) for name, value in means.items()}
    fields = {"system": system, "device": "cpu", "batch": batch, "searches": 3}
    return fields | {"milliseconds": times}


def test_numbers_have_the_names_of_the_published_ones(tmp_path):
    results = results_with(tmp_path, {**SYSTEMS, "dense+bm25": {"interleave": ["dense", "bm25"]}})
    rows = [
        row("bm25", bm25=38.0, sequential=38.0),
        row("bm25", 32, bm25=290.0, sequential=290.0),
        row("dense", tokenize=1.0, encode=7.0, search=68.0, sequential=76.0),
        row("dense+bm25", sequential=114.0),
        row("reranked", sequential=255.0),
    ]
    # Of a system that is gone.
    rows.append(row("gone", sequential=1.0))
    timed = SimpleNamespace(split="dev", rows=[LatencyRow(**one) for one in rows])
    assert {*mean_latencies(results, timed)} == {
        ("bm25", "dev", "latency", 0, 38.0),
        ("bm25", "dev", "latency@32", 0, 290.0),
        ("dense", "dev", "latency", 0, 68.0),
        ("encoder-queries", "dev", "latency", 0, 8.0),
        ("dense+bm25", "dev", "latency", 0, 114.0),
        ("reranked", "dev", "latency", 0, 255.0),
    }


def test_the_table_has_medians_of_parts_and_all_of_the_totals(tmp_path):
    hardware = {"processor": "Imagined <b>", "cores": 2, "memory_mb": 9, "gpus": ["One"]}
    found = {"split": "dev", "queries": 3, "depth": 10, "threads": 2, "hardware": hardware}
    found |= {"rows": [row("bm25", bm25=38.5, sequential=38.5)]}
    path = tmp_path / "dev.json"
    path.write_text(json.dumps(found | {"software": {"python": "3.11", "java": None, "torch": "2"}}))
    table = latency_table([read_artifact(path, Latencies)])
    lines = to_csv(table).splitlines()
    assert lines[0].split(",")[5:11] == [*PARTS]
    assert lines[1] == "dev,bm25,cpu,1,3,,,,38.5,,,38.5,38.5,38.5,38.5,,,,"
    assert "Top 10 of 3 queries on Imagined <b>, 2 cores; One; 2 threads; python 3.11, torch 2" in table.caption
    assert table.shown()[0][5:12] == [*[MISSING] * 3, "38.5", *[MISSING] * 2, "38.5"]


# The config.


@pytest.fixture
def experiment(tmp_path):
    """Load an experiment with some settings of latencies, or without any."""
    systems = {
        "bm25": {"retrieve": "bm25"},
        "found": {"run": "f.trec"},
        "found+bm25": {"interleave": ["found", "bm25"]},
    }
    config = {"dataset": "toy", "collection": {"passages": "p.tsv"}, "systems": systems}
    config["splits"] = {"test": {"queries": "q.tsv", "qrels": "r.tsv"}}

    def write(**settings):
        path = tmp_path / "toy.yaml"
        path.write_text(yaml.safe_dump(config | ({"latency": settings} if settings else {})))
        return load(path)

    return write


def test_latencies_are_measured_on_request_after_what_is_opened(experiment):
    # Published runs and what is made from them cannot be searched.
    assert experiment().searchable == ["bm25"]
    assert reported(experiment(), "latencies") == []
    measured = experiment(split="test", systems=["bm25"])
    assert reported(measured, "latencies") == ["results/toy/latency/test.json"]
    files = ["results/toy/collection/passages.parquet", "results/toy/lexical/bm25/index/manifest.json"]
    assert searched(measured) == files


def test_settings_and_shards_are_those_of_the_vectors(tmp_path, refused):
    settings = json.dumps(needed_for(results_with(tmp_path, shards=2), ["dense"]))
    named = {"queries": "q", "split": "test", "systems": ("dense",), "output": "o"}
    results = latency.find_results(latency.Options(settings=settings, **named))
    vectors = [f"results/toy/embeddings/encoder/passages.{item}.arrow" for item in ("1-of-2", "2-of-2")]
    assert results.vectors("encoders", "encoder") == vectors
    line = refused("latency", queries="q", split="test", systems="dense", output=tmp_path / "o")
    assert line.startswith("--results, --settings: found neither")


@pytest.mark.parametrize(
    ("split", "systems", "words"),
    [
        ("train", ["bm25"], "latency.split: found 'train', expected one of test"),
        ("test", ["x"], "latency.systems: found 'x', expected one of bm25"),
        ("test", ["found"], "latency.systems: found found, made from a published run"),
        ("test", ["found+bm25"], "latency.systems: found found.bm25, made from a published run"),
        ("test", ["bm25", "bm25"], "latency.systems: found bm25 2 times"),
        ("test", [], "latency.systems: found .*, expected at least 1"),
        (None, ["bm25"], "latency: found no key split"),
    ],
)
def test_config_errors_are_reported_before_anything_runs(experiment, split, systems, words):
    with pytest.raises(ConfigError, match=words):
        experiment(**({"split": split} if split else {}), systems=systems)


# The tiny experiment.


@pytest.mark.slow
def test_the_stage_measures_every_kind_of_system(built, tmp_path, monkeypatch, stage):
    searched, search = Counter(), Searcher.search
    monkeypatch.setattr(
        Searcher, "search", lambda self, name, *rest: (searched.update([name]), search(self, name, *rest))[1]
    )
    results = built / "results" / "tiny"
    stored = read_experiment(results / "experiment.yaml")
    systems = stored.searchable
    kinds = {name: system.method for name, system in open_systems(stored, systems).items()}
    named = {"results": results, "queries": results / "collection" / "queries.test.parquet", "split": "test"}
    numbers = {"number": 5, "batch": 2, "depth": 30, "threads": 2, "warm_up": 1, "bm25_warm_up": 7}
    output = stage("latency", **named, **numbers, systems=systems, output=tmp_path / "latency" / "test.json")
    assert searched == {name: len(WARM_UP) + 1 + 7 * (kinds[name] == "bm25") for name in systems}
    found = json.loads(output.read_text())
    assert (found["queries"], found["depth"], found["threads"]) == (5, 30, 2)
    assert [row["system"] for row in found["rows"] if row["batch"] == 1] == systems
    batched = [name for name in systems if name != "cort+bm25-cross"]
    assert [row["system"] for row in found["rows"] if row["batch"] == 2] == batched
    for row in found["rows"]:
        means = {name: times["mean"] for name, times in row["milliseconds"].items()}
        assert means["sequential"] == pytest.approx(sum(means[part] for part in PARTS if part in means))
        assert ("concurrent" in means) == ("+" in row["system"])
        assert min(means.values()) > 0
    written = mean_latencies(stored, read_artifact(output, Latencies))
    assert {name for name, *_ in written} == {*systems, "encoder-queries"}
    assert "host" not in found["hardware"]
    assert found["software"]["pyserini"]


@pytest.mark.parametrize(("system", "words"), [("x", "--systems: found 'x'"), ("bm25", "queries.parquet: found no q")])
def test_unknown_systems_and_no_queries_are_refused(tmp_path, refused, system, words):
    write_results(tmp_path)
    tables.write_table(tmp_path / "queries.parquet", tables.QUERIES.empty_table())
    named = {"results": tmp_path, "queries": tmp_path / "queries.parquet", "split": "test"}
    assert words in refused("latency", **named, systems=system, output=tmp_path / "out.json")
