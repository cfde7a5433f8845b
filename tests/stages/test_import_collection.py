import json

import pytest

from cort import import_collection
from cort.formats.tables import PASSAGES, read_table
from cort.sources import irds
from cort.sources.undivided import document_of
from tests.support.common import command_line, write_file

ROWS = "d1\tOne two three. Four five six.\nd3\tSeven.\n"


def run(place, **changes):
    named = {"output": place / "passages.parquet", "output-counts": place / "counts.json"}
    named |= {"output-sources": place / "sources.json"}
    return import_collection.main(command_line(named, changes))


def passages(folder):
    return read_table(folder / "passages.parquet", PASSAGES).to_pydict()


def counts(folder):
    return json.loads((folder / "counts.json").read_text("utf-8"))


def test_documents_of_a_file_are_divided_into_passages(tmp_path):
    path = write_file(tmp_path / "docs.tsv", ROWS)
    assert run(tmp_path, documents=path, words=10, overlap=0) == 0
    assert passages(tmp_path)["doc_id"] == ["d1#0", "d3#0"]


def test_a_folder_is_the_same_in_processes(tmp_path):
    (tmp_path / "docs").mkdir()
    for number in range(5):
        write_file(tmp_path / "docs" / f"{number}.md", f"# Title {number}\n\n" + "A sentence of words. " * 20)
    write_file(tmp_path / "docs" / "empty.txt", "")
    write_file(tmp_path / "docs" / "image.png", "binary")
    found = []
    for threads in (1, 2):
        assert run(tmp_path, folder=tmp_path / "docs", words=20, overlap=4, threads=threads) == 0
        found.append((tmp_path / "passages.parquet").read_bytes())
        assert counts(tmp_path) == {
            "documents": 5,
            "documents without text": 0,
            "passages": len(passages(tmp_path)["doc_id"]),
            "files: an empty file": 1,
            "files: other files (.png)": 1,
        }
    assert found[0] == found[1]
    files = json.loads((tmp_path / "sources.json").read_text("utf-8"))["inputs"]
    assert [len(file["sha256"]) for file in files] == [64] * 5


def test_whole_documents_keep_their_ids(tmp_path):
    write_file(tmp_path / "corpus.jsonl", '{"_id": "a", "title": "T", "text": "x  y"}\n{"_id": "b", "text": ""}\n')
    assert run(tmp_path, hf=tmp_path) == 0
    assert passages(tmp_path) == {"doc_id": ["a", "b"], "text": ["T x  y", "."]}
    assert counts(tmp_path)["documents without text"] == 1


@pytest.mark.parametrize("sources", [{}, {"folder": ".", "irds": "antique"}])
def test_one_source_is_needed(tmp_path, capsys, sources):
    assert run(tmp_path, **sources) == 1
    assert "expected one of --documents, --folder, --irds, --hf" in capsys.readouterr().err
    assert not (tmp_path / "passages.parquet").exists()


def test_a_folder_without_documents_is_refused(tmp_path, capsys):
    (tmp_path / "docs").mkdir()
    write_file(tmp_path / "docs" / "image.png", "binary")
    assert run(tmp_path, folder=tmp_path / "docs", words=20) == 1
    assert "found no documents (skipped: 1 other files (.png)), expected" in capsys.readouterr().err
    assert not (tmp_path / "passages.parquet").exists()


def candidates(folder):
    table = read_table(folder / "candidates.parquet", PASSAGES)
    return [*zip(*table.to_pydict().values(), strict=True)]


TEXTS = {"a": ("A title of four", "First one here. Second one."), "b": ("Another such title", "Third one. Fourth one.")}


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """The same two documents in all sources: options by name of the source."""
    rows = [{"_id": name, "title": title, "text": text} for name, (title, text) in TEXTS.items()]
    (tmp_path / "docs").mkdir()
    for name, (title, text) in TEXTS.items():
        write_file(tmp_path / "docs" / f"{name}.md", f"# {title}\n\n{text}\n")
    (tmp_path / "beir").mkdir()
    file = write_file(tmp_path / "beir" / "corpus.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    # The real one refuses another number of documents than published.
    documents = [document_of(name, *texts) for name, texts in TEXTS.items()]
    monkeypatch.setattr(irds, "iter_documents", lambda name: iter(documents))
    monkeypatch.setattr(irds, "describe", lambda name, kinds: [])
    return {
        "folder": {"folder": tmp_path / "docs", "words": 50},
        "documents": {"documents": file, "words": 50},
        "passages": {"documents": file},
        "hf": {"hf": tmp_path / "beir"},
        "irds": {"irds": "beir/nfcorpus"},
    }


@pytest.mark.parametrize("source", ["folder", "documents", "passages", "hf", "irds"])
@pytest.mark.parametrize("origin", ["titles", "sentences"])
def test_every_source_gives_queries_that_its_passages_lack(tmp_path, sources, source, origin):
    table = tmp_path / "candidates.parquet"
    assert run(tmp_path, **sources[source], generate=origin, output_candidates=table) == 0
    ids = passages(tmp_path)["doc_id"]
    assert [doc_id.removesuffix("#0").removesuffix(".md") for doc_id in ids] == ["a", "b"]
    titles, bodies = zip(*TEXTS.values(), strict=True)
    if origin == "titles":
        expected = {"queries": titles, "texts": bodies}
    else:
        expected = {
            "queries": ("First one here.", "Third one."),
            "texts": (f"{titles[0]} Second one.", f"{titles[1]} Fourth one."),
        }
    assert candidates(tmp_path) == [*zip(ids, expected["queries"], strict=True)]
    assert passages(tmp_path)["text"] == [*expected["texts"]]


@pytest.mark.parametrize(
    ("origin", "fix"),
    [
        ("titles", "generate queries from sentences"),
        ("headings", "generate queries from titles or sentences"),
        ("sentences", "make passages longer"),
    ],
)
def test_a_source_without_what_becomes_a_query_is_refused(tmp_path, capsys, origin, fix):
    path = write_file(tmp_path / "docs.tsv", "d1\tOne two three.\n")
    assert run(tmp_path, documents=path, generate=origin, output_candidates=tmp_path / "candidates.parquet") == 1
    message = f"{path}: found no {origin} with text below them, expected some; {fix}\n"
    assert capsys.readouterr().err.endswith(message)
    assert [*tmp_path.iterdir()] == [path]
