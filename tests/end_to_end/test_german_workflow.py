"""A small German collection, judged twice and by nobody, with weights by cross-validation: from files to the pages."""

import json
import re

import numpy as np
import pytest
import yaml
from scipy.stats import kendalltau

from cort.evaluation.folds import draw_folds
from cort.evaluation.values import read_values
from cort.formats.runs import read_run
from cort.reporting.format import MINUS
from tests.support import german
from tests.support.explorer import unpack
from tests.support.forking import succeed
from tests.support.reporting import Outline
from tests.support.sandbox import copy_with_tiny

pytestmark = pytest.mark.slow

FOLDS = {"measure": "nDCG@10", "folds": 2}
SYSTEMS = {
    "bm25": {"retrieve": "bm25"},
    "german": {"retrieve": "german"},
    "tuned": {"retrieve": "tuned"},
    "long": {"retrieve": "german", "bm25": {"k1": 2.0, "b": 1.0}},
    "fused": {"fuse": {"systems": ["german", "long"], "method": "linear", "tune": FOLDS}},
}
# Row 2 is empty, and the last has no passage.
QUESTIONS = ["Wohin fährt der Zug?", "", "Häuser mit Dächern", "Photosynthese"]
# Found by its id, by its text (the passage had another id), gone; and of another grade than before.
JUDGED = [
    ("q1", "d1", german.PASSAGES["d1"], 0),
    ("q1", "d1", german.PASSAGES["d1"], 3),
    ("q1", "d3", german.PASSAGES["d3"], 0),
    ("q2", "d99", german.PASSAGES["d3"][:30], 2),
    ("q2", "d98", "Eine Stelle, die es nicht mehr gibt.", 3),
    ("q3", "d5", german.PASSAGES["d5"], None),
    ("q3", "d6", german.PASSAGES["d6"], 0),
]
# Of the pairs that both judge.
GRADES = {("q1", "d1"): (1, 3), ("q1", "d3"): (0, 0), ("q2", "d3"): (1, 2), ("q3", "d6"): (1, 0)}


@pytest.fixture(scope="module")
def german_tree(tmp_path_factory):
    """The folder of the project, and the output of the build."""
    tree = copy_with_tiny(tmp_path_factory.mktemp("queries") / "tree")
    keys = ("query_id", "doc_id", "text", "relevance")
    lines = [json.dumps(dict(zip(keys, judgement, strict=True)), ensure_ascii=False) for judgement in JUDGED]
    german.write_collection(tree, {"questions.txt": QUESTIONS, "judged.jsonl": lines})
    with open(tree / "qrels.txt", "a", encoding="utf-8") as qrels:
        qrels.write("q1 0 d3 0\n")
    config = {
        "dataset": "german",
        "protect": False,
        "depth": 10,
        "collection": {"passages": "collection.tsv"},
        "splits": {
            "test": {"queries": "queries.tsv", "qrels": "qrels.txt"},
            "asked": {"queries": "questions.txt"},
            "mine": {"queries": "queries.tsv", "qrels": "judged.jsonl", "relevance_level": 2},
        },
        "lexical": {
            "german": {"language": "de"},
            "tuned": {"language": "de", "tune": {**FOLDS, "k1": [0.5, 1.2], "b": [0.1, 0.9]}},
        },
        "systems": SYSTEMS,
        "evaluation": {"measures": ["nDCG@10", "P@2"]},
    }
    (tree / "german.yaml").write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
    succeed(tree, "snakemake", "--cores", 2, "--configfile", "german.yaml")
    return tree


@pytest.fixture(scope="module")
def results(german_tree):
    return german_tree / "results" / "german"


@pytest.fixture(scope="module")
def said(german_tree):
    """Lines of the summary."""
    return succeed(german_tree, "workflow.summary", "--configfile", "german.yaml").splitlines()


def test_weights_are_chosen_by_folds_and_report_and_verdicts_say_so(said, results):
    folds = draw_folds(german.QUERIES, 2, 42, "")
    weights = json.loads((results / "weights/test/fused.json").read_text("utf-8"))
    parameters = json.loads((results / "lexical/tuned/parameters/test.json").read_text("utf-8"))
    for tuned in (weights, parameters):
        assert [fold["queries"] for fold in tuned["folds"]] == folds
    page = (results / "report/index.html").read_text("utf-8")
    for name in ("tuned", "fused"):
        line = f"{name} is tuned for nDCG@10 by 2-fold cross-validation on its own queries."
        assert f">{line}<" in page
        assert line in said
    assert "BM25, Anserini, language de" in page
    # English analysis finds half of the passages.
    found = {name: json.loads((results / f"measures/test/{name}.json").read_text("utf-8")) for name in SYSTEMS}
    assert [found[name]["mean"]["P@2"] for name in ("bm25", "german", "tuned")] == [0.5, 1, 1]
    index = unpack(results / "report/explore/test/data/index.js")[1]
    assert (index["systems"], index["ids"]) == ([*SYSTEMS], [*german.QUERIES])


def test_questions_without_judgements_are_ranked_compared_and_shown(german_tree, said, results):
    assert "questions.txt: empty rows skipped: 1" in (german_tree / "logs/german/split/asked.log").read_text("utf-8")
    runs = {name: read_run(results / f"runs/asked/{name}.trec") for name in SYSTEMS}
    tops = {name: {ranking.query_id: ranking.doc_ids for ranking in run} for name, run in runs.items()}
    # Ids are rows; the weights are those chosen on all queries of test.
    assert [*tops["german"]] == ["1", "3"]
    assert {*tops["german"]["3"][:2]} == {"d1", "d2"}
    overlap = json.loads((results / "overlap/asked.json").read_text("utf-8"))
    [pair] = [pair for pair in overlap["pairs"] if (pair["first"], pair["second"]) == ("bm25", "german")]
    assert 0 < pair["overlap"] <= 1
    others = [one for name, lists in tops.items() if name != "german" for one in lists.items()]
    alone = [
        doc
        for query, docs in tops["german"].items()
        for doc in docs
        if all(doc not in own for key, own in others if key == query)
    ]
    assert overlap["alone"][1] == len(alone) / 3
    page = (results / "report/index.html").read_text("utf-8")
    assert "asked: no judgements, so there are no measures." in page
    assert 'href="explore/asked/index.html"' in page
    assert any("asked: no judgements; the report shows the overlap of the systems" in line for line in said)
    assert not (results / "measures/asked").exists()
    # No row about this split but those of the overlap.
    for table in (results / "report/tables").glob("*.csv"):
        assert table.stem == "overlap" or not re.search(r"(?m)^asked,", table.read_text("utf-8")), table
    index = unpack(results / "report/explore/asked/data/index.js")[1]
    assert (index["ids"], index["queries"]) == (["1", "3", "4"], [text for text in QUESTIONS if text])
    assert (index["measures"], index["overlap"]) == ([], 10)


def test_judgements_of_the_explorer_are_those_of_a_split(results):
    measures = json.loads((results / "measures/mine/german.json").read_text("utf-8"))
    assert (measures["queries"], measures["judged"]["judgements"], measures["judged"]["relevant"]) == (3, 4, 2)
    counts = json.loads((results / "collection/judgements.mine.json").read_text("utf-8"))
    assert counts == {"judgements_matched_by_id": 3, "matched_by_text": 1, "unmatched": 1, "withdrawn": 1}
    assert json.loads((results / "collection/judgements.test.json").read_text("utf-8")) == {}
    page = (results / "report/index.html").read_text("utf-8")
    assert '<th scope="row">judgements of mine</th>' in page
    assert '<td>unmatched</td><td class="number">1</td>' in page
    assert "judgements of test" not in page


def sums(results, split):
    """Sum nDCG@10 of each system on the queries that both judge."""
    values = (read_values(results / "measures" / split / f"{name}.parquet") for name in SYSTEMS)
    return [sum(one.values[one.query_ids.index(query), 0] for query in ("q1", "q2", "q3")) for one in values]


def test_the_report_shows_how_far_both_agree(results):
    found = json.loads((results / "agreement/test/mine.json").read_text("utf-8"))
    # Of the four pairs, both call two relevant, and one not.
    agreed, chance = 3 / 4, (3 * 2 + 1 * 2) / 16
    assert found["kappa"] == pytest.approx((agreed - chance) / (1 - chance))
    pairs = [*GRADES.values()]
    observed = sum((a - b) ** 2 for a, b in pairs) / 4
    expected = sum((a - b) ** 2 for a, _ in pairs for _, b in pairs) / 16
    assert found["weighted_kappa"] == pytest.approx(1 - observed / expected)
    assert (found["queries"], found["pairs"], found["systems"], found["measure"]) == (3, 4, 5, "nDCG@10")
    table = Outline((results / "report/index.html").read_text("utf-8")).tables["agreement-1"]
    assert table[1][:4] == ["test", "mine", "4", f"{found['kappa']:.3f}"]
    assert table[1][5:8] == ["3", "5", "nDCG@10"]
    expected = kendalltau(*(np.round(sums(results, split), 9) for split in ("test", "mine"))).statistic
    assert found["tau"][0] == pytest.approx(expected)
    assert table[1][8] == f"{found['tau'][0]:.3f}".replace("-", MINUS)
