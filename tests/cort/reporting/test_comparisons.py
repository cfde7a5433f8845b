import json

import pytest

from cort import report
from cort.evaluation.comparisons import Comparisons
from cort.evaluation.measures import Measures
from cort.formats.artifacts import read_artifact, write_artifact
from cort.reporting.labels import MINUS, MISSING, p_value, shown_interval
from cort.reporting.page import systems_blocks
from cort.reporting.tables import (
    comparisons_table,
    legend,
    lengths_table,
    significant_differences,
    systems_table,
    to_csv,
    to_latex,
    to_markdown,
)
from cort.system.errors import InputError

NUMBERS = {
    "mean": 0.274,
    "mean_low": 0.26,
    "mean_high": 0.29,
    "baseline_mean": 0.187,
    "baseline_low": 0.18,
    "baseline_high": 0.2,
    "difference": 0.087,
    "difference_low": -0.01,
    "difference_high": 0.1,
    "t_test": 1e-9,
    "t_test_holm": 3e-9,
    "randomization_test": 0.0001,
    "randomization_test_holm": 0.0003,
    "significant": True,
    "won": 2000,
    "tied": 4000,
    "lost": 980,
    "queries_needed": 400,
}
MEASURES = [
    Measures("bm25", "dev", 1, 6980, {"RR@10": 0.187, "R@50": 0.592}),
    Measures("cort_1", "dev", 1, 6980, {"RR@10": 0.274, "R@50": 0.664}),
    Measures("bm25", "dl19", 2, 43, {"AP": 0.29}),
    Measures("cort_1", "dl19", 2, 43, {"AP": 0.297}),
]


def content(split="dev", measures=(("RR@10", True), ("R@50", False))):
    rows = [
        {
            **{"system": "cort_1", "baseline": other, "relation": relation, "measure": name, **NUMBERS},
            **{"verdict": "WIN" if yes and other == "bm25" else "NOT SIGNIFICANT", "significant": yes},
        }
        for other, relation in (("bm25", "baseline"), ("cort_0", "start"))
        for name, yes in measures
    ]
    length = {"system": "cort_1", "depth": 137, "recall": 0.859, "baseline_depth": 1000, "baseline_recall": 0.857}
    unreached = {**length, "system": "weak", "depth": None, "recall": None}
    settings = {"confidence": 0.95, "resamples": 10_000, "alpha": 0.05, "seed": 42}
    found = {"split": split, "baseline": "bm25", "queries": 6980, **settings}
    return found | {"comparisons": rows, "list_lengths": [length, unreached]}


@pytest.fixture
def write(tmp_path):
    def written(found, name="dev.json"):
        (tmp_path / name).write_text(json.dumps(found))
        return tmp_path / name

    return written


@pytest.fixture
def both(write):
    """Splits with measures of their own each."""
    return [
        read_artifact(write(content()), Comparisons),
        read_artifact(write(content("dl19", [("AP", False)]), "dl19.json"), Comparisons),
    ]


def test_significant_differences_have_an_asterisk_that_a_note_explains(both):
    assert significant_differences(both) == {("dev", "cort_1", "RR@10")}
    table = systems_table(MEASURES, both)
    lines = to_markdown(table).splitlines()
    assert [line.count("\\*") for line in lines] == [0, 0, 0, 1, 0, 0, 0, 1]
    assert "**0.274**\\* |" in lines[3]
    assert lines[-1].startswith(
        "\\* differs significantly from bm25: p of the paired randomisation test (10,000 random"
    )
    assert lines[-1].endswith("is at most 0.05.")
    latex = to_latex(table)
    assert r"\textbf{0.274}* &" in latex
    assert latex.splitlines()[-1].startswith("% * differs significantly")
    assert "*" not in to_csv(table)


def test_without_comparisons_nothing_is_marked():
    assert legend([]) == ""
    table = systems_table(MEASURES, [])
    assert table == systems_table(MEASURES)
    assert "*" not in to_markdown(table).replace("**", "")


def test_the_page_marks_the_difference_and_each_split_has_its_measures(both):
    dev, dl19 = systems_blocks(MEASURES, "bm25", both)
    assert (dev.measures, dl19.measures) == (["MRR@10", "R@50"], ["MAP"])
    assert [value.significant for value in dev.rows[1][1]] == [True, False]
    assert [value.significant for value in dl19.rows[1][1]] == [False]
    assert "at most 0.05" in dev.legend


def test_the_table_of_comparisons_has_every_digit(both):
    lines = to_csv(comparisons_table(both)).splitlines()
    assert lines[0].startswith("split,baseline,system,relation,measure,verdict,mean,mean_low,mean_high,baseline_mean,")
    assert lines[1] == (
        "dev,bm25,cort_1,baseline,MRR@10,WIN,0.274,0.26,0.29,0.187,0.18,0.2,0.087,-0.01,0.1,1e-09,3e-09,0.0001,0.0003,yes,2000,4000,980,400"
    )
    assert [line.split(",")[:2] for line in lines[1:]] == [
        *(["dev", other] for other in ("bm25", "bm25", "cort_0", "cort_0")),
        *(["dl19", other] for other in ("bm25", "cort_0")),
    ]


def test_the_table_of_lists_leaves_empty_what_was_not_reached(both):
    assert to_csv(lengths_table(both)).splitlines()[1:3] == [
        "dev,cort_1,137,0.859,bm25,1000,0.857",
        "dev,weak,,,bm25,1000,0.857",
    ]


def test_numbers_for_readers():
    assert [p_value(value) for value in (None, 0.00009, 0.0001, 0.25, 1.0)] == [
        MISSING,
        "<.0001",
        ".0001",
        ".2500",
        "1.0000",
    ]
    assert shown_interval(0.1, 0.25) == "0.100 to 0.250"
    assert shown_interval(-0.01, 0.1, sign=True) == f"{MINUS}0.010 to +0.100"


def test_the_report_shows_all_of_it(write, tmp_path):
    paths = []
    for one in MEASURES:
        path = tmp_path / f"{one.split}.{one.system}.measures.json"
        write_artifact(path, one)
        paths.append(str(path))
    few = content("dl19", [("AP", False)])
    few["comparisons"][0]["verdict"] = "TOO FEW QUERIES"
    comparisons = [str(write(content())), str(write(few, "dl19.json"))]
    words = ["--title", "x", "--dataset", "toy", "--measures-files", *paths, "--baseline", "bm25"]
    assert report.main([*words, "--comparisons", *comparisons, "--output-folder", str(tmp_path / "report")]) == 0
    page = (tmp_path / "report/index.html").read_text()
    assert "<small>+0.087*</small>" in page
    assert "Compared with bm25</h2>" in page
    # Under the systems, a row per pair; below, the baseline's alone.
    assert page.count('<th scope="row">cort_1</th><td>bm25</td><td><span class="verdict win">WIN</span>') == 1
    assert page.count('<td>cort_0</td><td><span class="verdict not significant">NOT SIGNIFICANT</span>') == 2
    assert "TOO FEW QUERIES</span><small>about 400 are needed to detect a difference of 0.02</small>" in page
    assert "<small>p .0003†</small>" in page
    assert "† interval and p disagree: the interval is the bootstrap&#39;s, for this comparison alone" in page
    assert page.count('<th scope="row">cort_1</th><td>MRR@10</td>') == 1
    assert '<td class="number">0.274<small>0.260 to 0.290</small></td>' in page
    assert f'<td class="number">+0.087*<small>{MINUS}0.010 to +0.100</small></td>' in page
    assert '<td class="number">&lt;.0001<small>(&lt;.0001)</small></td>' in page
    assert "2,000, 4,000, 980" in page
    assert '<th scope="row">cort_1</th><td class="number">137</td><td class="number">0.859</td>' in page
    assert '<th scope="row">weak</th><td class="number">not reached</td>' in page
    assert "the first 1,000 passages of bm25 (recall 0.857)" in page
    assert "137" in (tmp_path / "report/tables/lists.tex").read_text()


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("confidence", "high", "found 'high' at confidence, expected a number"),
        ("comparisons", {}, "found {} at comparisons, expected a list"),
        ("queries", -1, "found -1 at queries, expected a number from 0 on"),
    ],
)
def test_another_file_is_refused(write, key, value, words):
    with pytest.raises(InputError, match=f"dev.json: {words}"):
        read_artifact(write(content() | {key: value}), Comparisons)
