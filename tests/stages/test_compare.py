import csv
import json
from math import ceil
from statistics import NormalDist
from statistics import fmean as mean
from urllib.parse import parse_qsl

import numpy as np
import pytest

from cort.evaluation.comparisons import Comparisons, judge
from cort.evaluation.values import write_recall
from cort.evaluation.values import write_values as write_rows
from cort.formats import tables
from cort.formats.artifacts import read_artifact
from cort.reporting.format import verdict_lines
from tests.support import common

MEASURES = ("RR@10", "R@5")
QUERIES = [f"q{number}" for number in range(40)]


def values_of(seed, better=0.0):
    return np.clip(np.random.default_rng(seed).random((len(QUERIES), len(MEASURES))) + better, 0, 1)


SYSTEMS = {"bm25": values_of(1), "same": values_of(1), "noise": values_of(2), "best": values_of(1, 0.2)}
RECALL = {"bm25": [0.2, 0.4, 0.5], "same": [0.2, 0.4, 0.5], "noise": [0.1, 0.2], "best": [0.4, 0.5, 0.6, 0.7]}


def write_values(path, values, queries=QUERIES, measures=MEASURES):
    write_rows(path, {query: dict(zip(measures, row, strict=True)) for query, row in zip(queries, values, strict=True)})


@pytest.fixture
def options(tmp_path):
    """A function that gives options; the files are written once."""
    for name, values in SYSTEMS.items():
        write_values(tmp_path / f"{name}.parquet", values)
        write_recall(tmp_path / f"{name}.csv", RECALL[name])
    texts = [(query, f"what is {query}") for query in QUERIES]
    common.write_rows(tmp_path / "queries.parquet", tables.QUERIES, texts)

    def named(names=tuple(SYSTEMS), **changes):
        files = {"per_query": [tmp_path / f"{name}.parquet" for name in names], "systems": [*names]}
        files |= {"recall": [tmp_path / f"{name}.csv" for name in names], "queries": tmp_path / "queries.parquet"}
        files |= {"output_table": tmp_path / "x.csv", "output_queries": tmp_path / "x.queries.csv"}
        files |= {"output": tmp_path / "x.json", "baseline": "bm25", "split": "dev", "seed": 1, "resamples": 2000}
        return files | changes

    return named


@pytest.fixture
def compared(stage, options):
    """A function that runs the stage, and returns what it found."""
    return lambda **changes: json.loads(stage("compare", **options(**changes)).read_text())


@pytest.fixture
def found(compared):
    return compared()


def lines_of(capsys):
    """Lines of the log with verdicts."""
    return [line for line in capsys.readouterr().err.splitlines() if " against " in line]


def read_rows(path):
    with open(path, newline="") as handle:
        return list(csv.DictReader(handle))


def row_of(found, system, measure="RR@10"):
    return next(row for row in found["comparisons"] if (row["system"], row["measure"]) == (system, measure))


def test_every_system_but_the_baseline_is_compared_by_every_measure(found):
    assert [(row["system"], row["measure"]) for row in found["comparisons"]] == [
        (name, measure) for name in ("same", "noise", "best") for measure in MEASURES
    ]
    assert (found["split"], found["baseline"], found["queries"], found["resamples"]) == ("dev", "bm25", 40, 2000)


def test_means_differences_counts_and_intervals_are_those_of_the_values(found):
    row, base, best = row_of(found, "best"), SYSTEMS["bm25"][:, 0], SYSTEMS["best"][:, 0]
    assert (row["mean"], row["baseline_mean"]) == (mean(best), mean(base))
    assert row["difference"] == pytest.approx((best - base).mean())
    assert (row["won"], row["tied"], row["lost"]) == ((best > base).sum(), (best == base).sum(), (best < base).sum())
    assert row["won"] > 30
    for one in found["comparisons"]:
        for name, low in (("mean", "mean"), ("baseline_mean", "baseline"), ("difference", "difference")):
            assert one[f"{low}_low"] <= one[name] <= one[f"{low}_high"]
    # The difference of systems that go together is known better than that of others.
    noise = row_of(found, "noise")
    assert row["difference_high"] - row["difference_low"] < (noise["difference_high"] - noise["difference_low"]) / 3


PAIRS = {"parts": ["best=noise", "best=bm25"], "starts": "noise=same", "contrasts": ["best=same", "bm25=noise"]}


def test_pairs_with_the_baseline_come_first_and_each_has_a_line(compared, capsys):
    rows = compared(**PAIRS)["comparisons"]
    pairs = {(row["system"], row["baseline"]): row["relation"] for row in rows}
    assert list(pairs.items()) == [
        (("same", "bm25"), "baseline"),
        (("noise", "bm25"), "baseline"),
        (("best", "bm25"), "baseline"),
        (("bm25", "noise"), "contrast"),
        (("noise", "same"), "start"),
        (("best", "noise"), "part"),
        (("best", "same"), "contrast"),
    ]
    lines = lines_of(capsys)
    assert len(lines) == 7
    best = row_of({"comparisons": [row for row in rows if row["baseline"] == "same"]}, "best")
    numbers = f"{best['difference']:+.3f} [{best['difference_low']:+.3f}, {best['difference_high']:+.3f}]"
    assert lines[-1].endswith(f"dev: WIN              best against same: RR@10 {numbers}, p 0.0020; WIN in R@5")
    assert "dev: NOT SIGNIFICANT  same against bm25: RR@10 0.000 [0.000, 0.000], p 1.0000" in lines[0]


def test_further_pairs_are_a_family_of_their_own(compared, found):
    rows = {(row["system"], row["baseline"], row["measure"]): row for row in compared(**PAIRS)["comparisons"]}
    for row in found["comparisons"]:
        assert row == rows[row["system"], "bm25", row["measure"]]
        assert row["family"] == "baseline"
    forth, back = rows["bm25", "noise", "R@5"], rows["noise", "bm25", "R@5"]
    assert forth["difference"] == -back["difference"]
    assert forth["difference_low"] == pytest.approx(-back["difference_high"], abs=1e-12)
    assert (forth["won"], forth["randomization_test"]) == (back["lost"], back["randomization_test"])
    # The smallest p-value of three comparisons with the baseline, and of four others.
    assert rows["best", "bm25", "RR@10"]["randomization_test_holm"] == pytest.approx(3 / 2001)
    assert rows["best", "same", "RR@10"]["randomization_test_holm"] == pytest.approx(4 / 2001)


def test_power_at_the_difference_that_is_seen(found):
    row, differences = row_of(found, "best"), (SYSTEMS["best"] - SYSTEMS["bm25"])[:, 0]
    # Level .05 over three comparisons with the baseline, two-sided, power .8.
    needed = ((NormalDist().inv_cdf(1 - 0.05 / 6) + NormalDist().inv_cdf(0.8)) * differences.std(ddof=1)) ** 2
    assert row["queries_needed"] == max(25, ceil(needed / 0.02**2))
    assert row["queries_to_decide"] == max(25, ceil(needed / differences.mean() ** 2))
    assert row_of(found, "same")["queries_to_decide"] is None


def test_comparisons_of_one_family_are_read_from_files_without_the_field(compared, tmp_path):
    content = compared(**PAIRS)
    for row in content["comparisons"]:
        del row["family"], row["queries_to_decide"]
    (tmp_path / "old.json").write_text(json.dumps(content))
    old = read_artifact(tmp_path / "old.json", Comparisons)
    assert {row.queries_to_decide for row in old.comparisons} == {None}
    assert "Holm's method over all 7 comparisons, for" in verdict_lines(old)[0]


@pytest.mark.parametrize(
    ("difference", "significant", "verdict"),
    [(0.1, True, "WIN"), (-0.1, True, "LOSS"), (0.1, False, "NOT SIGNIFICANT"), (0.0, False, "NOT SIGNIFICANT")],
)
def test_the_verdict_follows_sign_and_significance(difference, significant, verdict):
    assert judge(difference, significant, 25) == verdict


@pytest.mark.parametrize(
    ("number", "needed"),
    [
        (1, "at least 25 are needed"),
        # ((1.96 + 0.84) * 0.2 / 0.02)^2
        (24, "about 785 are needed to detect a difference of 0.02"),
    ],
)
def test_few_queries_give_no_verdict_but_the_number_that_would(compared, capsys, tmp_path, number, needed):
    around = np.resize([0.2 * np.sqrt(23 / 24), -0.2 * np.sqrt(23 / 24)], number)[:, None]
    for name, values in {"bm25": np.full((number, 1), 0.3), "best": 0.5 + around}.items():
        write_values(tmp_path / f"{name}.parquet", values, QUERIES[:number], MEASURES[:1])
    found = compared(names=("bm25", "best"))
    (line,) = lines_of(capsys)
    said = f"RR@10 {around.mean() + 0.2:+.3f}; {needed}"
    assert line.endswith(f"dev: TOO FEW QUERIES ({number})  best against bm25: {said}")
    row = row_of(found, "best")
    assert (row["verdict"], row["significant"]) == ("TOO FEW QUERIES", False)


def test_an_interval_that_seems_to_contradict_the_verdict_is_explained(compared, capsys):
    # Corrected over three pairs, a difference is not significant whose own interval excludes 0.
    assert not any(row["significant"] for row in compared(alpha=0.001)["comparisons"])
    lines = lines_of(capsys)
    assert ["interval and p disagree" in line for line in lines] == [False, False, True]
    assert "corrected over 3 comparisons with bm25" in lines[2]


def test_identical_systems_do_not_differ_and_a_clear_difference_is_significant_after_correction(found):
    row = row_of(found, "same")
    assert (row["randomization_test"], row["randomization_test_holm"]) == (1, 1)
    assert (row["difference_low"], row["difference"], row["difference_high"]) == (0, 0, 0)
    assert (row["won"], row["tied"], row["lost"], row["significant"]) == (0, 40, 0, False)
    row = row_of(found, "best")
    assert row["randomization_test"] == 1 / 2001
    assert row["randomization_test_holm"] == pytest.approx(3 / 2001)
    assert row["significant"]
    assert not row_of(found, "noise")["significant"]


def test_the_shortest_list_with_the_recall_of_the_baselines_longest(found):
    lengths = {row.pop("system"): row for row in found["list_lengths"]}
    assert lengths == {
        "same": {"depth": 3, "recall": 0.5, "baseline_depth": 3, "baseline_recall": 0.5},
        "noise": {"depth": None, "recall": None, "baseline_depth": 3, "baseline_recall": 0.5},
        "best": {"depth": 2, "recall": 0.5, "baseline_depth": 3, "baseline_recall": 0.5},
    }


def test_tables_have_all_values_and_the_largest_gains_and_losses(found, tmp_path):
    written = [{name: "" if one is None else str(one) for name, one in row.items()} for row in found["comparisons"]]
    assert read_rows(tmp_path / "x.csv") == written
    rows = read_rows(tmp_path / "x.queries.csv")
    assert {row["system"] for row in rows} == {"noise", "best"}
    noise = [row for row in rows if (row["system"], row["measure"]) == ("noise", "RR@10")]
    gaps = SYSTEMS["noise"][:, 0] - SYSTEMS["bm25"][:, 0]
    shown = [float(row["difference"]) for row in noise]
    assert shown == pytest.approx([*sorted(gaps[gaps > 0])[::-1][:10], *sorted(gaps[gaps < 0])[:10]])
    assert noise[0]["query"] == f"what is {noise[0]['query_id']}"
    assert float(noise[0]["value"]) - float(noise[0]["baseline"]) == float(noise[0]["difference"])
    assert {row["explorer"] for row in rows} == {""}


def test_each_of_these_queries_has_its_address_in_the_explorer(compared, found, tmp_path):
    once = (tmp_path / "x.csv").read_bytes()
    assert compared(explorer="../explore/index.html") == found
    assert (tmp_path / "x.csv").read_bytes() == once
    for row in read_rows(tmp_path / "x.queries.csv"):
        page, _, state = row["explorer"].partition("#")
        assert page == "../explore/index.html"
        wanted = {"a": row["system"], "b": "bm25", "measure": row["measure"], "q": row["query_id"]}
        assert dict(parse_qsl(state)) == wanted


def test_one_query_and_one_system(compared, tmp_path):
    for name in SYSTEMS:
        write_values(tmp_path / f"{name}.parquet", SYSTEMS[name][:1], QUERIES[:1])
    row = row_of(compared(), "best")
    assert (row["randomization_test"], row["significant"]) == (1.0, False)
    assert row["mean_low"] == row["mean"] == row["mean_high"]
    assert compared(names=("bm25",))["comparisons"] == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"queries": QUERIES[::-1]}, "found 40 queries that differ from those of"),
        ({"measures": ("RR@10", "R@6")}, "found 2 measures that differ from those of"),
    ],
)
def test_systems_with_other_queries_or_measures_are_refused(options, refused, tmp_path, change, words):
    write_values(tmp_path / "best.parquet", SYSTEMS["best"], **change)
    assert refused("compare", **options()).startswith(f"{tmp_path / 'best.parquet'}: {words}")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"systems": ["bm25", "same"]}, "--per-query: found 4 files, expected 2"),
        ({"systems": ["bm25", "same", "same", "best"]}, "--systems: found 'same' twice"),
    ],
)
def test_invalid_options_are_refused(options, refused, changes, words):
    assert refused("compare", **options(**changes)).startswith(words)
