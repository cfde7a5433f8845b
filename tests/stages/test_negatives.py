"""Negatives of deep runs, against those of whole runs made by the same stages."""

import json

import numpy as np
import pytest

from cort import negatives
from cort.formats import tables
from cort.formats.runs import read_run
from tests.support.common import write_rows
from tests.support.vectors import names, random_unit, shards

pytestmark = pytest.mark.usefixtures("one_thread")

WORDS = ("oil", "war", "gas", "map", "king", "rock", "ship", "gold", "tax")
DEPTH, QUERIES = 50, 23


@pytest.fixture
def searched(tmp_path, stage):
    """An index and vectors of the same passages, queries in both forms, and judgements."""
    generator = np.random.default_rng(3)
    ids, asked = names("d", 70), names("q", QUERIES)
    texts = {doc_id: " ".join(generator.choice(WORDS, 6)) for doc_id in ids}
    write_rows(tmp_path / "passages.parquet", tables.PASSAGES, texts.items())
    # One has no term that the index knows.
    queries = {name: " ".join(generator.choice(WORDS, 2)) for name in asked} | {asked[5]: "nonesuch"}
    write_rows(tmp_path / "queries.parquet", tables.QUERIES, queries.items())
    judged = [(name, doc, 1) for name in asked[1:] for doc in generator.choice(ids, 3, replace=False)]
    write_rows(tmp_path / "qrels.parquet", tables.QRELS, judged)
    stage("index bm25", passages=tmp_path / "passages.parquet", memory_mb=256, output=tmp_path / "lucene")
    # Passages share vectors, so that many scores are equal.
    shared, own = random_unit(generator, 20, 8)[np.arange(len(ids)) % 20], random_unit(generator, len(asked), 8)
    vectors = {
        kind: shards(tmp_path, kind, names_of, rows, batch=7)
        for kind, names_of, rows in (("passages", ids, shared), ("queries", asked, own))
    }
    dropped = [f"{name}\t{doc}\n" for name in asked[::2] for doc in generator.choice(ids, 6, replace=False)]
    (tmp_path / "dropped.tsv").write_text("".join(dropped), encoding="utf-8")
    return vectors | {"folder": tmp_path}


def test_a_merged_run_with_ties_and_dropped_results_gives_the_same_pairs_in_blocks(searched, stage, monkeypatch):
    folder = searched["folder"]
    excluded = folder / "dropped.tsv"
    whole = {"tag": "t", "depth": DEPTH, "exclude": excluded}
    bm25 = {"index": folder / "lucene", "k1": 0.9, "b": 0.4}
    stage("retrieve bm25", **bm25, **whole, queries=folder / "queries.parquet", output=folder / "bm25.trec")
    dense = {"passages": searched["passages"]}
    stage("retrieve exact", **dense, **whole, queries=searched["queries"], output=folder / "dense.trec")
    runs = [folder / "dense.trec", folder / "bm25.trec"]
    stage("fuse", runs=runs, tag="t", depth=DEPTH, output=folder / "both.trec")

    words = {
        "bm25": ["--index", str(folder / "lucene"), "--k1", "0.9", "--b", "0.4"],
        "dense": ["--passages", *searched["passages"]],
    }
    searching = ["--depth", f"{DEPTH}", "--exclude", str(excluded)]
    searches = {
        "both": {"rule": "fuse", "options": ["--depth", f"{DEPTH}"], "runs": ["dense", "bm25"]},
        "dense": {"rule": "retrieve", "options": [*words["dense"], *searching], "runs": []},
        "bm25": {"rule": "bm25", "options": [*words["bm25"], *searching], "runs": []},
    }
    searches["dense"]["queries"], searches["bm25"]["queries"] = searched["queries"][0], str(folder / "queries.parquet")
    drawn = {"qrels": folder / "qrels.parquet", "first_rank": 2, "last_rank": DEPTH, "epochs": 2, "seed": 4}
    drawn |= {"negatives": 2}
    kept = {}
    for at_once in (10, 100):
        monkeypatch.setattr(negatives, "QUERIES_AT_ONCE", at_once)
        given = {
            "searches": json.dumps(searches),
            "tag": "both",
            "memory_mb": 256,
            "output": folder / f"{at_once}.trec",
        }
        kept[at_once] = stage("negatives", **drawn, **given)
    assert kept[10].read_bytes() == kept[100].read_bytes()
    assert not list(folder.glob(".*"))
    most = 3 + 2 * 2 + 1
    assert max(np.diff(read_run(kept[10]).offsets)) <= most

    def pairs_of(run, **changes):
        outputs = {"output": folder / "pairs.parquet", "output_counts": folder / "counts.json"}
        return stage("pairs", **drawn, **changes, run=run, **outputs).read_bytes()

    assert pairs_of(kept[10]) == pairs_of(folder / "both.trec")
    given |= {"searches": json.dumps({"dense": searches["dense"]}), "tag": "dense"}
    for changes in ({"positives": "all"}, {"positives": "retrieved"}):
        less = stage("negatives", **drawn, **changes, **given)
        assert pairs_of(less, **changes) == pairs_of(folder / "dense.trec", **changes)
