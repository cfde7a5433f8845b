import numpy as np
import pytest

from cort.formats.records import Ranking
from cort.formats.runs import read_run, write_run
from cort.retrieval.exclusions import ExclusionOptions, read_pairs
from cort.runtime.errors import InputError


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        # BRIGHT and BEIR have TABs, Anserini spaces; a header may be there or not. Ids are those of the collection.
        ("query-id\tcorpus-id\tscore\nq1\td 1\t1\nq2\td2\t1\n", [("q1", "d%201"), ("q2", "d2")]),
        ("q1\td 1\nq2\td2\t1\n", [("q1", "d%201"), ("q2", "d2")]),
        ("q1 d1\n\nq2   d2\n", [("q1", "d1"), ("q2", "d2")]),
        ("query_id,doc_id\nq1,d1\n", [("q1", "d1")]),
        ('{"query_id": 1, "doc_id": "d1", "why": ""}\n', [("1", "d1")]),
        ("", []),
    ],
)
def test_pairs_are_rows_or_separated_by_tabs_or_spaces(tmp_path, text, pairs):
    (tmp_path / "exclude.tsv").write_text(text)
    assert read_pairs(tmp_path / "exclude.tsv") == pairs


def test_a_line_without_a_document_is_refused(tmp_path):
    (tmp_path / "exclude.tsv").write_text("q1 d1\nq2\n")
    with pytest.raises(InputError, match=r"exclude.tsv: row 2: found 1 field, expected query_id and doc_id"):
        read_pairs(tmp_path / "exclude.tsv")


def test_a_pair_may_spell_its_document_otherwise(tmp_path):
    (tmp_path / "exclude").write_text("q\ta b%\nq\tCafe\u0301\n")
    options = ExclusionOptions(depth=3, exclude=str(tmp_path / "exclude"), aggregate="none", ignore_own=False)
    ranking = Ranking("q", ["a%20b%25", "Caf\u00e9", "c"], np.arange(3.0, 0, -1))
    write_run(tmp_path / "run", [ranking], "tag", options.without_excluded)
    assert [doc_ids for _, doc_ids, _ in read_run(tmp_path / "run")] == [["c"]]


@pytest.mark.parametrize(
    ("aggregate", "own", "pairs", "expected"),
    [
        ("none", True, "", {"a": ["b", "c"], "b": ["a", "a#1"]}),
        ("none", False, "a b\na c\n", {"a": ["a", "a#1"], "b": ["b", "a"]}),
        ("none", True, "b a\nb a#1\n", {"a": ["b", "c"], "b": ["d"]}),
        # All passages of the document.
        ("max", True, "", {"a": ["b", "c"], "b": ["a", "a#1"]}),
        ("max", False, "b a\n", {"a": ["a", "b"], "b": ["b", "d"]}),
        ("none", False, "", {"a": ["a", "b", "c", "a#1"], "b": ["b", "a", "a#1", "d"]}),
    ],
)
def test_results_are_dropped_before_the_run_is_cut(tmp_path, aggregate, own, pairs, expected):
    (tmp_path / "exclude").write_text(pairs)
    file = str(tmp_path / "exclude")
    options = ExclusionOptions(depth=2, ignore_own=own, exclude=file, aggregate=aggregate)
    retrieved = {"a": ["a", "b", "c", "a#1"], "b": ["b", "a", "a#1", "d"]}
    rankings = [Ranking(name, doc_ids, np.arange(4.0, 0, -1)) for name, doc_ids in retrieved.items()]
    write_run(tmp_path / "run.trec", rankings, "tag", options.without_excluded)
    assert {name: doc_ids for name, doc_ids, _ in read_run(tmp_path / "run.trec")} == expected
    assert options.reach == 2 + (1 if aggregate == "none" else 20) * (own + max(map(pairs.count, ("a ", "b "))))
