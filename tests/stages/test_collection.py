import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cort import collection
from cort.formats import passages as formats
from cort.formats.tables import PASSAGES, QUERIES, ROW_GROUP, ROWS_READ_AT_ONCE, iter_batches, read_table
from cort.sources import headed, irds
from cort.sources.documents import plain_document
from tests.support.common import json_lines, write_file, write_ranked

ROWS = "d1\tOne two three. Four five six.\nd3\tSeven.\n"


@pytest.fixture
def run(stage, tmp_path):
    """A function that runs the stage; the table of its passages, and its counts."""

    def run(**options):
        named = {"output_counts": tmp_path / "counts.json", "output_sources": tmp_path / "sources.json"}
        output = stage("collection", output=tmp_path / "passages.parquet", **named, **options)
        return read_table(output, PASSAGES).to_pydict(), json.loads(named["output_counts"].read_text("utf-8"))

    return run


def test_passages_keep_the_order_of_their_files(tmp_path, run):
    first = write_file(tmp_path / "a.tsv", "9\t b c\n10\tä\na\tx\n9\t b c\n")
    second = write_file(tmp_path / "b.jsonl.gz", '{"sku": 1, "name": "T", "body": "y"}\n{"sku": 2, "body": null}\n')
    again = write_file(tmp_path / "c.tsv", "a\tx\n")
    passages, counts = run(passages=[first, second, again], id="sku", title="name")
    assert passages == {"doc_id": ["9", "10", "a", "1", "2"], "text": ["b c", "ä", "x", "T y", "."]}
    assert counts.pop("identical documents dropped") == 2
    assert counts == {"documents": 7, "documents without text": 1, "passages": 5}


def test_repeated_passages_of_several_row_groups_are_dropped(tmp_path, run):
    ids = [*map(str, range(ROW_GROUP + 2)), "7"]
    path = write_file(tmp_path / "c.tsv", "".join(f"{doc_id}\tx\n" for doc_id in ids))
    passages, counts = run(passages=path)
    assert passages["doc_id"] == ids[:-1]
    assert counts["identical documents dropped"] == 1


def test_row_groups_are_bounded_and_bytes_repeat(tmp_path, run):
    path = write_file(tmp_path / "c.tsv", "".join(f"{number}\ttext {number}\n" for number in range(ROW_GROUP + 1)))
    written = []
    for _ in range(2):
        run(passages=path)
        written.append((tmp_path / "passages.parquet").read_bytes())
    assert written[0] == written[1]
    metadata = pq.read_metadata(tmp_path / "passages.parquet")
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == [
        *[ROWS_READ_AT_ONCE] * (ROW_GROUP // ROWS_READ_AT_ONCE),
        1,
    ]
    # Who reads all gets large batches.
    assert [len(batch) for batch in iter_batches(tmp_path / "passages.parquet", PASSAGES)] == [ROW_GROUP, 1]


def test_neither_ids_nor_texts_are_kept_in_memory(tmp_path, run, monkeypatch):
    path = write_file(tmp_path / "c.tsv", "".join(f"{number:0100}\tx\n" for number in range(100_000)))
    held = []
    monkeypatch.setattr(formats, "may_repeat", lambda *_: held.append(pa.total_allocated_bytes()))
    before = pa.total_allocated_bytes()
    run(passages=path)
    assert held[0] - before < 1_000_000


MANY = "".join(f"{number}\tx\n" for number in range(ROW_GROUP + 10))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\tx\nb\tx\nc\tx\nb\ty\n", "row 4: found doc_id 'b' again, with another text"),
        ("", "found an empty file"),
        ("a\tx\nb\n", "row 2: found 1 TAB-separated fields"),
        (MANY + "7\ty\n", f"row {ROW_GROUP + 11}: found doc_id '7' again, with another text"),
    ],
)
def test_bad_collections_leave_nothing_and_an_earlier_table_behind(tmp_path, stage, refused, complaint, text, words):
    output, good = tmp_path / "out" / "passages.parquet", write_file(tmp_path / "good.tsv", "a\tx\n")
    path = write_file(tmp_path / "c.tsv", text)
    assert refused("collection", passages=path, output=output).startswith(f"{path}: {words}")
    before = stage("collection", passages=good, output=output).read_bytes()
    complaint(collection.main, ["--passages", path, "--output", output])
    assert [path.read_bytes() for path in output.parent.glob("[!.]*")] == [before]


def test_documents_of_files_are_divided_into_passages(tmp_path, run):
    empty = write_file(tmp_path / "more.jsonl", '{"_id": "e", "text": ""}')
    passages, counts = run(documents=[write_file(tmp_path / "docs.tsv", ROWS), empty], words=10, overlap=0)
    # The id of a document without text may be judged.
    assert passages == {"doc_id": ["d1#0", "d3#0", "e#0"], "text": ["One two three. Four five six.", "Seven.", "."]}
    assert counts == {"documents": 3, "documents without text": 1, "passages": 3}


def test_many_documents_give_the_same_in_processes(tmp_path, run, monkeypatch):
    monkeypatch.setattr(headed, "CHUNK", 1_000)
    lines = (f"d{number}\t" + f"Sentence {number} has words. " * (number % 9) + "\n" for number in range(200))
    path = write_file(tmp_path / "docs.tsv", "".join(lines))
    found = [run(documents=path, words=20, threads=threads) for threads in (1, 2)]
    assert found[0] == found[1]
    assert found[0][1]["documents"] == 200


def test_files_of_a_folder_are_counted_and_recorded(tmp_path, run):
    (tmp_path / "docs").mkdir()
    for number in range(5):
        write_file(tmp_path / "docs" / f"{number}.md", f"# Title {number}\n\n" + "A sentence of words. " * 20)
    write_file(tmp_path / "docs" / "empty.txt", "")
    write_file(tmp_path / "docs" / "image.png", "binary")
    write_file(tmp_path / "docs" / "page.html", "<nav>Home Search</nav>Text.<noscript>No script</noscript>")
    passages, counts = run(folder=tmp_path / "docs", words=20, overlap=4, threads=2)
    skipped = {"files: an empty file": 1, "files: other files (.png)": 1}
    skipped |= {"words left out: navigation": 2, "words left out: noscript": 2}
    skipped |= {"words left out: most, of 'page.html'": 4}
    documents = {"documents": 6, "documents without text": 0, "passages": len(passages["doc_id"])}
    assert counts == documents | skipped
    files = json.loads((tmp_path / "sources.json").read_text("utf-8"))["inputs"]
    assert [len(file["sha256"]) for file in files] == [64] * 6


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
def test_a_folder_is_measured_by_judgements_of_names_of_files(tmp_path, stage, run, topics):
    (tmp_path / "cacm").mkdir()
    for number, text in CACM.items():
        lines = f"\n\n{text}\n\nCACM March, 1967\n\nCA670302 JB February 28, 1978\n\n{number}\t5\t{number}\n\n"
        write_file(tmp_path / "cacm" / f"CACM-{number}.html", f"<html>\n<pre>{lines}</pre>\n</html>\n")
    passages, _ = run(folder=tmp_path / "cacm", ids="stem", words=150)
    assert passages["doc_id"] == [f"CACM-{number}#0" for number in CACM]
    assert passages["text"][1] == f"{CACM[2434]} CACM March, 1967 CA670302 JB February 28, 1978 2434 5 2434"
    files = {"queries": write_file(tmp_path / topics, CACM_TOPICS[topics]), "passages": tmp_path / "passages.parquet"}
    files["qrels"] = write_file(tmp_path / "cacm.rel", "1 Q0 CACM-1410 1\n2 Q0 CACM-2434 1\n2 Q0 CACM-3048 1\n")
    outputs = {name: tmp_path / f"{name}.parquet" for name in ("queries", "qrels")}
    stage("split", **files, **{f"output_{name}": path for name, path in outputs.items()}, aggregate="max")
    queries = read_table(outputs["queries"], QUERIES).to_pydict()
    texts = ["What articles exist which deal with TSS", "I am interested in programs"]
    assert queries == {"query_id": ["1", "2"], "text": texts}
    run = write_ranked(tmp_path / "run.trec", {"1": ["CACM-2434", "CACM-1410"], "2": ["CACM-3048"]})
    named = outputs | {"run": run, "measures": ["RR", "R@10"], "system": "s", "split": "test"}
    named |= {"output_per_query": tmp_path / "s.parquet", "output_recall": tmp_path / "s.csv"}
    measured = json.loads(stage("evaluate", **named, output=tmp_path / "s.json").read_text("utf-8"))
    assert measured["mean"] == {"RR": (1 / 2 + 1) / 2, "R@10": (1 + 1 / 2) / 2}


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
    documents = [plain_document(name, *texts) for name, texts in TEXTS.items()]
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
def test_every_source_gives_queries_that_its_passages_lack(tmp_path, run, sources, source, origin):
    table = tmp_path / "candidates.parquet"
    passages, _ = run(**sources[source], generate=origin, output_candidates=table)
    ids = passages["doc_id"]
    assert [doc_id.removesuffix("#0").removesuffix(".md") for doc_id in ids] == ["a", "b"]
    titles, bodies = zip(*TEXTS.values(), strict=True)
    expected = {
        "titles": (titles, bodies),
        "sentences": (("First one here.", "Third one."), [f"{titles[0]} Second one.", f"{titles[1]} Fourth one."]),
    }
    queries, texts = expected[origin]
    assert read_table(table, PASSAGES).to_pydict() == {"doc_id": ids, "text": [*queries]}
    assert passages["text"] == [*texts]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "expected one of --passages, --documents, --folder, --irds, --hf"),
        ({"folder": "docs", "irds": "antique"}, "expected one of --passages, --documents, --folder, --irds, --hf"),
        ({"folder": "docs", "words": 20}, "found no documents (skipped: 1 other files (.png)), "),
    ],
)
def test_sources_without_passages_are_refused(tmp_path, refused, monkeypatch, options, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    write_file(tmp_path / "docs" / "image.png", "binary")
    write_file(tmp_path / "docs.tsv", "d1\tOne two three.\n")
    assert words in refused("collection", output=tmp_path / "x", **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["docs", "docs.tsv"]
