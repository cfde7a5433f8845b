import json

import pytest

from cort import import_split
from tests.support.common import command_line, write_file


def run(place, **changes):
    named = {"output-queries": place / "q.jsonl", "output-qrels": place / "r.tsv"}
    return import_split.main(command_line(named | {"output-sources": place / "sources.json"}, changes))


@pytest.fixture
def beir(tmp_path):
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    write_file(folder / "queries.jsonl", '{"_id": "q1", "text": "naïve “list”"}\n{"_id": "q2", "text": "unused"}\n')
    write_file(folder / "qrels" / "test.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t2\n")
    return folder


def test_queries_and_judgements_keep_texts_and_grades(tmp_path, beir):
    assert run(tmp_path, hf=beir, part="test") == 0
    lines = (tmp_path / "q.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [
        {"_id": "q1", "text": "naïve “list”"},
        {"_id": "q2", "text": "unused"},
    ]
    assert (tmp_path / "r.tsv").read_text("utf-8") == "q1\t0\td1\t2\n"
    files = json.loads((tmp_path / "sources.json").read_text("utf-8"))["inputs"]
    assert sorted(file["path"] for file in files) == sorted(map(str, (beir / "queries.jsonl", beir / "qrels/test.tsv")))


def test_an_unknown_split_writes_nothing(tmp_path, beir, capsys):
    assert run(tmp_path, hf=beir, part="dev") == 1
    assert "no qrels/dev" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["beir"]


@pytest.mark.parametrize("source", [{}, {"hf": "x"}, {"irds": "antique", "part": "test"}, {"irds": "a", "hf": "b"}])
def test_one_source_is_needed(tmp_path, capsys, source):
    assert run(tmp_path, **source) == 1
    assert "--irds, or --hf with --part" in capsys.readouterr().err
