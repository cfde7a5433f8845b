import json
from dataclasses import fields

import numpy as np
import pyarrow.parquet as pq
import pytest

from cort.evaluation.measures import Measures
from cort.evaluation.values import read_recall
from cort.formats import tables
from tests.support.common import contents, write_ranked, write_rows


@pytest.fixture
def folder(tmp_path):
    """Three judged queries (q2 without results, q3 with its relevant document at rank 2) and one unjudged."""
    write_rows(tmp_path / "queries.parquet", tables.QUERIES, [("q1", "a"), ("q2", "b"), ("q3", "c"), ("q4", "d")])
    write_rows(tmp_path / "qrels.parquet", tables.QRELS, [("q3", "b", 2), ("q1", "a", 1), ("q2", "c", 1)])
    write_ranked(tmp_path / "run.trec", dict.fromkeys(("q1", "q3", "q4"), "ab"))
    return tmp_path


def options(folder, run="run.trec", **changes):
    files = {"run": run, "queries": "queries.parquet", "qrels": "qrels.parquet", "output": "out/x.json"}
    files |= {"output_per_query": "out/x.parquet", "output_recall": "out/x.csv"}
    named = {name: folder / file for name, file in files.items()} | {"measures": ["RR@10", "R@1", "nDCG"]}
    return {"name": "evaluate", **named, "system": "s", "split": "dev", **changes}


@pytest.fixture
def evaluated(folder, stage):
    """A function that runs the stage, and returns its summary."""
    return lambda **changes: json.loads(stage(**options(folder, **changes)).read_text())


def test_means_are_over_all_judged_queries_and_keep_full_precision(evaluated):
    summary = evaluated()
    assert list(summary) == [field.name for field in fields(Measures)]
    assert (summary["system"], summary["split"], summary["relevance_level"], summary["queries"]) == ("s", "dev", 1, 3)
    assert list(summary["mean"]) == ["RR@10", "R@1", "nDCG"]
    assert (summary["without_results"], summary["without_relevant"]) == (1, 0)
    assert summary["mean"]["RR@10"] == (1 + 1 / 2) / 3
    assert summary["mean"]["R@1"] == 1 / 3
    assert summary["mean"]["nDCG"] == pytest.approx((1 + 1 / np.log2(3)) / 3, abs=1e-15)


def test_per_query_values_in_the_order_of_qrels_and_measures(folder, evaluated):
    evaluated(measures=["R@1", "RR"])
    table = tables.read_table(folder / "out/x.parquet", tables.PER_QUERY)
    assert pq.read_schema(folder / "out/x.parquet").equals(tables.PER_QUERY)
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        (query, name, value)
        for query, values in (("q3", (0.0, 1 / 2)), ("q1", (1.0, 1.0)), ("q2", (0.0, 0.0)))
        for name, value in zip(("R@1", "RR"), values, strict=True)
    ]


def test_the_relevance_level_is_recorded_and_queries_that_count_zero_are_reported(folder, evaluated, capsys):
    summary = evaluated(relevance_level=2, measures="RR@10")
    assert summary["relevance_level"] == 2
    assert summary["mean"] == {"RR@10": (1 / 2) / 3}
    assert (summary["without_results"], summary["without_relevant"]) == (1, 2)
    log = capsys.readouterr().err
    assert "1 of 3 queries have no result" in log
    assert "2 of 3 queries have no passage of grade 2 or higher" in log
    # An index that returns less than it is asked for gains or loses by that.
    assert summary["short"] == 2
    assert "2 of 3 queries have fewer than 10 results" in log
    write_ranked(folder / "complete.trec", dict.fromkeys(("q1", "q2", "q3"), "ab"))
    assert evaluated(run="complete.trec", measures=["R@2", "nDCG"])["short"] == 0
    assert "queries have" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("level", "grades", "doubted"), [(1, [0, 1, 2, 3], True), (2, [0, 1, 2, 3], False), (1, [1, 1, 2, 3], False)]
)
def test_grades_of_the_deep_learning_tracks_without_their_level_are_doubted(
    folder, evaluated, capsys, level, grades, doubted
):
    write_rows(folder / "qrels.parquet", tables.QRELS, zip(("q1", "q1", "q2", "q3"), "abac", grades, strict=True))
    evaluated(relevance_level=level)
    assert ("relevance_level: 2" in capsys.readouterr().err) == doubted


@pytest.mark.parametrize(("level", "grades"), [(3, [2, 1, 1]), (1, [0, 0, -1])])
def test_judgements_without_a_relevant_passage_are_refused(folder, refused, level, grades):
    path = write_rows(folder / "qrels.parquet", tables.QRELS, zip(("q3", "q1", "q2"), "bac", grades, strict=True))
    line = refused(**options(folder, relevance_level=level))
    assert line.startswith(f"{path}: found no relevant passage, expected one of grade {level} or higher; ")


def test_recall_at_every_depth_of_the_longest_ranking(folder, evaluated):
    evaluated()
    once = contents(folder / "out")
    evaluated()
    assert contents(folder / "out") == once
    assert (folder / "out/x.csv").read_text() == f"depth,recall\n1,{1 / 3!r}\n2,{2 / 3!r}\n"
    evaluated(relevance_level=2)
    assert (folder / "out/x.csv").read_text() == f"depth,recall\n1,0.0\n2,{1 / 3!r}\n"


def test_runs_and_judgements_of_another_split_are_refused(folder, refused):
    (folder / "other.trec").write_text("".join(f"{query_id} Q0 a 1 1 x\n" for query_id in ("q1", "q9", "q8")))
    line = refused(**options(folder, run="other.trec"))
    assert line.startswith(f"{folder}/other.trec: found query 'q9' (2 such queries), ")
    path = write_rows(folder / "qrels.parquet", tables.QRELS, [("q9", "b", 2)])
    assert refused(**options(folder)).startswith(f"{path}: found no query of {folder}/queries.parquet, ")


@pytest.mark.parametrize("answered", [[], ["q4"]])
def test_a_run_that_answers_no_judged_query_counts_0_in_every_measure(folder, evaluated, capsys, answered):
    write_ranked(folder / "other.trec", dict.fromkeys(answered, "ab"))
    summary = evaluated(run="other.trec", measures=["RR@10", "R@1", "nDCG", "Judged@10"])
    assert set(summary["mean"].values()) == {0}
    assert (summary["queries"], summary["without_results"], summary["judged"]["results"]) == (3, 3, 0)
    assert read_recall(folder / "out/x.csv") == [0] * max(1, 2 * len(answered))
    assert "3 of 3 queries have no result" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("measures", "words"),
    [
        # Measures are checked before anything is read.
        (["MRR@10", "RR", "NDCG"], "measures: found 'MRR@10', 'NDCG', expected RR"),
        (["RR"], "absent.trec: No such file or directory"),
    ],
)
def test_unknown_measures_and_missing_files_are_errors_of_one_line(folder, refused, measures, words):
    assert words in refused(**options(folder, run="absent.trec", measures=measures))
