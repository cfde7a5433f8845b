import csv
import json

import pytest

from cort.evaluation.inspection import Finding
from cort.formats.artifacts import read_artifact
from cort.formats.tables import PASSAGES, QRELS, QUERIES
from tests.support.common import logged, write_file, write_rows

pytestmark = pytest.mark.usefixtures("record_messages")

PASSAGE = {"d1": "one passage", "d2": "another, longer passage of more words", "d3": "one passage", "d4": " \n"}
# id -> (text, judgements)
TRAIN = {"t1": ("What is BM25?", {"d2": 1}), "t2": ("Ⅷ  passages", {"d2": 1}), "t3": ("twin", {"d2": 1, "d1": 0})}


@pytest.fixture
def look(tmp_path, stage):
    """Write a collection and its splits, and return a function that runs the stage."""

    def run(splits, passages=PASSAGE, oddities=(), **options):
        named = {"passages": write_rows(tmp_path / "passages.parquet", PASSAGES, passages.items())}
        named |= {"queries": [], "qrels": [], "oddities": [], "splits": [*splits]}
        for name, split in splits.items():
            queries = [(query, text) for query, (text, _) in split.items()]
            qrels = [(query, doc, grade) for query, (_, judged) in split.items() for doc, grade in judged.items()]
            for kind, rows, schema in (("queries", queries, QUERIES), ("qrels", qrels, QRELS)):
                named[kind].append(write_rows(tmp_path / f"{kind}.{name}.parquet", schema, rows))
            odd = "\n".join(["kind,query_id,doc_id", *oddities, ""])
            named["oddities"].append(write_file(tmp_path / f"{name}.csv", odd))
        output = stage("inspect", **named, output=tmp_path / "found.json", output_ids=tmp_path / "found.csv", **options)
        with (tmp_path / "found.csv").open(newline="") as handle:
            rows = [tuple(row) for row in csv.reader(handle)][1:]
        return [finding.text for finding in read_artifact(output, list[Finding])], rows

    return run


def test_a_line_for_what_is_odd_and_none_for_what_is_not(look, caplog):
    texts, rows = look({"test": TRAIN})
    counted = "test: 3 queries, 4 judgements (1 of grade 0, 3 of grade 1)"
    assert texts == ["4 passages", "1 passage has no text", "2 passages share their text with others (1 text)", counted]
    assert rows == [("empty", "", "", "d4", ""), ("identical", "", "", "d1", "d1"), ("identical", "", "", "d3", "d1")]
    assert logged(caplog, "WARNING") == []
    texts, rows = look({"test": {"t1": ("a", {}), "t2": ("b", {"d2": 0})}}, passages={"d2": "x"})
    assert texts == [
        "1 passage",
        "test: 2 queries, 1 of them judged, 1 without a relevant document, 1 judgement (1 of grade 0)",
    ]
    assert rows == []


def test_what_was_left_out_of_the_collection_is_said(look, tmp_path):
    counts = {"documents": 3, "files: an empty file": 2, "rows without text": 5}
    counts |= {"words left out: navigation": 1234, "passages": 4}
    path = write_file(tmp_path / "imported.json", json.dumps(counts))
    texts, _ = look({"test": TRAIN}, counts=path)
    told = ["files: an empty file: 2", "rows without text: 5", "words left out: navigation: 1,234", "4 passages"]
    assert texts[:4] == told


def test_relevant_documents_with_an_unjudged_twin_are_counted(look):
    split = {"q1": ("a", {"d1": 1}), "q2": ("b", {"d1": 1, "d3": 0}), "q3": ("c", {"d3": 0})}
    texts, rows = look({"test": split})
    assert texts[-1] == "test: 1 query has a relevant document whose text another one has that is not judged"
    assert rows[-1] == ("unjudged twin", "test", "q1", "d1", "d3")
    # Documents are not their passages.
    assert look({"test": split}, aggregate="max")[1][-1][0] == "identical"


@pytest.mark.parametrize("ignored", [False, True])
def test_queries_that_are_documents_are_a_warning_unless_they_are_ignored(look, caplog, ignored):
    # ArguAna's documents begin with a title; an id alone may be a number of something else.
    split = {"d1": ("One  passage", {}), "d2": ("Of more words!", {}), "d4": ("else", {})}
    own = {"own": "test"} if ignored else {}
    _, rows = look({"test": split}, **own)
    assert rows[-2:] == [("own document", "test", name, name, "") for name in ("d1", "d2")]
    assert [line.partition(";")[0] for line in logged(caplog, "WARNING")] == (
        [] if ignored else ["test: 2 queries are documents with the same id"]
    )
    # MS MARCO's queries and passages have the same numbers.
    others = {"d1": ("x", {}), "d2": ("y", {})}
    line = "test: ignore_own drops 2 documents that only have the id of a query, not its text"
    assert (line in look({"test": others}, **own)[0]) == ignored


SHARED = {
    "id and text": ({"t1": ("  what is bm25", {"d9": 1})}, "t1"),
    "text": ({"q1": ("viii passages.", {})}, "t2"),
}
OTHER = {"id": {"t1": ("written otherwise", {"d2": 1})}, "no text": {"q1": ("", {})}}


@pytest.mark.parametrize(("shared", "other"), SHARED.values(), ids=SHARED)
def test_queries_with_the_same_text_are_shared(look, caplog, shared, other):
    splits = {"train": TRAIN, "test": {"q9": ("something else", {}), **shared}}
    texts, rows = look(splits, pairs="train=test")
    assert texts[-1] == "test: 1 of 2 queries also in train"
    assert rows[-1] == ("query of test in train", "test", next(iter(shared)), "", other)
    assert logged(caplog, "WARNING") == []
    # Systems are trained on the one and measured on the other.
    look(splits, pairs="train=test", apart="train=test")
    (line,) = logged(caplog, "WARNING")
    assert line.startswith("test: 1 of 2 queries also in train, which systems learn from")


@pytest.mark.parametrize("other", OTHER.values(), ids=OTHER)
def test_queries_with_the_same_id_alone_are_not_shared(look, other):
    assert look({"train": TRAIN | {"t7": ("", {})}, "test": other}, pairs="train=test")[1][-1][0] == "identical"


def test_lengths_and_scripts_are_compared_with_what_models_and_analysers_read(look, caplog):
    options = {"limits": ["short=5", "long=6"], "languages": ["bm25=en", "han=zh"]}
    passages = PASSAGE | {"d5": "Ελληνικά κείμενα with Latin", "d6": "7", "d7": "café"}
    texts, _ = look({"test": TRAIN}, passages, **options)
    assert texts[3:6] == [
        "at least 14% of the passages are longer than short reads: more words than 5 tokens",
        "about 20% of the passages are mainly in another script than Latin, but bm25 analyses the language en",
        "about 80% of the passages are mainly in the Latin script, but han analyses the language zh",
    ]
    assert len(logged(caplog, "WARNING")) == 2


def test_what_was_odd_in_the_files_is_repeated(look):
    absent = ["judged documents absent,q1,gone", "judged documents absent,q2,gone", "judged queries without text,q7,"]
    texts, rows = look({"test": TRAIN}, oddities=absent)
    assert texts[-2:] == ["test: judged documents absent: 1", "test: judged queries without text: 1"]
    assert rows[-3:] == [(kind, "test", query, doc, "") for kind, query, doc in (line.split(",") for line in absent)]
