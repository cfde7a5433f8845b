import json
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cort import collection, evaluate, split
from cort.formats import passages as formats
from cort.formats.passages import ahead
from cort.formats.tables import PASSAGES, QUERIES, ROW_GROUP, read_table
from cort.sources import headed, irds
from cort.sources.undivided import document_of
from tests.support.common import command_line, json_lines, logged, write_file, write_ranked

ROWS = "d1\tOne two three. Four five six.\nd3\tSeven.\n"
EMPTY = {"_id": "e", "text": ""}


def run(place, **changes):
    named = {"output": place / "passages.parquet", "output-counts": place / "counts.json"}
    named |= {"output-sources": place / "sources.json"}
    return collection.main(command_line(named, changes))


def passages(folder):
    return read_table(folder / "passages.parquet", PASSAGES).to_pydict()


def counts(folder):
    return json.loads((folder / "counts.json").read_text("utf-8"))


def test_passages_keep_the_order_of_their_files(tmp_path):
    first = write_file(tmp_path / "a.tsv", "9\t b c\n10\tä\na\tx\n")
    second = write_file(tmp_path / "b.jsonl.gz", '{"sku": 1, "name": "T", "body": "y"}\n{"sku": 2, "body": null}\n')
    assert run(tmp_path, passages=[first, second], id="sku", title="name") == 0
    assert passages(tmp_path) == {"doc_id": ["9", "10", "a", "1", "2"], "text": ["b c", "ä", "x", "T y", "."]}
    assert counts(tmp_path) == {"documents": 5, "documents without text": 1, "passages": 5}


def test_identical_documents_are_dropped_and_counted(tmp_path):
    files = [write_file(tmp_path / f"{number}.tsv", "a\tx\nb\ty\na\tx\n") for number in range(2)]
    assert run(tmp_path, passages=files) == 0
    assert passages(tmp_path) == {"doc_id": ["a", "b"], "text": ["x", "y"]}
    assert counts(tmp_path)["identical documents dropped"] == 4


def test_row_groups_are_bounded_and_bytes_repeat(tmp_path):
    path = write_file(tmp_path / "c.tsv", "".join(f"{number}\ttext {number}\n" for number in range(ROW_GROUP + 1)))
    assert run(tmp_path, passages=path) == 0
    metadata = pq.read_metadata(tmp_path / "passages.parquet")
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == [ROW_GROUP, 1]
    first = (tmp_path / "passages.parquet").read_bytes()
    assert run(tmp_path, passages=path) == 0
    assert (tmp_path / "passages.parquet").read_bytes() == first


def test_neither_ids_nor_texts_are_kept_in_memory(tmp_path, monkeypatch):
    path = write_file(tmp_path / "c.tsv", "".join(f"{number:0100}\tx\n" for number in range(100_000)))
    held = []
    monkeypatch.setattr(formats, "may_repeat", lambda *_: held.append(pa.total_allocated_bytes()))
    before = pa.total_allocated_bytes()
    assert run(tmp_path, passages=path) == 0
    assert held[0] - before < 1_000_000


MANY = "".join(f"{number}\tx\n" for number in range(ROW_GROUP + 10))


@pytest.mark.usefixtures("record_messages")
@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        (
            "c.tsv",
            "a\tx\nb\tx\nc\tx\nb\ty\n",
            "row 4: found doc_id 'b' again, with another text (it is already in",
        ),
        ("c.tsv", "", "found an empty file, expected one passage or more"),
        ("c.tsv", "a\tx\nb\n", "row 2: found 1 TAB-separated fields, expected 2 fields (doc_id TAB text)"),
        (
            "c.tsv",
            MANY + "7\ty\n",
            f"row {ROW_GROUP + 11}: found doc_id '7' again, with another text (it is",
        ),
    ],
)
def test_bad_collections_leave_nothing_and_an_earlier_table_behind(tmp_path, caplog, name, text, complaint):
    output, good = tmp_path / "out" / "passages.parquet", write_file(tmp_path / "good.tsv", "a\tx\n")
    path = write_file(tmp_path / name, text)
    for before in (b"", b"earlier"):
        if before:
            collection.main(["--passages", str(good), "--output", str(output)])
            before = output.read_bytes()
        caplog.clear()
        assert collection.main(["--passages", str(path), "--output", str(output)]) == 1
        (line,) = logged(caplog, "ERROR")
        assert line.startswith(f"{path}: {complaint}")
        assert [path.read_bytes() for path in output.parent.glob("[!.]*")] == ([before] if before else [])


def test_documents_of_files_are_divided_into_passages(tmp_path):
    paths = [write_file(tmp_path / "docs.tsv", ROWS), write_file(tmp_path / "more.jsonl", json.dumps(EMPTY))]
    assert run(tmp_path, documents=paths, words=10, overlap=0) == 0
    # The id of a document without text may be judged.
    assert passages(tmp_path) == {
        "doc_id": ["d1#0", "d3#0", "e#0"],
        "text": ["One two three. Four five six.", "Seven.", "."],
    }
    assert counts(tmp_path) == {"documents": 3, "documents without text": 1, "passages": 3}


def test_many_documents_give_the_same_bytes_in_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(headed, "CHUNK", 1_000)
    lines = (f"d{number}\t" + f"Sentence {number} has words. " * (number % 9) + "\n" for number in range(200))
    path, found = write_file(tmp_path / "docs.tsv", "".join(lines)), []
    for threads in (1, 2):
        assert run(tmp_path, documents=path, words=20, threads=threads) == 0
        found.append((tmp_path / "passages.parquet").read_bytes())
    assert found[0] == found[1]
    assert counts(tmp_path)["documents"] == 200


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


# CACM as the web has it: pages with one element, judgements of names of files, and topics as documents or of SMART.
CACM = {
    1410: "Interarrival Statistics for Time Sharing Systems\n\nThe optimization of time-shared system performance",
    2434: "Rejuvenating Experimental Computer Science",
    3048: "The Commenter\n\nA system for the documentation of programs",
}
CACM_TOPICS = {
    "cacm.query": "<DOC>\n<DOCNO> 1 </DOCNO>\n What articles exist\nwhich deal with TSS\n</DOC>\n\n"
    "<DOC>\n<DOCNO> 2 </DOCNO>\n I am interested in\nprograms\n</DOC>\n",
    "query.text": ".I 1\n.W\n What articles exist\nwhich deal with TSS\n.N\n 1. Richard\n"
    ".I 2\n.W\n I am interested in\nprograms\n.A\nRoss, D.\n",
}


@pytest.mark.parametrize("topics", CACM_TOPICS)
def test_a_folder_is_measured_by_judgements_of_names_of_files(tmp_path, topics):
    (tmp_path / "cacm").mkdir()
    for number, text in CACM.items():
        lines = f"\n\n{text}\n\nCACM March, 1967\n\nCA670302 JB February 28, 1978\n\n{number}\t5\t{number}\n\n"
        write_file(tmp_path / "cacm" / f"CACM-{number}.html", f"<html>\n<pre>{lines}</pre>\n</html>\n")
    assert run(tmp_path, folder=tmp_path / "cacm", ids="stem", words=150) == 0
    table = passages(tmp_path)
    assert table["doc_id"] == [f"CACM-{number}#0" for number in CACM]
    assert table["text"][1] == f"{CACM[2434]} CACM March, 1967 CA670302 JB February 28, 1978 2434 5 2434"
    files = {"queries": write_file(tmp_path / topics, CACM_TOPICS[topics]), "passages": tmp_path / "passages.parquet"}
    files["qrels"] = write_file(tmp_path / "cacm.rel", "1 Q0 CACM-1410 1\n2 Q0 CACM-2434 1\n2 Q0 CACM-3048 1\n")
    outputs = {"queries": tmp_path / "queries.parquet", "qrels": tmp_path / "qrels.parquet"}
    written = {f"output-{name}": path for name, path in outputs.items()}
    assert split.main(command_line(files | written, {"aggregate": "max"})) == 0
    queries = read_table(outputs["queries"], QUERIES).to_pydict()
    assert queries == {
        "query_id": ["1", "2"],
        "text": ["What articles exist which deal with TSS", "I am interested in programs"],
    }
    write_ranked(tmp_path / "run.trec", {"1": ["CACM-2434", "CACM-1410"], "2": ["CACM-3048"]})
    named = outputs | {"run": tmp_path / "run.trec", "measures": ["RR", "R@10"], "system": "s", "split": "test"}
    named |= {
        "output": tmp_path / "s.json",
        "output-per-query": tmp_path / "s.parquet",
        "output-recall": tmp_path / "s.csv",
    }
    assert evaluate.main(command_line(named)) == 0
    assert json.loads((tmp_path / "s.json").read_text("utf-8"))["mean"] == {
        "RR": (1 / 2 + 1) / 2,
        "R@10": (1 + 1 / 2) / 2,
    }


def test_whole_documents_keep_their_ids(tmp_path):
    write_file(tmp_path / "corpus.jsonl", '{"_id": "a", "title": "T", "text": "x  y"}\n{"_id": "b", "text": ""}\n')
    assert run(tmp_path, hf=tmp_path) == 0
    assert passages(tmp_path) == {"doc_id": ["a", "b"], "text": ["T x  y", "."]}
    assert counts(tmp_path)["documents without text"] == 1


@pytest.mark.parametrize("sources", [{}, {"folder": ".", "irds": "antique"}])
def test_one_source_is_needed(tmp_path, capsys, sources):
    assert run(tmp_path, **sources) == 1
    assert "expected one of --passages, --documents, --folder, --irds, --hf" in capsys.readouterr().err
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
    file = write_file(tmp_path / "beir" / "corpus.jsonl", json_lines(rows))
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


def test_items_and_errors_of_a_thread_come_in_order():
    threads = []

    def items():
        for number in range(3):
            threads.append(threading.current_thread())
            yield number
        raise ValueError("later")

    seen = []
    with pytest.raises(ValueError, match="later"):
        for item in ahead(items()):
            seen.append(item)
    assert seen == [0, 1, 2]
    assert threading.current_thread() not in threads
