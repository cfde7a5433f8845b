import json

import pytest

from tests.support.common import write_file


@pytest.fixture
def beir(tmp_path):
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    write_file(folder / "queries.jsonl", '{"_id": "q1", "text": "naïve “list”"}\n{"_id": "q2", "text": "unused"}\n')
    write_file(folder / "qrels" / "test.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t2\n")
    return folder


@pytest.fixture
def outputs(tmp_path):
    files = {"output_queries": "q.jsonl", "output_qrels": "r.tsv", "output_sources": "sources.json"}
    return {name: tmp_path / file for name, file in files.items()}


def test_queries_and_judgements_keep_texts_and_grades(stage, outputs, beir):
    stage("import_split", **outputs, hf=beir, part="test")
    queries, qrels, sources = (path.read_text("utf-8") for path in outputs.values())
    texts = {"q1": "naïve “list”", "q2": "unused"}
    assert [json.loads(line) for line in queries.splitlines()] == [
        {"_id": query_id, "text": text} for query_id, text in texts.items()
    ]
    assert qrels == "q1\t0\td1\t2\n"
    paths = [file["path"] for file in json.loads(sources)["inputs"]]
    assert sorted(paths) == sorted(map(str, (beir / "queries.jsonl", beir / "qrels/test.tsv")))


ONE = "--irds, or --hf with --part"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"hf": "beir", "part": "dev"}, "no qrels/dev"),
        *(({}, ONE), ({"hf": "x"}, ONE), ({"irds": "antique", "part": "test"}, ONE), ({"irds": "a", "hf": "b"}, ONE)),
    ],
)
def test_an_unknown_split_and_other_than_one_source_write_nothing(
    refused, outputs, beir, monkeypatch, tmp_path, source, words
):
    monkeypatch.chdir(tmp_path)
    assert words in refused("import_split", **outputs, **source)
    assert [path.name for path in tmp_path.iterdir()] == ["beir"]
