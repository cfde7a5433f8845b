import json
import re
import subprocess
import sys
from dataclasses import asdict, replace
from itertools import combinations

import pytest

from cort.evaluation.agreement import Agreement
from cort.evaluation.inspection import Finding
from cort.evaluation.measures import Judged, Measures
from cort.evaluation.overlap import Common, Overlap
from cort.formats.shards import Tokens
from cort.models.truncation import write_lengths
from cort.reporting.figures import NOTHING
from cort.reporting.format import MINUS, MISSING
from cort.reporting.results import files_of
from cort.training.outcome import Selection
from tests.support.browser import cut_in, needs_browser
from tests.support.common import command_line, contents
from tests.support.online import results_with, write_results
from tests.support.reporting import NASTY, Outline, comparisons

# What an experiment with a re-ranker and trainings has: no index, split without judgements, or latencies.
TABLES = ("systems", "comparisons", "lists", "costs", "judged", "stages")
FILES = [f"tables/{name}.{ending}" for name in TABLES for ending in ("csv", "tex")]
FILES += ["index.html", *(f"figures/{name}.svg" for name in ("recall", "costs", "depths", "training"))]
# Tables 1 and 2 of the CoRT paper.
BM25 = Measures("bm25", "dev", 1, 6980, {"RR@10": 0.187, "R@50": 0.592, "R@200": 0.738})
CORT = Measures("cort_1", "dev", 1, 6980, {"RR@10": 0.271, "R@50": None})
MEAN = {"Judged@10": 0.74, "P@10": 0.542, "P(judged_only=True)@10": 0.6, "AP": 0.29, "AP(judged_only=True)": 0.3}
# Section 4.2.2: 112 of 430, 2.6 of a query.
JUDGED = Measures("cort_1", "dl19", 2, 43, {"AP": 0.29}, judged=Judged(9260, 2501, 430, 112, MEAN))
SYSTEMS = {"bm25": {"retrieve": "bm25"}, "cort_1": {"retrieve": "e"}, "re": {"rerank": "cort_1", "reranker": "r"}}
TRAINED = {"base_model": "small", "training": {}, "checkpoint": "last"}


class Made:
    """Results in a folder, of which only what a test writes is there."""

    def __init__(self, folder, splits=("dev",), **settings):
        named = {name: {"queries": "q", "qrels": f"{name}.qrels"} for name in ("train", "validation", *splits)}
        settings = {
            "title": NASTY,
            "systems": SYSTEMS,
            "encoders": {"e": TRAINED},
            "rerankers": {"r": {"base_model": "small", "pairs": {"system": "bm25"}, "training": {}}},
            "training_depth": 100,
            "splits": splits if isinstance(splits, dict) else named,
            **settings,
        }
        write_results(folder, **settings)
        self.folder, self.files = folder, files_of(results_with(folder, **settings))

    def write(self, kind, name, content):
        path = self.folder / self.files[kind][name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def measure(self, *measures):
        for one in measures:
            self.write("measures", f"{one.system} on {one.split}", asdict(one))
        return self

    def options(self, **more):
        return {"results": self.folder, "output_folder": self.folder / "report", **more}


@pytest.fixture
def page_of(stage):
    """Write the report of what was made; the text of its page, and its outline."""

    def run(made, **more):
        stage("report", **made.options(**more))
        text = (made.folder / "report" / "index.html").read_text()
        return text, Outline(text)

    return run


@pytest.fixture
def full(tmp_path):
    made = Made(tmp_path).measure(BM25, CORT)
    depths = {"system": "re", "split": "dev", "relevance_level": 1, "queries": 7, "depths": [1, 2, 4]}
    depths |= {"measures": {"RR@10": [0.1, 0.2, 0.2], "AP": [0.1, 0.1, None]}, "saturation": {"RR@10": 2, "AP": None}}
    made.write("depths", "re on dev", depths)
    header = "step,epoch,loss,validation_loss,learning_rate,examples_per_second\n"
    made.write("curves", "e", header + "".join(f"{n},{n / 9},{1 / n},,1e-5,9\n" for n in range(1, 9)))
    made.write("filters", "pairs of r", {"kept <b>": 12345, "dropped_short": 0})
    (tmp_path / "benchmarks/train").mkdir(parents=True)
    (tmp_path / "benchmarks/train/a.tsv").write_text("s\th:m:s\tmax_rss\n3725.5\t1:02:05\t-\n")
    (tmp_path / "benchmarks/train/b.tsv").write_text("damaged")
    return made


@needs_browser
def test_nothing_is_cut_or_hidden_at_any_width(tmp_path, page_of):
    long = "a-system-whose-name-is-as-long-as-that-of-no-paper"
    made = Made(tmp_path, systems=SYSTEMS | {long: {"retrieve": "e"}})
    made.write("comparisons", "dev", comparisons())
    made.measure(
        BM25, *(replace(CORT, system=one, mean={f"R@{10**n}": n / 9 for n in range(6)}) for one in (long, "re"))
    )
    made.write("filters", "pairs of r", {"kept": 1})
    page_of(made)
    assert cut_in(made.folder / "report" / "index.html") == []


def test_systems_have_best_values_and_a_headline(tmp_path, page_of):
    second = [replace(BM25, split="test"), replace(CORT, split="test", relevance_level=2, without_results=1200)]
    text, page = page_of(Made(tmp_path, ("dev", "test")).measure(BM25, CORT, *second))
    assert page.tables["systems-1"] == [
        ["system", "queries", "relevant from", "without results", "RR@10", "R@50", "R@200"],
        ["bm25", "6,980", "1", "0", "0.187", "0.592", "0.738"],
        ["cort_1", "6,980", "1", "0", "0.271", MISSING, MISSING],
    ]
    assert page.tables["systems-2"][2][1:4] == ["6,980", "2", "1,200"]
    assert page.tables["answer-1"] == [
        ["system", "RR@10", "R@200"],
        ["bm25", "0.187", "0.738"],
        ["cort_1", "0.271", MISSING],
    ]
    assert re.findall("<b>([^<]*)</b>", text)[:2] == ["0.738", "0.271"]
    assert '<p class="lead">On 6,980 queries of toy, dev, cort_1 has the highest RR@10, 0.271.</p>' in text


def test_unjudged_passages_are_shown_where_negative_judgements_are_deep(tmp_path, page_of):
    sparse = replace(JUDGED, split="sparse", judged=Judged(60, 43, 430, 400, MEAN))
    positive = replace(JUDGED, split="positive", judged=Judged(9260, 9260, 430, 400, MEAN))
    made = Made(tmp_path, ("dl19", "sparse", "positive")).measure(replace(BM25, split="dl19"), JUDGED, sparse, positive)
    _, page = page_of(made)
    names = ["Judged@10", "P@10", "P@10, judged only", "AP", "AP, judged only"]
    assert page.tables["judged-1"] == [
        ["system", "queries", "judgements", "relevant", "top 10", "unjudged", "share", *names],
        ["cort_1", "43", "9,260", "2,501", "430", "112", "26.0 %", "0.740", "0.542", "0.600", "0.290", "0.300"],
    ]
    assert "judged-2" not in page.tables
    assert [line.partition(",")[0] for line in (tmp_path / "report/tables/judged.csv").read_text().splitlines()] == [
        *("split", "dl19", "sparse", "positive")
    ]


def test_comparisons_are_shown_as_verdicts_and_in_full(tmp_path, page_of):
    few = comparisons("dl19", [("AP", False)])
    few["comparisons"][0]["verdict"] = "TOO FEW QUERIES"
    made = Made(tmp_path, ("dev", "dl19")).measure(BM25, CORT, replace(JUDGED, system="bm25"), JUDGED)
    made.write("comparisons", "dev", comparisons())
    made.write("comparisons", "dl19", few)
    text, page = page_of(made)
    tables = page.tables
    # The verdict comes second, so that narrow screens show it.
    headings = ["system", "verdict", "RR@10", "against bm25", "interval from", "to", "p corrected", "R@200"]
    assert tables["answer-1"][0] == headings
    assert tables["answer-1"][2] == ["cort_1", "WIN", "0.271", "+0.087", f"{MINUS}0.010", "+0.100", "0.0003", MISSING]
    assert tables["answer-2"][2][1] == "TOO FEW QUERIES"
    assert tables["systems-1"][2][3] == "0.271*"
    assert "* differs significantly from bm25" in text
    # A row per pair, then all.
    assert tables["verdicts-1"][1][:10] == [
        *("cort_1", "WIN", "bm25", "RR@10", "+0.087", f"{MINUS}0.010", "+0.100", "0.0003"),
        "1 comparison with bm25",
        "interval and p disagree: the interval is the bootstrap's, for this comparison alone; p is the randomisation "
        "test's, corrected over 1 comparison with bm25",
    ]
    assert [row[2] for row in tables["verdicts-1"][1:]] == ["bm25", "cort_0"]
    assert tables["verdicts-2"][1][9] == "about 400 are needed to detect a difference of 0.02"
    assert len(tables["verdicts-3"]) == 5
    assert text.index("<details>") < text.index("its mean") < text.index("</details>")
    assert tables["verdicts-5"][1:] == [
        ["cort_1", "137", "0.859", "bm25", "1,000", "0.857"],
        ["weak", MISSING, MISSING, "bm25", "1,000", "0.857"],
    ]
    assert "explore/dev/index.html#a=cort_1&amp;b=bm25" in text
    assert "On 43 queries of toy, dl19, bm25 has the highest AP, 0.290.</p>" in text


def test_a_split_without_judgements_shows_overlaps(tmp_path, page_of):
    names = [*SYSTEMS]
    pairs = [Common(one, other, 0.25, 0.5) for one, other in combinations(names, 2)]
    splits = {name: {"queries": "q", "qrels": name} for name in ("train", "validation")} | {"eval": {"queries": "e"}}
    made = Made(tmp_path, splits=splits)
    made.write("overlaps", "eval", asdict(Overlap("eval", 7, 10, names, pairs, [1.25, 2.0, 3.0])))
    text, page = page_of(made)
    assert "No split has judgements" in text
    assert '<a href="explore/eval/index.html">eval</a>' in text
    assert page.tables["overlap-1"][:2] == [
        ["system", "other", "queries", "depth", "overlap", "same first", "alone", "other alone"],
        ["bm25", "cort_1", "7", "10", "0.250", "0.500", "1.250", "2.000"],
    ]
    # Systems are described, though nothing of them is measured.
    assert re.findall(r"<h2[^>]*>([^<]*)</h2>", text) == ["Systems", "Splits without judgements"]
    assert "systems.csv" not in text
    assert "overlap.csv" in text


INITIAL, LAST = "the initial model: no update was better", "the last model, as configured (checkpoint: last)"


def test_findings_agreements_filters_and_the_kept_model_of_each_training(tmp_path, page_of):
    splits = {name: {"queries": "same", "qrels": name} for name in ("dev", "mine", "validation", "train")}
    made = Made(tmp_path, splits=splits)
    findings = [Finding("", "7 passages"), Finding("own document", "test: 2 queries are documents", warns=True)]
    made.write("others", "inspection", [*map(asdict, findings)])
    agreement = Agreement("dev", "mine", 7, 1234, 0.5, None, 2, "RR@10", [-1.0, -1.0, 0.5])
    made.write("agreements", "dev mine", asdict(agreement))
    made.write("filters", "judgements of dev", {})
    made.write("filters", "judgements of mine", {"judgements_matched_by_id": 9, "withdrawn": 0})
    header = "step,epoch,loss,validation_loss,learning_rate,examples_per_second\n"
    for name, selection in {"e": ("loss", 2.5, 0.69, 1159), "r": ("RR@10", 0.2, 0.3, 7, 0.3)}.items():
        made.write("curves", name, f"{header}1,.5,nan,.7,1e-5,\n2,1,,.69,1e-5,9\n")
        made.write("selections", name, asdict(Selection(*selection)))
    text, page = page_of(made)
    # What is odd is listed, and what misleads is a warning.
    assert re.findall("<strong>Warning:</strong> (.*)</p>", text) == ["test: 2 queries are documents."]
    assert page.tables["data-1"][1:] == [["7 passages", ""], ["test: 2 queries are documents", "own document"]]
    assert '<a href="../collection/inspection.csv">own document</a>' in text
    assert page.tables["agreement-1"][1:] == [
        ["dev", "mine", "1,234", "0.500", MISSING, "7", "2", "RR@10", *[f"{MINUS}1.000"] * 2, "0.500"]
    ]
    assert page.tables["filters-1"][1:] == [
        ["judgements of mine", "judgements matched by id", "9"],
        ["judgements of mine", "withdrawn", "0"],
    ]
    better = "after update 7; no better than not re-ranking"
    assert [row[:10] for row in page.tables["training-1"][1:]] == [
        ["e", "2", "1.0", MISSING, "0.6900", "loss", MISSING, "2.5000", "0.6900", LAST],
        ["r", "2", "1.0", MISSING, "0.6900", "RR@10", "0.3000", "0.2000", "0.3000", better],
    ]


def test_all_files_are_written_and_the_same_again(full, tmp_path, stage):
    named = full.options(benchmarks=tmp_path / "benchmarks")
    stage("report", **named)
    once = contents(tmp_path / "report")
    assert sorted(once) == sorted(FILES)
    # A process of its own has other hash seeds.
    command = [sys.executable, "-m", "cort.report", *command_line(named)]
    subprocess.run(command, check=True, capture_output=True, env={"PYTHONHASHSEED": "7", "HOME": str(tmp_path)})
    assert contents(tmp_path / "report") == once


def test_the_page_is_self_contained_and_escapes_everything(full, tmp_path, page_of):
    text, page = page_of(full, benchmarks=tmp_path / "benchmarks")
    page.check()
    assert page.seen.count("table") == page.seen.count("caption")
    assert "url(" not in text
    assert "{{ 7 * 7 }}" in text
    assert "kept &lt;b&gt;" in text
    assert page.tables["depths-1"][1:] == [
        ["re", "RR@10", "2", "0.200", "4", "0.200"],
        ["re", "AP", MISSING, MISSING, "4", MISSING],
    ]
    assert page.tables["stages-1"][1:] == [["train", "1", "1 h 02 min", "1 h 02 min", MISSING]]
    assert "re: 0.200 at 4.0" in text


def test_published_numbers_have_a_page(full, tmp_path, page_of):
    header = "paper,table,row,column,value,system,split,measure,candidates,note\n"
    (tmp_path / "papers.csv").write_text(
        f"{header}{NASTY},T,BM25,MRR@10,.184,bm25,dev,RR@10,,\n{NASTY},T,x,y,1,,dev,AP,,z\n"
    )
    text, page = page_of(full, papers=tmp_path / "papers.csv")
    assert "reproduction/index.html" in page.values("href")
    folder = tmp_path / "report" / "reproduction"
    text = (folder / "index.html").read_text()
    page = Outline(text)
    page.check()
    assert "a value of ours for 1 of 2 published numbers" in text
    assert page.tables["numbers-1"][1][:5] == ["BM25", "MRR@10", "0.1840", "0.1870", "+0.0030"]
    assert "dev,RR@10,0,,0.187,0.0030000000000000027" in (folder / "numbers.csv").read_text()


def test_the_page_says_how_much_each_model_truncates(tmp_path, make_encoder, make_reranker, caches, page_of):
    settings = {"encoders": {"e": {"pretrained": "x"}}, "rerankers": {"r": {"pretrained": "y"}}}
    made = Made(tmp_path, **settings).measure(BM25)
    for name, model in (("e", make_encoder(passage_length=9)), ("r", make_reranker())):
        card = tmp_path / made.files["models"][name]
        card.parent.parent.mkdir(parents=True, exist_ok=True)
        card.parent.symlink_to(model)
        write_lengths(made.write("lengths", f"{name} passages", ""), Tokens(caches["passages"]).lengths)
    rows = page_of(made)[1].tables["truncation-1"]
    lengths = Tokens(caches["passages"]).lengths
    share = f"{100 * (lengths > 7).mean():.1f} %"
    assert rows[1][:6] == ["e", "passages", str(len(lengths)), f"{lengths.mean():.1f}", "7", share]
    assert rows[2][:2] == ["r", "passages"]


def test_what_is_absent_is_left_out(tmp_path, page_of, capsys):
    text, _ = page_of(Made(tmp_path).measure(BM25), benchmarks=tmp_path / "none")
    assert sorted(contents(tmp_path / "report")) == sorted(FILES)
    assert re.findall(r"<h2[^>]*>([^<]*)</h2>", text) == ["At a glance", "Systems"]
    assert all(NOTHING in (tmp_path / f"report/figures/{name}.svg").read_text() for name in ("training", "depths"))
    assert f"{tmp_path}/measures/dev/cort_1.json is not there, and left out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "name", "content", "words"),
    [
        ("selections", "e", {"a": 1}, "selection.json: found no 'metric'"),
        ("filters", "pairs of r", {"a": "b"}, "found 'b' at a, expected a valid integer"),
        ("measures", "bm25 on dev", "{", "bm25.json"),
    ],
)
def test_bad_input_leaves_nothing(full, tmp_path, refused, kind, name, content, words):
    full.write(kind, name, content)
    assert words in refused("report", **full.options())
    assert not (tmp_path / "report").exists()
