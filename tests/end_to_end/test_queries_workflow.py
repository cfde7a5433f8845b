"""A small German collection: weights by cross-validation, and questions without judgements, from files to the pages."""

import json
import re
import subprocess

import pytest
import yaml

from cort.evaluation.folds import draw_folds
from cort.formats.runs import read_run
from tests.support import german
from tests.support.explorer import unpack
from tests.support.forking import snakemake
from tests.support.sandbox import copy_with_tiny, executable

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


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of the project, and the output of the build."""
    tree = copy_with_tiny(tmp_path_factory.mktemp("queries") / "tree")
    german.write_collection(tree, {"questions.txt": QUESTIONS})
    config = {
        "dataset": "german",
        "protect": False,
        "depth": 10,
        "collection": {"passages": "collection.tsv"},
        "splits": {
            "test": {"queries": "queries.tsv", "qrels": "qrels.txt"},
            "asked": {"queries": "questions.txt"},
        },
        "lexical": {
            "german": {"language": "de"},
            "tuned": {"language": "de", "tune": {**FOLDS, "k1": [0.5, 1.2], "b": [0.1, 0.9]}},
        },
        "systems": SYSTEMS,
        "evaluation": {"measures": ["nDCG@10", "P@2"]},
    }
    (tree / "german.yaml").write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
    status, output = snakemake(tree, "--cores", 2, "--configfile", "german.yaml")
    assert status == 0, output[-5000:]
    return tree, tree / "results" / "german"


def verdicts(tree):
    command = [executable("python"), "-m", "workflow.summary", "--configfile", "german.yaml"]
    return subprocess.run(command, cwd=tree, check=True, capture_output=True, text=True).stdout


def test_weights_are_chosen_by_folds_and_report_and_verdicts_say_so(built):
    tree, results = built
    folds = draw_folds(german.QUERIES, 2, 42, "")
    weights = json.loads((results / "weights/test/fused.json").read_text("utf-8"))
    parameters = json.loads((results / "lexical/tuned/parameters/test.json").read_text("utf-8"))
    for tuned in (weights, parameters):
        assert [fold["queries"] for fold in tuned["folds"]] == folds
    page, said = (results / "report/index.html").read_text("utf-8"), verdicts(tree)
    for name in ("tuned", "fused"):
        line = f"{name} is tuned for nDCG@10 by 2-fold cross-validation on its own queries."
        assert f">{line}<" in page
        assert line in said.splitlines()
    assert "BM25, Anserini, language de" in page
    # English analysis finds half of the passages.
    found = {name: json.loads((results / f"measures/test/{name}.json").read_text("utf-8")) for name in SYSTEMS}
    assert [found[name]["mean"]["P@2"] for name in ("bm25", "german", "tuned")] == [0.5, 1, 1]
    index = unpack(results / "report/explore/test/data/index.js")[1]
    assert (index["systems"], index["ids"]) == ([*SYSTEMS], [*german.QUERIES])


def test_questions_without_judgements_are_ranked_compared_and_shown(built):
    tree, results = built
    assert "questions.txt: empty rows skipped: 1" in (tree / "logs/german/split/asked.log").read_text("utf-8")
    runs = {name: read_run(results / f"runs/asked/{name}.trec") for name in SYSTEMS}
    tops = {name: {ranking.query_id: ranking.doc_ids for ranking in run} for name, run in runs.items()}
    # Ids are rows; the weights are those chosen on all queries of test.
    assert [*tops["german"]] == ["1", "3"]
    assert {*tops["german"]["3"][:2]} == {"d1", "d2"}
    overlap = json.loads((results / "overlap/asked.json").read_text("utf-8"))
    [pair] = [pair for pair in overlap["pairs"] if (pair["first"], pair["second"]) == ("bm25", "german")]
    assert 0 < pair["rbo"] < 1
    others = [one for name, lists in tops.items() if name != "german" for one in lists.items()]
    alone = [
        doc
        for query, docs in tops["german"].items()
        for doc in docs
        if all(doc not in own for key, own in others if key == query)
    ]
    assert overlap["alone"][1] == len(alone) / 3
    page = (results / "report/index.html").read_text("utf-8")
    assert "asked, 3 queries without judgements, so there are no measures." in page
    assert 'href="explore/asked/index.html"' in page
    assert "asked: no judgements; the report shows the overlap of the systems" in verdicts(tree)
    assert not (results / "measures/asked").exists()
    # No row about this split but those of the overlap.
    for table in (results / "report/tables").glob("*.csv"):
        assert table.stem == "overlap" or not re.search(r"(?m)^asked,", table.read_text("utf-8")), table
    index = unpack(results / "report/explore/asked/data/index.js")[1]
    assert (index["ids"], index["queries"]) == (["1", "3", "4"], [text for text in QUESTIONS if text])
    assert (index["measures"], index["overlap"], index["p"]) == ([], 10, 0.9)
