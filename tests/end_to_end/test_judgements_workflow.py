"""A small German collection that was judged twice, once in the explorer: from the files to the report."""

import json

import numpy as np
import pytest
import yaml

from cort.evaluation.values import read_values
from cort.reporting.labels import MINUS
from tests.support import german
from tests.support.forking import snakemake
from tests.support.reporting import Outline
from tests.support.sandbox import copy_with_tiny

pytestmark = pytest.mark.slow

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
def built(tmp_path_factory):
    """The results of both splits."""
    tree = copy_with_tiny(tmp_path_factory.mktemp("judged") / "tree")
    keys = ("query_id", "doc_id", "text", "relevance")
    lines = [json.dumps(dict(zip(keys, judgement, strict=True)), ensure_ascii=False) for judgement in JUDGED]
    german.write_collection(tree, {"judged.jsonl": lines})
    with open(tree / "qrels.txt", "a", encoding="utf-8") as qrels:
        qrels.write("q1 0 d3 0\n")
    config = {
        "dataset": "german",
        "protect": False,
        "depth": 10,
        "collection": {"passages": "collection.tsv"},
        "splits": {
            "test": {"queries": "queries.tsv", "qrels": "qrels.txt"},
            "mine": {"queries": "queries.tsv", "qrels": "judged.jsonl", "relevance_level": 2},
        },
        "lexical": {"german": {"language": "de"}},
        "systems": {"bm25": {"retrieve": "bm25"}, "german": {"retrieve": "german"}},
        "evaluation": {"measures": ["nDCG@10"]},
    }
    (tree / "german.yaml").write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
    status, output = snakemake(tree, "--cores", 2, "--configfile", "german.yaml")
    assert status == 0, output[-5000:]
    return tree / "results" / "german"


def test_judgements_of_the_explorer_are_those_of_a_split(built):
    measures = json.loads((built / "measures/mine/german.json").read_text("utf-8"))
    assert (measures["queries"], measures["judged"]["judgements"], measures["judged"]["relevant"]) == (3, 4, 2)
    counts = json.loads((built / "collection/judgements.mine.json").read_text("utf-8"))
    assert counts == {"judgements_found_by_id": 3, "found_by_text": 1, "gone": 1, "withdrawn": 1}
    assert json.loads((built / "collection/judgements.test.json").read_text("utf-8")) == {}
    page = (built / "report/index.html").read_text("utf-8")
    assert "<span>judgements of mine</span>" in page
    assert '<th scope="row">gone</th><td class="number">1</td>' in page
    assert "judgements of test" not in page


def gain(built, split):
    """Sum what German analysis adds on the queries that both judge."""
    values = (read_values(built / "measures" / split / f"{name}.parquet") for name in ("german", "bm25"))
    sums = [sum(one.values[one.query_ids.index(query), 0] for query in ("q1", "q2", "q3")) for one in values]
    return sums[0] - sums[1]


def test_the_report_shows_how_far_both_agree(built):
    found = json.loads((built / "agreement/test/mine.json").read_text("utf-8"))
    # Of the four pairs, both call two relevant, and one not.
    agreed, chance = 3 / 4, (3 * 2 + 1 * 2) / 16
    assert found["kappa"] == pytest.approx((agreed - chance) / (1 - chance))
    pairs = [*GRADES.values()]
    observed = sum((a - b) ** 2 for a, b in pairs) / 4
    expected = sum((a - b) ** 2 for a, _ in pairs for _, b in pairs) / 16
    assert found["weighted_kappa"] == pytest.approx(1 - observed / expected)
    assert (found["queries"], found["pairs"], found["systems"], found["measure"]) == (3, 4, 2, "nDCG@10")
    table = Outline((built / "report/index.html").read_text("utf-8")).tables["agreement-1"]
    assert table[1][:3] == ["test and mine", "4", f"{found['kappa']:.3f}"]
    assert table[1][4:7] == ["3", "2", "nDCG@10"]
    gains = [gain(built, split) for split in ("test", "mine")]
    assert found["tau"][0] == np.prod(np.sign(gains)) != 0
    assert table[1][7].startswith(f"{found['tau'][0]:.3f}".replace("-", MINUS))
