import csv
import json
from statistics import fmean as mean
from urllib.parse import parse_qsl

import numpy as np
import pyarrow as pa
import pytest

from cort import compare
from cort.evaluation.comparisons import judge
from cort.evaluation.values import write_recall
from cort.evaluation.values import write_values as write_rows
from cort.formats import tables
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
def call(tmp_path):
    for name, values in SYSTEMS.items():
        write_values(tmp_path / f"{name}.parquet", values)
        write_recall(tmp_path / f"{name}.csv", RECALL[name])
    texts = [(query, f"what is {query}") for query in QUERIES]
    common.write_rows(tmp_path / "queries.parquet", tables.QUERIES, texts)

    def words(*more, names=tuple(SYSTEMS), baseline="bm25", folder="out"):
        files = [
            option
            for kind, ending in (("per-query", "parquet"), ("recall", "csv"))
            for option in (f"--{kind}", *(str(tmp_path / f"{name}.{ending}") for name in names))
        ]
        outputs = {"output": "x.json", "output-table": "x.csv", "output-queries": "x.queries.csv"}
        written = [word for name, file in outputs.items() for word in (f"--{name}", str(tmp_path / folder / file))]
        named = ["--baseline", baseline, "--systems", *names, "--queries", str(tmp_path / "queries.parquet")]
        return [*named, *files, *written, "--split", "dev", "--seed", "1", "--resamples", "2000", *more]

    return words


@pytest.fixture
def found(call, tmp_path):
    assert compare.main(call()) == 0
    return json.loads((tmp_path / "out/x.json").read_text())


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


def test_means_differences_and_counts_are_those_of_the_values(found):
    row, base, best = row_of(found, "best"), SYSTEMS["bm25"][:, 0], SYSTEMS["best"][:, 0]
    assert (row["mean"], row["baseline_mean"]) == (mean(best), mean(base))
    assert row["difference"] == pytest.approx((best - base).mean())
    assert (row["won"], row["tied"], row["lost"]) == ((best > base).sum(), (best == base).sum(), (best < base).sum())
    assert row["won"] > 30


def test_intervals_hold_the_means(found):
    for row in found["comparisons"]:
        assert row["mean_low"] <= row["mean"] <= row["mean_high"]
        assert row["baseline_low"] <= row["baseline_mean"] <= row["baseline_high"]
        assert row["difference_low"] <= row["difference"] <= row["difference_high"]
    best, noise = row_of(found, "best"), row_of(found, "noise")
    # The difference of systems that go together is known better than that of others.
    assert best["difference_high"] - best["difference_low"] < (noise["difference_high"] - noise["difference_low"]) / 3


def pairs_of(found):
    return {(row["system"], row["baseline"]): row["relation"] for row in found["comparisons"]}


PAIRS = ("--parts", "best=noise", "best=bm25", "--starts", "noise=same", "--contrasts", "best=same", "bm25=noise")


def test_pairs_are_compared_in_the_order_of_their_systems(call, tmp_path):
    assert compare.main(call(*PAIRS, folder="pairs")) == 0
    assert list(pairs_of(json.loads((tmp_path / "pairs/x.json").read_text())).items()) == [
        (("bm25", "noise"), "contrast"),
        (("same", "bm25"), "baseline"),
        (("noise", "same"), "start"),
        (("noise", "bm25"), "baseline"),
        (("best", "noise"), "part"),
        (("best", "bm25"), "part"),
        (("best", "same"), "contrast"),
    ]


def test_further_pairs_change_only_the_corrected_values(call, found, tmp_path):
    assert compare.main(call(*PAIRS, folder="pairs")) == 0
    pairs = json.loads((tmp_path / "pairs/x.json").read_text())
    rows = {(row["system"], row["baseline"], row["measure"]): row for row in pairs["comparisons"]}
    for row in found["comparisons"]:
        other = rows[row["system"], "bm25", row["measure"]]
        changed = {name for name in row if row[name] != other[name]}
        assert changed <= {"t_test_holm", "randomization_test_holm", "relation"}
    forth, back = rows["bm25", "noise", "R@5"], rows["noise", "bm25", "R@5"]
    assert forth["difference"] == -back["difference"]
    assert forth["difference_low"] == pytest.approx(-back["difference_high"], abs=1e-12)
    assert (forth["won"], forth["randomization_test"]) == (back["lost"], back["randomization_test"])
    # The smallest of seven p-values, of which three are equally small.
    assert rows["best", "bm25", "RR@10"]["randomization_test_holm"] == pytest.approx(7 / 2001)


def test_each_pair_has_a_line_with_its_verdict(call, capsys, tmp_path):
    assert compare.main(call(*PAIRS)) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if " against " in line]
    rows = json.loads((tmp_path / "out/x.json").read_text())["comparisons"]
    assert len(lines) == 7
    best = row_of({"comparisons": [row for row in rows if row["baseline"] == "same"]}, "best")
    numbers = f"{best['difference']:+.3f} [{best['difference_low']:+.3f}, {best['difference_high']:+.3f}]"
    assert lines[-1].endswith(f"dev: WIN              best against same: RR@10 {numbers}, p 0.0035; WIN in R@5")
    assert "dev: NOT SIGNIFICANT  same against bm25: RR@10 +0.000 [+0.000, +0.000], p 1.0000" in lines[1]


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
def test_few_queries_give_no_verdict_but_the_number_that_would(call, capsys, tmp_path, number, needed):
    around = np.resize([0.2 * np.sqrt(23 / 24), -0.2 * np.sqrt(23 / 24)], number)[:, None]
    for name, values in {"bm25": np.full((number, 1), 0.3), "best": 0.5 + around}.items():
        write_values(tmp_path / f"{name}.parquet", values, QUERIES[:number], MEASURES[:1])
    assert compare.main(call(names=("bm25", "best"))) == 0
    line = next(line for line in capsys.readouterr().err.splitlines() if " against " in line)
    found = f"RR@10 {around.mean() + 0.2:+.3f}; {needed}"
    assert line.endswith(f"dev: TOO FEW QUERIES ({number})  best against bm25: {found}")
    row = row_of(json.loads((tmp_path / "out/x.json").read_text()), "best")
    assert (row["verdict"], row["significant"]) == ("TOO FEW QUERIES", False)


def test_an_interval_that_seems_to_contradict_the_verdict_is_explained(call, capsys, tmp_path):
    # Corrected over three pairs, a difference is not significant whose own interval excludes 0.
    assert compare.main(call("--alpha", "0.001")) == 0
    assert not any(row["significant"] for row in json.loads((tmp_path / "out/x.json").read_text())["comparisons"])
    lines = [line for line in capsys.readouterr().err.splitlines() if " against " in line]
    assert ["interval and p disagree" in line for line in lines] == [False, False, True]
    assert "corrected for all 3 comparisons" in lines[2]


def test_identical_systems_do_not_differ_and_a_clear_difference_is_significant_after_correction(found):
    row = row_of(found, "same")
    assert (row["t_test"], row["randomization_test"], row["randomization_test_holm"]) == (1, 1, 1)
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


def test_the_table_has_the_same_values_as_the_json(found, tmp_path):
    rows = [{name: "" if value is None else str(value) for name, value in row.items()} for row in found["comparisons"]]
    assert read_rows(tmp_path / "out/x.csv") == rows


def test_the_largest_gains_and_losses_of_each_system_and_measure(found, tmp_path):
    rows = read_rows(tmp_path / "out/x.queries.csv")
    assert {row["system"] for row in rows} == {"noise", "best"}
    noise = [row for row in rows if (row["system"], row["measure"]) == ("noise", "RR@10")]
    gaps = SYSTEMS["noise"][:, 0] - SYSTEMS["bm25"][:, 0]
    shown = [float(row["difference"]) for row in noise]
    assert shown == pytest.approx([*sorted(gaps[gaps > 0])[::-1][:10], *sorted(gaps[gaps < 0])[:10]])
    assert noise[0]["query"] == f"what is {noise[0]['query_id']}"
    assert float(noise[0]["value"]) - float(noise[0]["baseline"]) == float(noise[0]["difference"])
    assert {row["explorer"] for row in rows} == {""}


def test_each_of_these_queries_has_its_address_in_the_explorer(call, tmp_path):
    assert compare.main(call("--explorer", "../explore/index.html")) == 0
    rows = read_rows(tmp_path / "out/x.queries.csv")
    for row in rows:
        page, _, state = row["explorer"].partition("#")
        assert page == "../explore/index.html"
        wanted = {"a": row["system"], "b": "bm25", "measure": row["measure"], "q": row["query_id"]}
        assert dict(parse_qsl(state)) == wanted


def test_same_input_same_bytes(call, found, tmp_path):
    assert compare.main(call(folder="again")) == 0
    for name in ("x.json", "x.csv", "x.queries.csv"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()


def test_one_query_and_one_system(call, tmp_path):
    for name in SYSTEMS:
        write_values(tmp_path / f"{name}.parquet", SYSTEMS[name][:1], QUERIES[:1])
    assert compare.main(call()) == 0
    row = row_of(json.loads((tmp_path / "out/x.json").read_text()), "best")
    tests = [row[name] for name in ("t_test", "t_test_holm", "randomization_test", "significant")]
    assert tests == [None, None, 1.0, False]
    assert row["mean_low"] == row["mean"] == row["mean_high"]
    assert compare.main(call(names=("bm25",))) == 0
    assert json.loads((tmp_path / "out/x.json").read_text())["comparisons"] == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"queries": QUERIES[::-1]}, "found 40 queries that differ from those of"),
        ({"measures": ("RR@10", "R@6")}, "found 2 measures that differ from those of"),
    ],
)
def test_systems_with_other_queries_or_measures_are_refused(call, complaint, tmp_path, change, words):
    write_values(tmp_path / "best.parquet", SYSTEMS["best"], **change)
    line = complaint(compare.main, call(), tmp_path / "out/x.json")
    assert line.startswith(f"{tmp_path / 'best.parquet'}: {words}")


def test_damaged_files_are_refused(call, complaint, tmp_path):
    table = tables.read_table(tmp_path / "best.parquet", tables.PER_QUERY)
    tables.write_table(tmp_path / "best.parquet", table.slice(0, 79))
    assert "found 79 rows, expected every measure of every query" in complaint(compare.main, call())
    tables.write_table(tmp_path / "best.parquet", table.take(list(range(80))[::-1]))
    assert "differ from those of" in complaint(compare.main, call())
    tables.write_table(tmp_path / "best.parquet", table.take([1, 0, *range(2, 80)]))
    assert "found" in complaint(compare.main, call())
    write_values(tmp_path / "best.parquet", SYSTEMS["best"])
    rows = ("", "2,0.5\n", "1,x\n", "1\n", "1,nan\n", "1,0.5\n2,inf\n")
    for text in ("", "k,r\n1,1\n", *(f"depth,recall\n{row}" for row in rows)):
        (tmp_path / "best.csv").write_text(text, encoding="latin-1")
        assert "expected the columns depth and recall" in complaint(compare.main, call())


@pytest.mark.parametrize("value", [np.nan, np.inf, -0.5, 1.5])
def test_values_that_no_measure_gives_are_refused(call, complaint, tmp_path, value):
    table = tables.read_table(tmp_path / "best.parquet", tables.PER_QUERY)
    values = table["value"].to_numpy().copy()
    values[6] = value
    tables.write_table(tmp_path / "best.parquet", table.set_column(2, "value", pa.array(values)))
    line = complaint(compare.main, call(), tmp_path / "out/x.json")
    expected = "expected a number from 0 to 1; delete"
    assert line.startswith(f"{tmp_path}/best.parquet: row 7: found the value {value}, {expected}")
    tables.write_table(tmp_path / "best.parquet", table.slice(0, 0))
    assert "best.parquet: found 0 rows, expected every measure" in complaint(compare.main, call())


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--baseline", "none"), "--baseline: found 'none', expected one of bm25, same, noise, best; name a system"),
        (("--systems", "bm25", "same"), "--per-query: found 4 files, expected 2, one per system"),
        (("--systems", "bm25", "same", "same", "best"), "--systems: found 'same' twice, expected each system once"),
        (("--parts", "best=none"), "--parts: found 'best=none', expected two of bm25, same, noise, best, joined by ="),
        (("--starts", "best"), "--starts: found 'best', expected two of bm25, same, noise, best, joined by ="),
        (("--contrasts", "best=best"), "--contrasts: found 'best=best', expected two of bm25, same, noise, best"),
    ],
)
def test_invalid_options_are_refused(call, complaint, tmp_path, words, line):
    assert complaint(compare.main, call(*words), tmp_path / "out/x.json").startswith(line)
