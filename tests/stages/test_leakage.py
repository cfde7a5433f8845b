import pytest

from cort import leakage
from cort.evaluation.leakage import Shared
from cort.formats.artifacts import read_artifact
from cort.formats.tables import QRELS, QUERIES
from tests.support.common import logged, write_rows

pytestmark = pytest.mark.usefixtures("record_messages")

TRAIN = {"t1": ("What is BM25?", {"d1": 1}), "t2": ("Ⅷ  passages", {"d2": 1}), "t3": ("a twin", {"d3": 1, "d8": 0})}


@pytest.fixture
def compare(tmp_path):
    """Write two splits, id -> (text, judgements), and return a function that runs the stage."""

    def run(test, *options):
        words = ["--splits", "train", "test", "--pairs", "train=test", "--output", str(tmp_path / "leakage.json")]
        files = {"queries": [], "qrels": []}
        for name, split in {"train": TRAIN, "test": test}.items():
            queries = [(query, text) for query, (text, _) in split.items()]
            qrels = [(query, doc, grade) for query, (_, judged) in split.items() for doc, grade in judged.items()]
            for kind, rows, schema in (("queries", queries, QUERIES), ("qrels", qrels, QRELS)):
                files[kind].append(write_rows(tmp_path / f"{kind}.{name}.parquet", schema, rows))
        return leakage.main([*words, "--queries", *files["queries"], "--qrels", *files["qrels"], *options])

    return run


SAME = {
    "id": {"t1": ("written otherwise", {"d9": 1})},
    "text": {"q1": ("  what is bm25", {"d1": 2, "d7": 1})},
    "other forms of letters": {"q1": ("viii passages.", {"d2": 1})},
}
OTHER = {
    "text with other passages": {"q1": ("A twin!", {"d8": 1})},
    "text without judgements": {"q1": ("what is bm25?", {})},
    "id without judgements": {"t1": ("What is BM25?", {})},
}
ANOTHER = {"q9": ("something else", {"d1": 1})}


@pytest.mark.parametrize("shared", SAME.values(), ids=SAME)
def test_a_query_for_training_and_evaluation_is_refused(compare, tmp_path, caplog, shared):
    assert compare(ANOTHER | shared, "--apart", "train=test") == 1
    assert logged(caplog, "ERROR") == [
        f"splits.test: found 1 of 2 queries also in train, e.g. {next(iter(shared))!r}, expected none, because systems "
        "trained on train are evaluated on them; name other queries, or leave these out by `without: test` in train"
    ]
    assert not (tmp_path / "leakage.json").exists()


@pytest.mark.parametrize("shared", SAME.values(), ids=SAME)
def test_shared_queries_of_other_splits_are_a_warning(compare, tmp_path, caplog, shared):
    assert compare(ANOTHER | shared) == 0
    assert logged(caplog, "WARNING") == ["test (2 queries) and train share queries: 1 judged in both."]
    example = next(iter(shared))
    assert read_artifact(tmp_path / "leakage.json", list[Shared]) == [Shared("train", "test", 2, 1, 0, example)]


@pytest.mark.parametrize("shared", OTHER.values(), ids=OTHER)
def test_similar_queries_without_a_common_judgement_are_a_warning(compare, caplog, shared):
    assert compare(ANOTHER | shared, "--apart", "train=test") == 0
    assert logged(caplog, "WARNING") == [
        "test (2 queries) and train share queries: 1 with the id or the text of another one but no judgement in common."
    ]


def test_splits_that_share_nothing_give_no_warning(compare, caplog):
    assert compare(ANOTHER | {"q8": ("", {"d2": 1})}, "--apart", "train=test") == 0
    assert logged(caplog, "WARNING") == []


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--apart", "train=tset"], "--apart: found 'train=tset', expected two of train, test, joined by ="),
        (["--splits", "train", "train"], "--splits: found 'train' twice, expected each split once; drop one"),
    ],
)
def test_bad_options_are_refused(compare, caplog, options, complaint):
    assert compare(ANOTHER, *options) == 1
    assert complaint in logged(caplog, "ERROR")[0]
