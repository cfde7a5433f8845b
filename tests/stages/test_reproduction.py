import copy
import csv
import json
import re
import subprocess
import sys

import pytest

from cort import reproduction
from cort.evaluation.curves import Consistency, Depths
from cort.evaluation.measures import Measures
from cort.reporting.labels import MISSING
from cort.reporting.reproduction.fidelity import Counts, Latency, Results, compare, count
from cort.reporting.reproduction.paper import Number, read_paper
from tests.support.common import ROOT, command_line, contents
from tests.support.reporting import NASTY, PAPER, Outline, write_paper

PAPERS = sorted((ROOT / "config" / "papers").glob("*.yaml"))
MEASURED = {"split": "dev", "relevance_level": 1, "queries": 7, "without_results": 0, "without_relevant": 0}
MEASURED |= {"judged": None}
RESULTS = {
    "measures": {"system": "bm25", "mean": {"RR@10": 0.1879}, **MEASURED},
    "both": {"system": "both", "mean": {"RR@10": 0.25}, **MEASURED},
    # Doubling the candidates adds 20 %, then 0.4 %; the third depth is not one of the paper's.
    "depths": {"system": "re", "split": "dev", "relevance_level": 1, "queries": 7, "depths": [1, 2, 3, 4],
               "measures": {"RR@10": [0.25, 0.3, 0.3, 0.3012]}, "saturation": {"RR@10": 2}},
    "consistency": {"system": "bm25", "split": "dev", "reference": "r", "queries": 7, "depths": [1, 9],
                    "consistency": [1, 0.5]},
    "latency": {"system": "bm25", "split": "dev", "milliseconds": {"1": 38.0, "32": 290.0005}},
}  # fmt: skip


def write(folder, paper=None):
    """Write a paper and results; options of the stage."""
    write_paper(folder, paper)
    for name, content in RESULTS.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    named = {f"{kind}_files": folder / f"{kind}.json" for kind in ("depths", "consistency", "latency")}
    named |= {"papers": folder / "paper.yaml", "measures_files": [folder / "measures.json", folder / "both.json"]}
    return {"title": NASTY, "dataset": "toy", **named, "output_folder": folder / "out"}


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduction")
    assert reproduction.main(command_line(write(folder))) == 0
    return folder / "out"


def test_known_answers(out):
    [paper] = json.loads((out / "reproduction.json").read_text("utf-8"))["papers"]
    assert paper["counts"] == {"within": 3, "off": 2, "not run": 1, "cannot be computed": 0}
    numbers = {(one["row"], one["column"]): one for one in paper["numbers"]}
    assert {key: (one["mark"], one["published"], one["ours"]) for key, one in numbers.items()} == {
        ("BM25", "MRR@10"): ("within", pytest.approx(0.187), 0.1879),
        ("BM25", "ms"): ("within", 290, 290.0005),
        ("Both", "MRR@10"): ("off", pytest.approx(0.2), 0.25),
        ("Both", "ms"): ("not run", 7, None),
        ("Both", "at 4"): ("off", pytest.approx(0.315), 0.3012),
        ("Re", "saturation of Quality"): ("within", 2, 2),
    }
    assert numbers["BM25", "MRR@10"]["difference"] == pytest.approx(0.0009)
    assert numbers["Both", "ms"]["not run because"] == "none of our systems corresponds to it"
    # Reasons of number, row, column and table add up.
    assert numbers["Both", "MRR@10"]["why ours may differ"] == [PAPER["reasons"]["seed"], "Another file", "All of it"]


def test_all_files_are_written_and_the_same_again(out):
    once = contents(out)
    tables = [f"tables/paper.table-1.{ending}" for ending in ("csv", "md", "tex")]
    figures = [f"figures/paper.figure-{number}.svg" for number in (1, 2)]
    assert sorted(once) == [*figures, "index.html", "numbers.csv", "reproduction.json", *tables]
    command = [sys.executable, "-m", "cort.reproduction", *command_line(write(out.parent))]
    subprocess.run(command, check=True, capture_output=True, env={"PYTHONHASHSEED": "7"}, cwd=ROOT)
    assert contents(out) == once


def test_a_table_has_a_row_per_number(out):
    with open(out / "tables" / "paper.table-1.csv", encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert len(rows) == 5
    assert [rows[0][name] for name in ("row", "column", "mark")] == ["BM25", "MRR@10", "within"]
    assert float(rows[0]["difference"]) == pytest.approx(0.0009)
    assert rows[3]["ours"] == ""
    assert "0.1870" in (out / "tables" / "paper.table-1.md").read_text("utf-8")


def page_in(folder):
    """The text of the page, with single blanks, and its outline."""
    text = (folder / "index.html").read_text("utf-8")
    return re.sub(r"\s+", " ", text), Outline(text)


def test_the_page_shows_numbers_in_the_papers_units_and_escapes_everything(out):
    text, page = page_in(out)
    page.check()
    assert "{{ 7 * 7 }}" in text
    assert "Of 6 published numbers 3 are reproduced within tolerance, 2 are off, 1 were not run, 0 cannot" in text
    assert page.tables["paper-table-1"][1:] == [
        ["BM25", "18.718.8 ✓", "290290 ✓", MISSING],
        ["Both", "20.025.0 ✗", "7not run", "31.530.1 ✗"],
    ]
    assert '18.7<small class="within">18.8 ✓</small>' in text
    assert "<li>Another file</li>" in text
    assert '<th scope="row">none of our systems corresponds to it</th><td class="number">1</td>' in text
    assert "Re saturates at 2 candidates in the paper, at 2 here (within)." in text


def test_figures_show_what_was_run(out):
    drawn = (out / "figures" / "paper.figure-1.svg").read_text("utf-8")
    assert all(words in drawn for words in ("Re (saturates at 2)", "Re, published", "consistency factor", "Sizes"))
    assert "Figure 2 of paper: not run." in (out / "figures" / "paper.figure-2.svg").read_text("utf-8")


def test_the_page_begins_with_coverage_and_shows_changes_and_sentences(tmp_path, stage):
    paper = copy.deepcopy(PAPER)
    first, second = paper["tables"]["table-1"]["rows"]
    first |= {"values": [18.7, 290, 9], "not_computed": "table"}
    second |= {"systems": ["both", "none", "re"], "change_from": "MRR@10", "changes": [None, None, 60]}
    second["values"] = [20, {"value": 7, "not_computed": "file"}, 31.5]
    place = {"split": "dev", "measure": "RR@10"}
    paper["claims"] = [
        {"section": "4.2", "text": "<Both> is better.", **place,
         "tests": [{"higher": {"system": "both"}, "than": {"system": "bm25"}, "by": 0.05}]},
        {"section": "4.3", "text": "It is worse.", "note": "Not so.", **place,
         "tests": [{"lower": {"system": "both"}, "than": 0.1}, {"near": {"system": "both"}, "to": {"system": "x"}}]},
        {"section": "4.4", "text": "Who knows.", **place, "tests": [{"near": {"system": "x"}, "to": 0.1}]},
    ]  # fmt: skip
    stage("reproduction", **write(tmp_path, paper))
    text, _ = page_in(tmp_path / "out")
    assert re.findall(r'<h2 id="([a-z]+)"', text)[:2] == ["coverage", "gate"]
    assert text.index("Coverage") < text.index("Cannot be computed: A paper") < text.index("Fidelity")
    for words in (
        "3 are reproduced within tolerance, 2 are off, 0 were not run, 2 cannot be computed.",
        # Reasons are those of the numbers; what has a value is computed, whatever its row says.
        f'{PAPER["reasons"]["file"]}</p> <ul class="why"><li>Table 1: Both, ms</li></ul>',
        f'{PAPER["reasons"]["table"]}</p> <ul class="why"><li>Table 1: BM25, at 4</li></ul>',
        '9.0<small class="not-run">cannot be computed</small>',
        '31.5 <span class="quiet">(+60 %)</span><small class="off">30.1 (+20 %) ✗</small>',
        "&lt;Both&gt; is better.",
        '<td class="within">holds <details><summary>1 comparison</summary>',
        "MRR@10 of both on dev 0.250, higher than MRR@10 of bm25 on dev 0.188, by at least 0.050: holds",
        '<td class="off">does not hold <details><summary>2 comparisons</summary>',
        "MRR@10 of both on dev 0.250, lower than the paper&#39;s number 0.100: does not hold",
        '<td class="not-run">not computed',
    ):
        assert words in text
    found = json.loads((tmp_path / "out" / "reproduction.json").read_text("utf-8"))["papers"][0]
    assert found["counts"] == {"within": 3, "off": 2, "not run": 0, "cannot be computed": 2}
    assert [one["outcome"] for one in found["claims"]] == ["holds", "does not hold", "not computed"]
    reasons = {one["not run because"] for one in found["numbers"] if one["mark"] == "cannot be computed"}
    assert reasons == {PAPER["reasons"]["file"], PAPER["reasons"]["table"]}


def test_a_rank_is_that_of_the_only_relevant_passage():
    def rank(mean, queries=1):
        found = Results({("s", "dev"): Measures("s", "dev", 1, queries, {"RR@1000": mean})})
        return compare(number(measure="rank", published=735, within=0), found)

    assert (rank(1 / 735).mark, rank(1 / 734).mark) == ("within", "off")
    assert rank(0.0).not_run_because == "not among the results of s on dev"
    assert rank(1 / 735, 2).not_run_because == "rank of s on dev was not measured"


def number(**changes):
    fields = {"where": "t", "row": "r", "column": "c", "published": 0.271, "system": "s", "split": "dev"}
    return Number(**{**fields, "measure": "RR@10", "within": 0.001, "because": "", "why": [], **changes})


def results(**values):
    measures = {("s", "dev"): Measures("s", "dev", 1, 7, values)}
    depths = {("s", "dev"): Depths("s", "dev", 1, 7, [1, 2], {"RR@10": [0.1, 0.2]}, {})}
    consistency = {("s", "dev"): Consistency("s", "dev", "r", 7, [1], [1.0])}
    return Results(measures, depths, consistency, {("s", "dev"): Latency("s", "dev", {"1": 8.0})})


def test_a_difference_of_just_the_tolerance_is_within():
    for ours in (0.271, 0.272, 0.27):
        assert compare(number(), results(**{"RR@10": ours})).mark == "within"
    for ours, mark in ((0.2721, "off"), (0.2699, "off"), (None, "not run")):
        assert compare(number(), results(**{"RR@10": ours})).mark == mark
    # A single query is a batch of one.
    assert compare(number(measure="latency", published=8), results()).mark == "within"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"system": None}, "none of our systems corresponds to it"),
        ({"system": "x"}, "no results of x on dev"),
        ({"split": "eval"}, "no results of s on eval"),
        ({"measure": "R@5"}, "R@5 of s on dev was not measured"),
        ({"measure": "rank"}, "rank of s on dev was not measured"),
        ({"measure": "latency@32"}, "its latency was not measured"),
        ({"depth": 5}, "the curve of s on dev has no point at 5 candidates"),
        ({"depth": 2, "system": "x"}, "no curve of x by candidates on dev"),
        ({"depth": 2, "measure": "R@5"}, "R@5 of s was not measured by candidates on dev"),
        ({"quantity": "saturation"}, "s on dev does not saturate on its curve"),
    ],
)
def test_why_a_number_was_not_run(changes, reason):
    verdict = compare(number(**changes), results(**{"RR@10": 0.271}))
    assert (verdict.mark, verdict.not_run_because, verdict.difference) == ("not run", reason, None)


def test_saturation_looks_at_the_papers_depths_alone():
    curve = Depths("s", "dev", 1, 7, [1, 2, 3, 4, 6], {"RR@10": [0.1, 0.2, 0.3, 0.4, 0.3]}, {"RR@10": 3})
    mine = Results({}, {("s", "dev"): curve})
    asked = number(quantity="saturation", published=3)
    assert compare(asked, mine).ours == 3
    assert compare(number(quantity="saturation", depths=(1, 2, 4)), mine).mark == "not run"


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: path.stem)
def test_without_results_no_published_number_was_run(path):
    numbers = [number for one in read_paper(path).exhibits for number in one.numbers]
    impossible = sum(number.not_computed is not None for number in numbers)
    found = count(compare(number, Results({})) for number in numbers)
    assert found == Counts(0, 0, len(numbers) - impossible, impossible)
    assert len(numbers) >= 4


def test_published_numbers_are_those_of_the_papers():
    """Some read off the papers once more, by hand."""
    papers = {path.stem: read_paper(path) for path in PAPERS}

    def cell(paper, table, row, column):
        tables = {one.name: one for one in papers[paper].tables}
        found = [one for label, cells in tables[table].rows if label == row for one in cells if one]
        return next(one for one in found if one.column == column)

    for place, published in {
        ("cort-2021", "table-1", "CoRT+BM25", "R@1000"): 0.949,
        ("cort-2021", "table-2", "CoRT", "MAP@1000"): 0.297,
        ("cort-2021", "table-3", "CoRT+BM25 e=32", "MRR@10"): 0.252,
        ("cort-2021", "table-4", "ANN, epsilon .4", "R@200"): 0.772,
        ("cort-2021", "table-4", "ANN, epsilon .4", "single (ms)"): 71,
        ("cort-trec-2020", "table-3", "CoRT+BM25→ELECTRA", "2020 nDCG@10"): 0.7566,
        ("repbert-2020", "table-2", "50", "DeepCT"): 0.361,
        ("repbert-2020", "table-3", "DeepCT", "+RepBERT"): 0.276,
        ("bert-reranking-2019", "table-1", "BERT large", "TREC-CAR MAP"): 0.335,
    }.items():
        assert cell(*place).published == pytest.approx(published)
    assert cell("repbert-2020", "table-2", "50", "DeepCT").system == "deepct-bert-large"
    assert cell("repbert-2020", "table-3", "DeepCT", "+RepBERT").system == "deepct+repbert"
    (figure,) = papers["cort-2021"].figures
    assert {one.row: one.published for one in figure.numbers} == {"BM25": 256, "CoRT+BM25": 64}


def test_all_mistakes_of_a_paper_are_named_at_once(tmp_path, capsys):
    paper = copy.deepcopy(PAPER)
    paper["tables"]["table-1"] |= {"why": ["x"], "tolerance": "far"}
    assert reproduction.main(command_line(write(tmp_path, paper))) == 1
    error = capsys.readouterr().err
    line = f"{tmp_path}/paper.yaml: tables.table-1."
    assert f"{line}why: found 'x', expected one of seed, file, table" in error
    assert f"{line}tolerance: found 'far', expected one of near, exact" in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("paper.yaml", "title: [", "paper.yaml: row 1: found no YAML ("),
        ("latency.json", RESULTS["latency"] | {"milliseconds": {"one": 1}}, "found the batch size 'one' at"),
        ("consistency.json", RESULTS["consistency"] | {"depths": [1]}, "found 2 values at consistency, expected 1"),
        (None, None, "--papers: found the name 'paper' twice"),
    ],
)
def test_other_broken_files_and_two_papers_of_one_name_are_refused(tmp_path, refused, name, content, words):
    named = write(tmp_path)
    if name:
        (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
    else:
        named["papers"] = [named["papers"]] * 2
    assert words in refused("reproduction", **named)
