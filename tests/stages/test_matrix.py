import csv
import re
from statistics import fmean

import numpy as np
import pytest
from scipy import stats

from cort.config import paths
from cort.config.load import complete
from cort.config.stored import write_experiment
from cort.evaluation.measures import Measures
from cort.evaluation.values import write_values
from cort.formats import tables
from cort.formats.artifacts import write_artifact
from cort.reporting.format import MISSING
from tests.support import common
from tests.support.browser import cut_in, needs_browser
from tests.support.reporting import NASTY, Outline

MEASURES = ("nDCG@10", "RR@10", "R@100")
QUERIES = 30
BASE = np.full(QUERIES, 0.5)
# Every query is gained by as much as every other, so half of the 2^n assignments of signs reach the observed sum if n
# queries differ: only those with all signs alike, and p is 2 / 2^n.
CERTAIN, DOUBTFUL = 12, 6


def gains(queries, by=0.2):
    return BASE + np.where(np.arange(QUERIES) < queries, by, 0)


SAME = BASE
#: dataset -> split -> system -> nDCG@10 per query; R@100 is half as much
VALUES = {
    "one": {"test": {"bm25": BASE, "sure": gains(CERTAIN), "unsure": gains(DOUBTFUL)}},
    "two": {"test": {"bm25": BASE - 0.3, "unsure": gains(DOUBTFUL) - 0.3}},
    "three": {
        "x": {"bm25": BASE, "unsure": gains(CERTAIN, -0.1), "sure": gains(20)},
        "y": {"bm25": BASE, "unsure": SAME, "sure": gains(QUERIES, 0.4)},
    },
}


def config_of(dataset, splits, measures=MEASURES, baseline="bm25", keys=None, title=NASTY):
    systems = {name: {"run": {split: "x.trec" for split in splits}} for names in splits.values() for name in names}
    if "bm25" in systems:
        systems["bm25"] = {"retrieve": "bm25"}
    files = {"queries": "q.tsv", "qrels": "q.qrels"}
    return {
        "dataset": dataset,
        "title": f"{NASTY} {dataset}" if title is NASTY else title,
        "collection": {"passages": "p.tsv"},
        "splits": {
            **{split: files | (keys or {}) for split in splits},
            "unjudged": {"queries": "u.tsv"},
            "validation": files | {"qrels": "v"},
        },
        "systems": systems,
        "evaluation": {"measures": list(measures), "baseline": baseline},
    }


def write(root, dataset, splits, shared=(), **settings):
    """Write what the matrix reads of an experiment; `shared` are texts of further queries."""
    folder = root / "results" / dataset
    write_experiment(folder / "experiment.yaml", complete(config_of(dataset, splits, **settings), "x.yaml").config)
    common.write_file(root / f"{dataset}.yaml", f"dataset: {dataset}\n")
    (folder / "report").mkdir(exist_ok=True)
    (folder / "report" / "index.html").touch()
    measures = settings.get("measures", MEASURES)
    for split, systems in splits.items():
        for name, values in systems.items():
            path = paths.within(folder, paths.PER_QUERY, split=split, system=name)
            factors = [1 if measure == "nDCG@10" else 0.5 for measure in measures]
            rows = [dict(zip(measures, (float(value) * one for one in factors), strict=True)) for value in values]
            write_values(path, {f"q{number}": row for number, row in enumerate(rows)})
        texts = [f"{dataset} {split} {number}" for number in range(len(values))] + list(shared)
        queries = [(f"q{number}", text) for number, text in enumerate(texts)]
        common.write_rows(paths.within(folder, paths.QUERIES, split=split), tables.QUERIES, queries)
    return str(folder)


def options(root, experiments=tuple(VALUES), **more):
    folders = [root / "results" / name for name in experiments]
    return {"experiments": folders, "output_folder": root / "results" / "matrix", **more}


@pytest.fixture
def root(tmp_path):
    for dataset, splits in VALUES.items():
        write(tmp_path, dataset, splits)
    return tmp_path


def rows_of(root):
    with open(root / "results" / "matrix" / "matrix.csv", encoding="utf-8", newline="") as handle:
        return {(row["measure"], row["system"]): row for row in csv.DictReader(handle)}


def numbers(row, *keys):
    return [float(row[key]) for key in keys]


def page_in(root):
    text = (root / "results" / "matrix" / "index.html").read_text("utf-8")
    return text, Outline(text)


@pytest.fixture
def page(root, stage):
    stage("matrix", **options(root))
    return page_in(root)[1]


def test_rows_are_systems_and_columns_collections_with_judgements(root, page):
    found = rows_of(root)
    assert list(found) == [(measure, name) for measure in ("nDCG@10", "R@100") for name in ("bm25", "sure", "unsure")]
    columns = ["one/test", "two/test", "three/x", "three/y", "mean", "difference", "low", "high", "collections"]
    assert list(found["R@100", "sure"]) == ["measure", "system", *columns]
    # A part for each measure.
    assert [*page.tables] == ["matrix-1", "matrix-2"]
    cells = page.tables["matrix-1"]
    assert [re.search(r"(\w+, \w+ \(\d+\))$", cell)[1] for cell in cells[0][1:5]] == [
        f"{name} ({QUERIES})" for name in ("one, test", "two, test", "three, x", "three, y")
    ]
    # What an experiment lacks is empty.
    assert (found["nDCG@10", "sure"]["two/test"], found["nDCG@10", "sure"]["collections"]) == ("", "3")
    assert [row[0] for row in cells[1:]] == ["bm25", "sure", "unsure"]
    assert cells[2][2] == MISSING


def test_experiments_of_one_title_are_told_apart_by_their_datasets(root, stage):
    for dataset in ("one", "two"):
        write(root, dataset, VALUES[dataset], title="documents")
    stage("matrix", **options(root))
    headings = page_in(root)[1].tables["matrix-1"][0][1:4]
    assert headings == [f"one, test ({QUERIES})", f"two, test ({QUERIES})", f"{NASTY} three, x ({QUERIES})"]


def test_means_differences_and_intervals_are_those_of_the_values(root, page):
    found = rows_of(root)
    for factor, measure in ((1, "nDCG@10"), (0.5, "R@100")):
        for name, kept in (("sure", 3), ("unsure", 4)):
            pairs = [
                (factor * fmean(systems[name]), factor * fmean(systems["bm25"]))
                for splits in VALUES.values()
                for systems in splits.values()
                if name in systems
            ]
            differences = [mean - base for mean, base in pairs]
            low, high = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
            expected = [fmean(mean for mean, _ in pairs), fmean(differences), low, high, kept]
            row = found[measure, name]
            assert numbers(row, "mean", "difference", "low", "high", "collections") == pytest.approx(expected)
    assert numbers(found["nDCG@10", "bm25"], "one/test", "two/test", "mean", "collections") == pytest.approx(
        [0.5, 0.2, (3 * 0.5 + 0.2) / 4, 4]
    )


def test_marks_are_significant_after_holms_correction_within_the_collection(page):
    rows = {row[0]: row[1:5] for row in page.tables["matrix-1"][1:4]}
    marked = {name: ["*" in cell for cell in cells] for name, cells in rows.items()}
    # On `one`, p is 2 / 2^12 and 2 / 2^6, which Holm's method turns into twice .0005, and .031.
    assert marked == {
        "bm25": [False, False, False, False],
        "sure": [True, False, True, True],
        "unsure": [True, True, True, False],
    }


def test_the_family_of_a_test_is_the_systems_of_a_collection(tmp_path, stage):
    write(tmp_path, "alone", {"test": {"bm25": BASE, "unsure": gains(DOUBTFUL)}})
    write(tmp_path, "beside", {"test": {"bm25": BASE, "unsure": gains(DOUBTFUL), "same": SAME}})
    # With fewer than 25 queries, nothing is significant.
    few = {"bm25": BASE[:24], "unsure": gains(24)[:24]}
    write(tmp_path, "few", {"test": few})
    stage("matrix", **options(tmp_path, ("alone", "beside", "few")))
    row = next(row for row in page_in(tmp_path)[1].tables["matrix-1"] if row[0] == "unsure")
    # p is 2 / 2^6 = .031 alone, and twice as much with another system.
    assert ["*" in cell for cell in row[1:4]] == [True, False, False]


def test_one_or_two_collections_have_no_interval(root, stage):
    stage("matrix", **options(root, ("one", "two")))
    row = rows_of(root)["nDCG@10", "unsure"]
    assert [row[key] for key in ("low", "high", "collections")] == ["", "", "2"]
    assert numbers(row, "difference") == pytest.approx([DOUBTFUL * 0.2 / QUERIES])


def test_a_collection_without_the_baseline_counts_for_no_average(root, stage):
    write(root, "four", {"test": {"sure": BASE}}, baseline="sure")
    stage("matrix", **options(root, ("one", "four")))
    row = rows_of(root)["nDCG@10", "sure"]
    assert numbers(row, "four/test", "mean", "collections") == pytest.approx([0.5, fmean(gains(CERTAIN)), 1])


def test_the_page_is_sound_and_its_links_lead_to_reports(root, page):
    page.check()
    links = page.values("href")
    folder = root / "results" / "matrix"
    assert [link for link in links if link != "data:," and not (folder / link).is_file()] == []
    # Each cell: two measures of three systems, two where one is missing.
    assert {name: links.count(f"../{name}/report/index.html") for name in VALUES} == {"one": 6, "two": 4, "three": 12}


@needs_browser
def test_nothing_of_the_page_is_cut_or_hidden_at_any_width(root, page):
    assert cut_in(root / "results" / "matrix" / "index.html") == []


def test_the_page_begins_with_what_the_best_system_gains(root, page, stage):
    text, _ = page_in(root)
    # Of the systems that most collections have.
    lost = "unsure beats bm25 in nDCG@10 on 2 of 4 collections, significantly on 2; mean +0.010."
    assert f'<p class="lead">{lost} 3 systems on 4 test collections.' in text
    stage("matrix", **options(root, ("one", "three")))
    assert "sure beats bm25 in nDCG@10 on 3 of 3 collections, significantly on 3; mean +0.204." in page_in(root)[0]
    write(root, "only", {"test": {"bm25": BASE}})
    stage("matrix", **options(root, ("only",)))
    assert '<p class="lead">1 system on 1 test collection.' in page_in(root)[0]


def test_all_formats_have_the_same_rows_and_are_the_same_again(root, page, stage):
    folder = root / "results" / "matrix"
    text = (folder / "matrix.tex").read_text("utf-8")
    rows = [line.split(" & ") for line in text.splitlines() if " & " in line]
    assert len(rows) == 1 + 6
    # The best of its column and significant; missing.
    assert rows[2][:3] == ["sure", r"\textbf{0.580}$^{*}$", "--"]
    assert "Holm" in text
    once = common.contents(folder)
    stage("matrix", **options(root))
    assert common.contents(folder) == once


def test_an_experiment_may_be_named_by_its_config_and_another_measure_chosen(root, monkeypatch, stage):
    monkeypatch.chdir(root)
    stage("matrix", experiments="two.yaml", measures="RR@10", output_folder="out")
    text = (root / "out" / "index.html").read_text("utf-8")
    assert "../results/two/report/index.html" in Outline(text).values("href")
    assert "RR@10" in text


def test_costs_are_shown_by_collection(root, stage):
    folder = root / "results" / "one"
    means = Measures("bm25", "test", 1, QUERIES, {"nDCG@10": 0.5})
    write_artifact(paths.within(folder, paths.MEASURES, split="test", system="bm25"), means)
    common.write_rows(paths.within(folder, paths.PASSAGES), tables.PASSAGES, [("1", "a"), ("2", "b")])
    common.write_files(folder, {"lexical/bm25/index/manifest.json": "x" * 60})
    stage("matrix", **options(root))
    text, page = page_in(root)
    assert page.tables["costs-1"][1] == ["bm25", "0.500", MISSING, MISSING, MISSING, "30", "nDCG@10"]
    assert "one/test: the first measure" in text
    lines = (root / "results" / "matrix" / "costs.csv").read_text("utf-8").splitlines()
    assert lines[1] == "one/test,bm25,0.5,,,,30.0,nDCG@10"


def test_collections_that_share_queries_are_warned_of(root, capsys, stage):
    for name in ("one", "two"):
        write(root, name, VALUES[name], shared=["what is a dog", "what is a cat"])
    # The second time, the same collection twice.
    for other, experiments, shared in (("two", tuple(VALUES), 2), ("one", ("one", "one"), QUERIES + 2)):
        stage("matrix", **options(root, experiments))
        lines = capsys.readouterr().err.splitlines()
        [warning] = [line.partition(" WARNING ")[2] for line in lines if " WARNING " in line]
        names = "one/test (1) and one/test (2)" if other == "one" else "one/test and two/test"
        assert warning.startswith(f"{names} share {shared} queries")
        assert warning in page_in(root)[0]


@pytest.mark.parametrize(
    ("more", "experiments", "words"),
    [
        ({"measures": "P@3"}, ["one"], "one/experiment.yaml: found no P@3 of test"),
        # It is in the files, but no longer in the experiment.
        ({"measures": "RR@10"}, ["fewer"], "fewer/experiment.yaml: found no RR@10 of test"),
        ({}, ["one", "bare"], "bare/experiment.yaml: found no such file"),
        ({}, ["unjudged"], "--experiments: found no judgements"),
        ({}, ["unlike"], "found 30 queries that differ from those of"),
        ({}, ["one", "asked"], "found LLM and human labels, expected labels of one kind"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(root, refused, more, experiments, words):
    (root / "results" / "bare").mkdir()
    config = config_of("unjudged", {"test": ["bm25"]})
    del config["splits"]["test"]["qrels"], config["splits"]["validation"]
    write_experiment(root / "results" / "unjudged" / "experiment.yaml", complete(config, "x.yaml").config)
    folder = write(root, "unlike", {"test": {"bm25": BASE, "sure": BASE}})
    path = paths.within(folder, paths.PER_QUERY, split="test", system="sure")
    write_values(path, {f"p{number}": dict.fromkeys(MEASURES, 0.5) for number in range(QUERIES)})
    write(root, "asked", {"test": {"bm25": BASE}}, keys={"labels": "LLM"})
    write(root, "fewer", {"test": {"bm25": BASE}})
    config = complete(config_of("fewer", {"test": ["bm25"]}, measures=["nDCG@10"]), "x.yaml").config
    write_experiment(root / "results" / "fewer" / "experiment.yaml", config)
    assert words in refused("matrix", **options(root, experiments, **more))
    assert not (root / "results" / "matrix").exists()


def test_published_numbers_have_a_row_and_a_group_is_one_column(tmp_path, stage):
    for number, dataset in enumerate("abc"):
        keys = {"published": {"bm25": {"nDCG@10": 0.4 + number / 10}}}
        keys |= {"group": "forums"} if number else {}
        write(tmp_path, dataset, {"test": {"bm25": BASE + number / 10, "best": BASE + 0.3}}, keys=keys)
    stage("matrix", **options(tmp_path, "abc"))
    found = rows_of(tmp_path)
    own, published = found["nDCG@10", "bm25"], found["nDCG@10", "bm25 (published)"]
    assert numbers(own, "a/test", "forums", "mean") == pytest.approx([0.5, 0.65, 0.575])
    assert numbers(published, "a/test", "forums", "mean") == pytest.approx([0.4, 0.55, 0.475])
    assert numbers(published, "difference", "collections") == pytest.approx([-0.1, 2])
    assert found["R@100", "bm25 (published)"]["forums"] == ""
    assert page_in(tmp_path)[1].tables["matrix-1"][0][1:3] == [f"{NASTY} a, test ({QUERIES})", "forums, mean of 2"]
