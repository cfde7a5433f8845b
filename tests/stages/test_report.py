import json
import re
import subprocess
import sys
from dataclasses import asdict
from itertools import combinations

import pytest

from cort import report
from cort.evaluation.leakage import Shared
from cort.evaluation.measures import Measures
from cort.evaluation.overlap import Common, Overlap
from cort.formats.tokens import Tokens
from cort.training.outcome import Selection
from tests.support.common import contents
from tests.support.reporting import NASTY, Outline

FILES = [
    *(
        f"tables/{name}.{ending}"
        for name in ("systems", "comparisons", "lists", "judged", "audits", "stages", "latency", "overlap")
        for ending in ("csv", "md", "tex")
    ),
    *(f"figures/{name}.svg" for name in ("recall", "depths", "audits", "training")),
    "index.html",
]


@pytest.fixture
def small(tmp_path):
    values = {"bm25": (0.187, 0.67, 0.857), "cort_1": (0.274, 0.816, None)}
    paths = []
    for split in ("dev", "test"):
        for system, numbers in values.items():
            path = tmp_path / f"{split}.{system}.json"
            mean = dict(zip(("RR@10", "R@100", "R@1000"), numbers, strict=True))
            path.write_text(json.dumps(asdict(Measures(system, split, 1, 7, mean))))
            paths.append(str(path))
    output = ["--output-folder", str(tmp_path / "report")]
    return ["--title", NASTY, "--dataset", "toy", "--measures-files", *paths, "--baseline", "bm25", *output]


@pytest.fixture
def full(small, tmp_path):
    depths = {
        "system": "cort_1",
        "split": "dev",
        "relevance_level": 1,
        "queries": 7,
        "depths": [1, 2, 4],
        "measures": {"RR@10": [0.1, 0.2, 0.2]},
    }
    (tmp_path / "depths.json").write_text(json.dumps(depths | {"saturation": {"RR@10": 2}}))
    header = "step,epoch,loss,validation_loss,learning_rate,examples_per_second\n"
    (tmp_path / "curve.csv").write_text(header + "".join(f"{n},{n / 9},{1 / n},,1e-5,9\n" for n in range(1, 9)))
    (tmp_path / "selection.json").write_text(json.dumps(asdict(Selection("RR@10", 0.2, 0.3, 5, 0.4))))
    passage = {"doc_id": "1", "text": NASTY, "rank_first": 1, "rank_second": None}
    top = {"doc_id": "2", "text": "words", "relevant": None}
    example = {"query_id": "1", "query": f"script {NASTY}", "advantage": 1.0, "relevant": passage}
    examples = {
        "split": "dev",
        "first": "cort_1",
        "second": "bm25",
        "queries": 7,
        "better_first": 1,
        "better_second": 0,
    }
    examples |= {"examples": [example | {"top_first": top | {"doc_id": "1"}, "top_second": top}]}
    (tmp_path / "examples.json").write_text(json.dumps(examples))
    (tmp_path / "filter.json").write_text(json.dumps({"kept <b>": 12345, "dropped_short": 0}))
    (tmp_path / "benchmarks/train").mkdir(parents=True)
    (tmp_path / "benchmarks/train/a.tsv").write_text("s\th:m:s\tmax_rss\n3725.5\t1:02:05\t-\n")
    counts = {"within": 41, "off": 3, "not run": 1_234, "cannot be computed": 0}
    gate = {"name": "p", "title": f"Paper {NASTY}", "reference": "", "counts": counts, "numbers": [], "claims": []}
    (tmp_path / "reproduction.json").write_text(json.dumps({"papers": [gate]}))
    return [
        *small,
        *("--reproduction", str(tmp_path / "reproduction.json")),
        *("--description-of-systems", f"cort_1={NASTY}", "bm25=Anserini, k1 = 0.82"),
        *("--depths-files", str(tmp_path / "depths.json"), "--curves", f"encoder={tmp_path / 'curve.csv'}"),
        *("--selections", f"encoder={tmp_path / 'selection.json'}"),
        *("--disagreements", str(tmp_path / "examples.json"), "--filters", f"pairs={tmp_path / 'filter.json'}"),
        *("--benchmarks", str(tmp_path / "benchmarks")),
    ]


@pytest.mark.parametrize(("systems", "compared"), [(3, ["a", "b", "c"]), (11, ["b"])])
def test_a_split_without_judgements_shows_what_systems_have_in_common(tmp_path, systems, compared):
    names = [*"abcdefghijk"[:systems]]
    pairs = [Common(one, other, 0.25, 0.5) for one, other in combinations(names, 2)]
    (tmp_path / "overlap.json").write_text(json.dumps(asdict(Overlap("eval", 7, 10, names, pairs))))
    words = ["--title", NASTY, "--dataset", "toy", "--baseline", "b", "--overlaps", str(tmp_path / "overlap.json")]
    assert report.main([*words, "--explorer", "explore", "--output-folder", str(tmp_path / "report")]) == 0
    page = (tmp_path / "report" / "index.html").read_text()
    Outline(page)
    assert "No split has judgements, so nothing is measured." in page
    assert '<a href="explore/eval/index.html">eval</a>' in page
    assert re.findall('<th scope="col" class="number">(.)</th>', page) == compared
    assert page.count("0.250<small>0.500</small>") == len(names) * len(compared) - len(compared)
    assert "systems.csv" not in page
    table = (tmp_path / "report" / "tables" / "overlap.csv").read_text().splitlines()
    assert table[:2] == ["split,system,other,queries,depth,overlap,same_first", "eval,a,b,7,10,0.25,0.5"]


def test_queries_that_splits_share_are_a_warning(small, tmp_path):
    pairs = [("train", "dev", 7, 2, 0, "q1"), ("train", "test", 9, 0, 0, None), ("validation", "dev", 7, 1, 3, "q1")]
    (tmp_path / "leakage.json").write_text(json.dumps([asdict(Shared(*pair)) for pair in pairs]))
    assert report.main([*small, "--leakage", str(tmp_path / "leakage.json")]) == 0
    page = (tmp_path / "report" / "index.html").read_text()
    assert re.findall("<strong>Warning:</strong> (.*)</p>", page) == [
        "dev (7 queries) and train share queries: 2 judged in both.",
        "dev (7 queries) and validation share queries: 1 judged in both, 3 with the id or the text of another one but "
        "no judgement in common.",
    ]


def test_all_files_are_written_and_the_same_again(full, tmp_path) -> None:
    assert report.main(full) == 0
    once = contents(tmp_path / "report")
    assert sorted(once) == sorted(FILES)
    # A process of its own has other hash seeds.
    command = [sys.executable, "-m", "cort.report", *full]
    subprocess.run(command, check=True, capture_output=True, env={"PYTHONHASHSEED": "7", "HOME": str(tmp_path)})
    assert contents(tmp_path / "report") == once


def test_the_page_is_whole_and_alone(full, tmp_path) -> None:
    report.main(full)
    text = (tmp_path / "report/index.html").read_text()
    page = Outline(text)
    assert len(page.ids) == len(set(page.ids))
    assert "script" not in page.seen
    assert "img" not in page.seen
    assert not [value for name, value in page.attributes if name in ("src", "href") and "//" in value]
    assert not re.search(r"@import|url\((?!#)", text)
    labels = [value for name, value in page.attributes if name == "aria-labelledby"]
    assert {one for label in labels for one in label.split()} <= set(page.ids)
    assert page.seen.count("table") == page.seen.count("caption")


def test_the_page_says_how_much_each_model_truncates(small, make_encoder, make_reranker, caches, tmp_path) -> None:
    models = {"cort": make_encoder(passage_length=9), "cross": make_reranker()}
    words = [f"{name} {text}={caches[text]}" for name in models for text in ("passages", "queries.train")]
    named = [f"{name}={folder}" for name, folder in models.items()]
    assert report.main([*small, "--models", *named, "--tokens", *words]) == 0
    page = (tmp_path / "report/index.html").read_text()
    lengths = Tokens(caches["passages"]).lengths
    row = page.split('<th scope="row">cort</th><td>passages</td>')[1].split("</tr>")[0]
    share = f"{100 * (lengths > 7).mean():.1f} %"
    assert re.findall(r">([^<>\n]+)</td>", row)[:4] == [str(len(lengths)), f"{lengths.mean():.1f}", "7", share]
    assert page.count('<th scope="row">cross</th><td>queries.train</td>') == 1


def test_examples_link_to_the_explorer(full, tmp_path) -> None:
    report.main(full)
    assert "explore/" not in (tmp_path / "report/index.html").read_text()
    assert report.main([*full, "--explorer", "explore"]) == 0
    page = Outline((tmp_path / "report/index.html").read_text())
    links = [value for name, value in page.attributes if name == "href" and value.startswith("explore/")]
    assert links == [
        *(f"explore/{split}/index.html" for split in ("dev", "test")),
        "explore/dev/index.html#a=cort_1&b=bm25&q=1",
    ]


def test_nothing_foreign_becomes_markup(full, tmp_path) -> None:
    report.main(full)
    text = (tmp_path / "report/index.html").read_text()
    assert "<script" not in text
    assert "{{ 7 * 7 }}" in text
    assert "&lt;<mark>script</mark>&gt;" in text
    assert "kept &lt;b&gt;" in text


def test_the_page_shows_the_numbers(full, tmp_path) -> None:
    report.main(full)
    text = (tmp_path / "report/index.html").read_text()
    assert "cort_1 has the highest MRR@10, 0.274." in text
    assert '<td class="number"><b>0.274</b><small>+0.087</small></td>' in text
    assert "cort_1 (saturates at 2)" in text
    assert '<th scope="row">dropped short</th><td class="number">0</td>' in text
    assert '<td class="number">1 h 02 min</td>' in text
    assert "<b>n/a</b> in bm25" in text
    assert "never judged" in text
    assert "<td>after update 5; no better than not re-ranking</td>" in text
    assert '<td class="number">41</td><td class="number">3</td>\n<td class="number">1,234</td>' in text
    assert 'href="reproduction/index.html"' in text


def test_what_is_absent_is_left_out(small, tmp_path) -> None:
    assert report.main([*small, "--benchmarks", str(tmp_path / "none"), "--disagreements", "--curves"]) == 0
    assert sorted(contents(tmp_path / "report")) == sorted(FILES)
    text = (tmp_path / "report/index.html").read_text()
    found = re.findall(r"<h2[^>]*>([^<]*)</h2>", text)
    assert found == ["Systems", "Recall"]
    assert "No training curve" not in text
    assert "no training curve was given" in (tmp_path / "report/figures/training.svg").read_text()
    assert "nothing was re-ranked" in (tmp_path / "report/figures/depths.svg").read_text()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (["--baseline", "cort"], "--baseline: found 'cort', expected one of bm25, cort_1; name a system"),
        (["--curves", "x"], "--curves: found 'x', expected NAME=VALUE"),
        (["--curves", "x=missing.csv"], "missing.csv: No such file or directory"),
        (["--selections", "x={depths}"], "depths.json: found no 'metric', expected the fields"),
        (["--filters", "x={depths}"], "found 'cort_1' at system, expected a whole number"),
        (["--disagreements", "{depths}"], "depths.json: found no 'first', expected the fields"),
    ],
)
def test_bad_input_leaves_nothing(full, tmp_path, capsys, change, complaint) -> None:
    change = [part.replace("{depths}", str(tmp_path / "depths.json")) for part in change]
    assert report.main([*full, *change]) == 1
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "report").exists()


def test_help_does_not_load_matplotlib() -> None:
    code = "import sys, cort.report; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
