"""Layouts of collections on Hugging Face, each as it is published."""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cort.runtime.errors import InputError
from cort.sources import hugging_face
from tests.support.common import write_files
from tests.support.errors import line_of

CORPUS = [{"_id": "d1", "title": "T", "text": "one"}, {"_id": "d2", "title": "", "text": "two"}]
QUERIES = [{"_id": "q1", "text": "which?"}]
QRELS = [{"query-id": "q1", "corpus-id": "d2", "score": 1}]
BARE = [{"query-id": "q1", "corpus-id": "d2"}]
TSV = "query-id\tcorpus-id\tscore\nq1\td2\t1\n"
OTHER = [{"_id": "x", "title": "", "text": "other"}]


SHARD = "00000-of-00001.parquet"
MTEB = {f"corpus/corpus-{SHARD}": CORPUS, f"queries/queries-{SHARD}": QUERIES, f"default/test-{SHARD}": QRELS}
NANO = {f"corpus/train-{SHARD}": CORPUS, f"queries/train-{SHARD}": QUERIES, f"qrels/train-{SHARD}": BARE}
NANOS = {
    **{f"corpus/NanoSciFact-{SHARD}": CORPUS, f"corpus/NanoNQ-{SHARD}": OTHER},
    **{f"queries/NanoSciFact-{SHARD}": QUERIES, f"queries/NanoNQ-{SHARD}": OTHER},
    **{f"qrels/NanoSciFact-{SHARD}": BARE, f"qrels/NanoNQ-{SHARD}": BARE, f"bm25/NanoNQ-{SHARD}": OTHER},
}
MIRACL = {
    **{f"ar-corpus/dev-{SHARD}": CORPUS, f"ar-queries/dev-{SHARD}": QUERIES, f"ar-qrels/dev-{SHARD}": QRELS},
    **{f"de-corpus/dev-{SHARD}": OTHER, f"de-queries/dev-{SHARD}": OTHER, f"de-qrels/dev-{SHARD}": BARE},
}
BEIR = {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES, "qrels/test.tsv": TSV}
PACKED = {"corpus.jsonl.gz": CORPUS, "queries.jsonl": QUERIES, "qrels/test.jsonl": QRELS, "qrels/train.jsonl": []}
# Name -> files, the part of them, the split.
LAYOUTS = {
    "BEIR's archive": (BEIR, "", "test"),
    "mteb/scifact": (PACKED, "", "test"),
    "mteb/scifact now": (MTEB, "", "test"),
    "pushed as three splits": ({f"data/{name.rpartition('/')[2]}": rows for name, rows in MTEB.items()}, "", "test"),
    "zeta-alpha-ai/NanoSciFact": (NANO, "", "train"),
    "sentence-transformers/NanoBEIR-en": (NANOS, "#NanoSciFact", "NanoSciFact"),
    "mteb/MIRACLRetrieval": (MIRACL, "#ar", "dev"),
    "folders of languages": (
        {**{f"ar/{name}": content for name, content in BEIR.items()}, "de/corpus.jsonl": OTHER},
        *("#ar", "test"),
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_as_they_are_published(tmp_path, name):
    files, part, split = LAYOUTS[name]
    write_files(tmp_path, files)
    source = f"{tmp_path}{part}"
    documents = [(one.doc_id, one.text) for one in hugging_face.iter_documents(source)]
    assert documents == [("d1", "T one"), ("d2", "two")]
    assert [*map(tuple, hugging_face.iter_queries(source))] == [("q1", "which?")]
    assert [*map(tuple, hugging_face.iter_qrels(source, split))] == [("q1", "d2", 1)]
    assert len(hugging_face.files(source)) >= 3


def test_judgements_in_a_dataset_of_their_own(tmp_path):
    write_files(tmp_path, {"nq/corpus.jsonl": CORPUS, "nq/queries.jsonl": QUERIES, "nq-qrels/test.tsv": TSV})
    source, part = f"{tmp_path}/nq", f"{tmp_path}/nq-qrels#test"
    assert [*map(tuple, hugging_face.iter_qrels(source, part))] == [("q1", "d2", 1)]
    names = ["corpus.jsonl", "queries.jsonl", "test.tsv"]
    assert [Path(path).name for path in hugging_face.files(source, part)] == names
    with pytest.raises(InputError, match=r"found no qrels/test among .*; if another dataset has them"):
        [*hugging_face.iter_qrels(source, "test")]


BAD = {
    "several collections": (
        {f"corpus/NanoNQ-{SHARD}": OTHER, f"corpus/NanoSciFact-{SHARD}": CORPUS},
        r"found several in one: 'NanoNQ, NanoSciFact', expected .*#NanoNQ",
    ),
    "of another language": ({f"de-corpus/dev-{SHARD}": OTHER}, r"found no corpus among 'de-corpus/dev-.*#PART"),
    "a lost part": ({"corpus/train-00000-of-00002.parquet": OTHER}, "found 1 parts, expected 2"),
    "damaged": ({"corpus/0000.parquet": OTHER}, r"0000\.parquet: found unreadable bytes"),
    "no text": ({"corpus.jsonl": [{"_id": "1", "text": [7]}]}, r"corpus\.jsonl: row 1: found \[7\] as text"),
    "no id": ({"corpus.jsonl": [{"_id": 1.5, "text": "a"}]}, "row 1: found the doc_id 1.5"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused(tmp_path, name):
    files, message = BAD[name]
    write_files(tmp_path, files)
    if name == "damaged":
        path = tmp_path / "corpus" / "0000.parquet"
        path.write_bytes(path.read_bytes()[:-9])
    assert re.search(message, line_of(lambda: [*hugging_face.iter_documents(str(tmp_path))]))


def test_columns_that_are_not_used_are_not_read(tmp_path):
    files = {f"corpus/{SHARD}": CORPUS, f"queries/{SHARD}": QUERIES, f"qrels/test-{SHARD}": QRELS}
    for name, content in files.items():
        table = pa.Table.from_pylist(content)
        # No reader can convert these bytes to text; `contents` is another name of the text.
        unreadable = pa.array([b"\xff"] * len(table), "binary").view("string")
        table = table.append_column("url", unreadable)
        table = table.append_column("contents", unreadable) if content is CORPUS else table
        (tmp_path / name).parent.mkdir()
        pq.write_table(table, tmp_path / name)
    assert [one.doc_id for one in hugging_face.iter_documents(str(tmp_path))] == ["d1", "d2"]
    assert [*map(tuple, hugging_face.iter_queries(str(tmp_path)))] == [("q1", "which?")]
    assert [*map(tuple, hugging_face.iter_qrels(str(tmp_path), "test"))] == [("q1", "d2", 1)]


def test_a_column_that_may_be_the_grade_is_not_passed_over(tmp_path):
    write_files(tmp_path, {f"qrels/test-{SHARD}": [{"query-id": "q1", "corpus-id": "d2", "gain": 2}]})
    with pytest.raises(InputError, match=r"found no score or .* among the fields 'query-id, corpus-id, gain'"):
        [*hugging_face.iter_qrels(str(tmp_path), "test")]


def test_only_the_named_part_is_fetched(monkeypatch, tmp_path):
    asked = []
    write_files(tmp_path, MIRACL)
    monkeypatch.setattr(hugging_face, "fetch_snapshot", lambda *given, **_: asked.append(given) or tmp_path)
    source = f"mteb/MIRACLRetrieval@{'0' * 40}#ar"
    assert [one.doc_id for one in hugging_face.iter_documents(source)] == ["d1", "d2"]
    ((name, commit, _, _, wanted),) = asked
    assert (name, commit) == ("mteb/MIRACLRetrieval", "0" * 40)
    from huggingface_hub.utils import filter_repo_objects

    names = [f"{language}-{kind}/dev-{SHARD}" for language in ("ar", "de") for kind in ("corpus", "queries", "qrels")]
    assert [*filter_repo_objects(names, allow_patterns=wanted)] == names[:3]
