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
from cort.reporting.labels import MINUS, MISSING
from cort.training.outcome import Selection
from tests.support.common import command_line, contents
from tests.support.online import write_results
from tests.support.reporting import NASTY, Outline, comparisons

TABLES = ("systems", "comparisons", "lists", "judged", "audits", "stages", "latency", "overlap")
FILES = [f"tables/{name}.{ending}" for name in TABLES for ending in ("csv", "md", "tex")]
FILES += ["index.html", *(f"figures/{name}.svg" for name in ("recall", "depths", "audits", "training"))]
# Tables 1 and 2 of the CoRT paper.
BM25 = Measures("bm25", "dev", 1, 6980, {"RR@10": 0.187, "R@50": 0.592, "R@200": 0.738})
CORT = Measures("cort_1", "dev", 1, 6980, {"RR@10": 0.271, "R@50": None})
MEAN = {"Judged@10": 0.74, "P@10": 0.542, "P(judged_only=True)@10": 0.6, "AP": 0.29, "AP(judged_only=True)": 0.3}
# Section 4.2.2: 112 of 430, 2.6 of a query.
JUDGED = Measures("cort_1", "dl19", 2, 43, {"AP": 0.29}, judged=Judged(9260, 2501, 430, 112, MEAN))


def write(folder, name, content):
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return str(folder / name)


def options(folder, measures, **changes):
    """Options that report these measures, and the settings of an experiment with changes."""
    files = [write(folder, f"{number}.json", asdict(one)) for number, one in enumerate(measures)]
    systems = {"bm25": {"retrieve": "bm25"}, "cort_1": {"retrieve": "e"}}
    encoders = {"e": {"base_model": "small", "checkpoint": "last"}}
    settings = {"title": NASTY, "systems": systems, "encoders": encoders, "training_depth": 100}
    write_results(folder, **(settings | changes))
    return {"experiment": folder / "experiment.yaml", "measures_files": files, "output_folder": folder / "report"}


@pytest.fixture
def page_of(stage):
    """Write the report; the text of its page, and its outline."""

    def run(**named):
        stage("report", **named)
        text = (named["output_folder"] / "index.html").read_text()
        return text, Outline(text)

    return run


@pytest.fixture
def small(tmp_path):
    values = {"bm25": (0.187, 0.67, 0.857), "cort_1": (0.274, 0.816, None)}
    return options(
        tmp_path,
        [
            Measures(system, split, 1, 7, dict(zip(("RR@10", "R@100", "R@1000"), numbers, strict=True)))
            for split in ("dev", "test")
            for system, numbers in values.items()
        ],
    )


@pytest.fixture
def full(small, tmp_path):
    depths = {"system": "cort_1", "split": "dev", "relevance_level": 1, "queries": 7, "depths": [1, 2, 4]}
    depths |= {"measures": {"RR@10": [0.1, 0.2, 0.2], "AP": [0.1, 0.1, None]}, "saturation": {"RR@10": 2, "AP": None}}
    header = "step,epoch,loss,validation_loss,learning_rate,examples_per_second\n"
    curve = header + "".join(f"{n},{n / 9},{1 / n},,1e-5,9\n" for n in range(1, 9))
    passage = {"doc_id": "1", "text": NASTY, "rank_first": 1, "rank_second": None}
    top = {"doc_id": "2", "text": "words", "relevant": None}
    example = {"query_id": "1", "query": f"script {NASTY}", "advantage": 1.0, "relevant": passage}
    example |= {"top_first": top | {"doc_id": "1"}, "top_second": top}
    examples = {"split": "dev", "first": "cort_1", "second": "bm25", "queries": 7, "better_first": 1}
    examples |= {"better_second": 0, "examples": [example]}
    (tmp_path / "benchmarks/train").mkdir(parents=True)
    write(tmp_path, "benchmarks/train/a.tsv", "s\th:m:s\tmax_rss\n3725.5\t1:02:05\t-\n")
    counts = {"within": 41, "off": 3, "not run": 1_234, "cannot be computed": 0}
    gate = {"name": "p", "title": f"Paper {NASTY}", "reference": "", "counts": counts, "numbers": [], "claims": []}
    return small | {
        "reproduction": write(tmp_path, "reproduction.json", {"papers": [gate]}),
        "depths_files": write(tmp_path, "depths.json", depths),
        "curves": f"encoder={write(tmp_path, 'curve.csv', curve)}",
        "disagreements": write(tmp_path, "examples.json", examples),
        "filters": f"pairs={write(tmp_path, 'filter.json', {'kept <b>': 12345, 'dropped_short': 0})}",
        "benchmarks": tmp_path / "benchmarks",
    }


def test_systems_have_differences_and_best_values(tmp_path, page_of):
    measures = [BM25, CORT, replace(BM25, split="test"), replace(CORT, split="test", relevance_level=2, queries=43)]
    text, page = page_of(**options(tmp_path, measures))
    assert page.tables["systems-1"] == [
        ["System", "MRR@10", "R@50", "R@200"],
        ["bm25", "0.187", "0.592", "0.738"],
        ["cort_1", "0.271+0.084", MISSING, MISSING],
    ]
    assert page.tables["answer-1"] == [
        ["System", "MRR@10", "R@200"],
        ["bm25", "0.187", "0.738"],
        ["cort_1", "0.271", MISSING],
    ]
    assert re.findall("<b>([^<]*)</b>", text)[:2] == ["0.738", "0.271"]
    assert re.findall("<b>([^<]*)</b>", text[text.index("systems-1") :])[:3] == ["0.592", "0.738", "0.271"]
    assert "6,980 queries of dev." in text
    assert "43 to 6,980 queries of test." in text
    assert "Means include" not in text
    # Incomplete queries are counted.
    measures = [replace(BM25, without_relevant=1, short=7), replace(CORT, without_results=1200, without_relevant=1)]
    text, _ = page_of(**options(tmp_path, measures))
    assert "Means include queries without a relevant passage (1), without results (cort_1 1,200), with fewer" in text
    assert "results than the largest cutoff (bm25 7)." in text


def test_unjudged_passages_are_shown_where_negative_judgements_are_deep(tmp_path, page_of):
    sparse = replace(JUDGED, split="sparse", judged=Judged(60, 43, 430, 400, MEAN))
    positive = replace(JUDGED, split="positive", judged=Judged(9260, 9260, 430, 400, MEAN))
    text, page = page_of(**options(tmp_path, [replace(BM25, split="dl19"), JUDGED, sparse, positive]))
    assert page.tables["judged-1"] == [
        ["System", "Unjudged", "P@10", "MAP"],
        ["cort_1", "26.0 %2.6", "0.5420.600", "0.2900.300"],
    ]
    assert "judged-2" not in page.tables
    assert "dl19, 215 judgements per query." in text
    assert (tmp_path / "report/tables/judged.csv").read_text().splitlines()[:3] == [
        "split,system,queries,judgements,relevant,results,unjudged,Judged@10,P@10,P(judged_only=True)@10,AP,AP(judged_only=True)",
        "dl19,cort_1,43,9260,2501,430,112,0.74,0.542,0.6,0.29,0.3",
        "sparse,cort_1,43,60,43,430,400,0.74,0.542,0.6,0.29,0.3",
    ]


INITIAL, LAST = "the initial model: no update was better", "the last model, as configured (checkpoint: last)"
NO_BETTER = "no better than not re-ranking"


def test_comparisons_are_shown_as_verdicts_and_in_full(tmp_path, page_of):
    few = comparisons("dl19", [("AP", False)])
    few["comparisons"][0]["verdict"] = "TOO FEW QUERIES"
    files = [write(tmp_path, "dev.json", comparisons()), write(tmp_path, "dl19.json", few)]
    measures = [BM25, CORT, replace(JUDGED, system="bm25"), JUDGED]
    text, page = page_of(**options(tmp_path, measures), comparisons=files)
    tables = page.tables
    assert "<small>+0.084*</small>" in text
    assert "at most 0.05" in text
    assert tables["answer-1"][0] == ["System", "MRR@10", "Difference from bm25", "R@200", "Verdict"]
    assert tables["answer-1"][2] == ["cort_1", "0.271", f"+0.087 ({MINUS}0.010 to +0.100)", MISSING, "WIN"]
    assert tables["answer-2"][2][-1] == "TOO FEW QUERIES"
    assert text.index("<details>") < text.index("contrasts-1") < text.index("</details>")
    # Under the systems there is a row per pair, below only the rows with the baseline.
    assert [row[:2] for row in tables["verdicts-1"][1:]] == [["cort_1", "bm25"], ["cort_1", "cort_0"]]
    assert tables["verdicts-1"][1][2].startswith("WINp 0.0003†")
    assert re.match("TOO FEW QUERIESabout 400 .* 0.02$", tables["verdicts-2"][1][2])
    assert "† interval and p disagree" in text
    assert tables["contrasts-1"][1] == [
        *("cort_1", "MRR@10", "0.2740.260 to 0.290", "0.1870.180 to 0.200", f"+0.087*{MINUS}0.010 to +0.100"),
        *("<0.0001(<0.0001)", "0.0001(0.0003)", "2,000, 4,000, 980"),
    ]
    assert len(tables["contrasts-1"]) == 3
    assert '<th scope="row">cort_1</th><td class="number">137</td><td class="number">0.859</td>' in text
    assert '<th scope="row">weak</th><td class="number">not reached</td>' in text
    assert "the top 1,000 passages of bm25 (recall 0.857)" in text


@pytest.mark.parametrize(("systems", "compared"), [(3, ["a", "b", "c"]), (11, ["b"])])
def test_a_split_without_judgements_shows_overlaps(tmp_path, page_of, systems, compared):
    names = [*"abcdefghijk"[:systems]]
    pairs = [Common(one, other, 0.25, 0.5, 0.375) for one, other in combinations(names, 2)]
    file = write(tmp_path, "overlap.json", asdict(Overlap("eval", 7, 10, names, pairs, [1.25] * len(names))))
    systems = {name: {"retrieve": "bm25"} for name in names}
    settings = {"systems": systems, "encoders": {}, "evaluation": {"baseline": "b"}}
    text, page = page_of(**options(tmp_path, [], **settings), overlaps=file, explorer="explore")
    header, *rows = page.tables["overlap-1"]
    assert "No split has judgements" in text
    assert '<a href="explore/eval/index.html">eval</a>' in text
    assert header == ["System", "Alone", *compared]
    cell = "0.2500.375 · 0.500"
    assert rows == [[name, "1.2", *("" if name == other else cell for other in compared)] for name in names]
    assert "RBO, extrapolated, p = 0.9" in text
    assert "systems.csv" not in text
    table = (tmp_path / "report" / "tables" / "overlap.csv").read_text().splitlines()
    assert table[:2] == ["split,system,other,queries,depth,overlap,same_first,rbo", "eval,a,b,7,10,0.25,0.5,0.375"]


def test_findings_agreements_filters_and_the_kept_model_of_each_training(full, tmp_path, page_of):
    findings = [Finding("", "7 passages"), Finding("own document", "test: 2 queries are documents", warns=True)]
    agreements = [
        asdict(Agreement("dev", name, 7, pairs, *values, 2, measure, tau))
        for name, pairs, values, measure, tau in (
            ("model", 1234, (0.5, 0.625), "RR@10", [-1.0, -1.0, 0.5]),
            ("equal", 3, (None, None), None, None),
            ("nothing in common", 0, (None, None), None, None),
        )
    ]
    filters = {"of dev": {}, "of mine": {"judgements_found_by_id": 9, "found_by_text": 2, "gone": 1, "withdrawn": 0}}
    selections = {
        "a": (("loss", 2.5, 0.69, 1159), f"loss {MISSING} 2.5000 0.6900 after update 1,159"),
        "b": (("RR@10", 0.2, 0.4, 7, 0.3), "MRR@10 0.3000 0.2000 0.4000 after update 7"),
        "c": (("nDCG@10", 0.2, 0.3, 7, 0.3), f"nDCG@10 0.3000 0.2000 0.3000 after update 7; {NO_BETTER}"),
        "d": (("nDCG@10", 0.2, 0.2, 0, 0.3), f"nDCG@10 0.3000 0.2000 0.2000 {INITIAL}; {NO_BETTER}"),
        "e": (("RR@10", 0.3, 0.3, 0), f"MRR@10 {MISSING} 0.3000 0.3000 {LAST}"),
    }

    def written(contents):
        return [f"{name}={write(tmp_path, f'{name}.json', one)}" for name, one in contents.items()]

    text, page = page_of(
        **full | {"filters": written(filters)},
        inspection=write(tmp_path, "found.json", list(map(asdict, findings))),
        agreements=[write(tmp_path, f"agreement-{number}.json", one) for number, one in enumerate(agreements)],
        selections=written({name: asdict(Selection(*one)) for name, (one, _) in selections.items()}),
    )
    # What is odd is listed, and what misleads is a warning.
    assert re.findall("<strong>Warning:</strong> (.*)</p>", text) == ["test: 2 queries are documents."]
    link = '<a href="../collection/inspection.csv">own document</a>'
    assert re.findall("<li>(.*)</li>", text)[:2] == ["7 passages", f"test: 2 queries are documents ({link})"]
    assert page.tables["agreement-1"][1:] == [
        ["dev and model", "1,234", "0.500", "0.625", "7", "2", "MRR@10", f"{MINUS}1.000{MINUS}1.000 to 0.500"],
        ["dev and equal", "3", MISSING, MISSING, "7", "2", "", MISSING],
    ]
    # Filters without counts are left out.
    assert re.findall("<span>(of .*)</span>", text) == ["of mine"]
    assert '<th scope="row">found by text</th><td class="number">2</td>' in text
    assert page.tables["selections"][1:] == [[name, *row.split(" ", 4)] for name, (_, row) in selections.items()]


def test_all_files_are_written_and_the_same_again(full, tmp_path, stage):
    stage("report", **full)
    once = contents(tmp_path / "report")
    assert sorted(once) == sorted(FILES)
    # A process of its own has other hash seeds.
    command = [sys.executable, "-m", "cort.report", *command_line(full)]
    subprocess.run(command, check=True, capture_output=True, env={"PYTHONHASHSEED": "7", "HOME": str(tmp_path)})
    assert contents(tmp_path / "report") == once


def test_the_page_is_self_contained_and_escapes_everything(full, page_of):
    text, page = page_of(**full)
    page.check()
    assert page.seen.count("table") == page.seen.count("caption")
    assert not re.search(r"@import|url\((?!#)", text)
    assert "{{ 7 * 7 }}" in text
    assert "&lt;<mark>script</mark>&gt;" in text
    assert "kept &lt;b&gt;" in text
    # The numbers.
    assert "cort_1 has the highest MRR@10, 0.274." in text
    assert "cort_1 (saturates at 2)" in text
    assert page.tables["saturation"][1:] == [
        ["cort_1", "dev", "MRR@10", "2", "0.200", "4", "0.200"],
        ["cort_1", "dev", "MAP", "not reached", MISSING, "4", MISSING],
    ]
    assert '<th scope="row">dropped short</th><td class="number">0</td>' in text
    assert '<td class="number">1 h 02 min</td>' in text
    assert "<b>n/a</b> in bm25" in text
    assert "unjudged" in text
    assert page.tables["reproduction-caption"][1][1:] == ["41", "3", "1,234", "0"]
    assert "reproduction/index.html" in page.values("href")
    assert "explore/" not in text
    # Splits and examples link to the explorer.
    links = page_of(**full, explorer="explore")[1].values("href")
    assert [value for value in links if value.startswith("explore/")] == [
        *(f"explore/{split}/index.html" for split in ("dev", "test")),
        "explore/dev/index.html#a=cort_1&b=bm25&q=1",
    ]


def test_the_page_says_how_much_each_model_truncates(small, make_encoder, make_reranker, caches, tmp_path, page_of):
    models = {"cort": make_encoder(passage_length=9), "cross": make_reranker()}
    texts = ("passages", "queries.train")
    for text in texts:
        write_lengths(tmp_path / f"{text}.json", Tokens(caches[text]).lengths)
    words = [f"{name} {text}={tmp_path / text}.json" for name in models for text in texts]
    named = [f"{name}={folder}" for name, folder in models.items()]
    rows = page_of(**small, models=named, lengths=words)[1].tables["truncations"]
    lengths = Tokens(caches["passages"]).lengths
    share = f"{100 * (lengths > 7).mean():.1f} %"
    assert rows[1][:6] == ["cort", "passages", str(len(lengths)), f"{lengths.mean():.1f}", "7", share]
    assert [row[:2] for row in rows].count(["cross", "queries.train"]) == 1


def test_what_is_absent_is_left_out(small, tmp_path, page_of):
    text, _ = page_of(**small, benchmarks=tmp_path / "none", disagreements=[], curves=[])
    assert sorted(contents(tmp_path / "report")) == sorted(FILES)
    assert re.findall(r"<h2[^>]*>([^<]*)</h2>", text) == ["At a glance", "All measures"]
    assert "No training curve" not in text
    assert "no training curve was given" in (tmp_path / "report/figures/training.svg").read_text()
    assert "nothing was re-ranked" in (tmp_path / "report/figures/depths.svg").read_text()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"curves": "x"}, "--curves: found 'x', expected NAME=VALUE"),
        ({"curves": "x=missing.csv"}, "missing.csv: No such file or directory"),
        ({"selections": "x={depths}"}, "depths.json: found no 'metric'"),
        ({"filters": "x={depths}"}, "found 'cort_1' at system, expected a whole number"),
        ({"disagreements": "{depths}"}, "depths.json: found no 'first'"),
        # Measures of another experiment.
        ({"measures_files": "{1.json}"}, "experiment.yaml: found the baseline 'bm25', expected one of cort_1"),
    ],
)
def test_bad_input_leaves_nothing(full, tmp_path, refused, changes, words):
    files = {"{depths}": tmp_path / "depths.json", "{1.json}": tmp_path / "1.json"}
    for name, value in changes.items():
        for mark, path in files.items():
            value = value.replace(mark, str(path))
        full[name] = value
    assert words in refused("report", **full)
    assert not (tmp_path / "report").exists()
