import json
import re
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import pytest

from tests.support import irds as homes
from tests.support.common import md5_of
from tests.support.misbehaving_server import Step, serving

KINDS = ("docs", "queries", "qrels")
START = """
import json, logging, sys
from cort.sources import irds
from cort.runtime.errors import InputError
logging.basicConfig(level="INFO", format="LOG %(levelname)s %(message)s")
"""
# The number of records is not that of the real dataset.
UNCOUNTED = "irds.library().util.default_metadata_provider._metadata = {}\n"
OURS = """
def put(name, kind, records):
    print(json.dumps([name, kind, list(records)]))
for name in sys.argv[1:]:
    put(name, "docs", ([each.doc_id, each.title, each.text] for each in irds.iter_documents(name)))
    put(name, "queries", irds.iter_queries(name))
    put(name, "qrels", irds.iter_qrels(name))
    put(name, "described", irds.describe(name, ["docs", "queries", "qrels"]))
"""
THEIRS = """
import json, sys
import ir_datasets
def put(name, kind, records):
    print(json.dumps([name, kind, list(records)]))
for name in sys.argv[1:]:
    dataset = ir_datasets.load(name)
    docs = ([each.doc_id, getattr(each, "title", ""), each.default_text()] for each in dataset.docs_iter())
    put(name, "docs", docs)
    put(name, "queries", ([each.query_id, each.default_text()] for each in dataset.queries_iter()))
    put(name, "qrels", ([each.query_id, each.doc_id, each.relevance] for each in dataset.qrels_iter()))
"""
FAILURES = """
for function, name in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        print(json.dumps(len(list(getattr(irds, function)(name)))))
    except InputError as error:
        print(json.dumps(str(error)))
"""
NAMES = ["beir/scifact/test", "antique/test", "cranfield", "vaswani", "msmarco-document/dev"]


def run(home, code, *arguments, **environment):
    """Run code in a fresh process; return what it prints, and its log."""
    done = homes.run_with(home, code, *arguments, **environment)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def collected(home, code, *names):
    """Return records by dataset and kind."""
    found = {}
    for name, kind, records in run(home, code, *names)[0]:
        found.setdefault(name, {})[kind] = records
    return found


def outcomes(home, *pairs, change="", **environment):
    """Return the number of records for each function and name, or the line with which it is refused."""
    arguments = [word for pair in pairs for word in pair]
    found, log = run(home, START + change + FAILURES, *arguments, **environment)
    assert all(line.startswith("LOG ") for line in log.splitlines()), log
    assert not any("\n" in str(line) for line in found)
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    documents = [
        {"_id": "4983", "title": "Microstructural development", "text": "Alterations of the  architecture"},
        {"_id": "d-2", "title": "", "text": " untitled "},
        {"_id": "3", "title": "A title alone", "text": ""},
        {"_id": "4", "title": "Only", "text": "Onlyness, 3,5 €: naïve"},
    ]
    queries = [{"_id": str(n), "text": f" query {n}"} for n in range(4)]
    qrels = {"test": [(0, "d-2", 1), (2, "4983", 0)], "train": [(1, 3, 1)]}
    homes.write_beir(home, "scifact", documents, queries, qrels)
    homes.write_antique(home)
    homes.write_cranfield(
        home,
        [("investigation of\nthe aerodynamics .", "investigation\n  of wings .")] * 3 + [("", "")],
        ["what similarity laws\nmust be obeyed ?", "what are the problems ?"],
        [(1, 2, 2), (1, 3, -1), (2, 4, 4)],
    )
    homes.write_vaswani(home)
    homes.write_msmarco_document(home)
    return home


@pytest.fixture(scope="module")
def found(home):
    return collected(home, START + UNCOUNTED + OURS, *NAMES)


@pytest.fixture(scope="module")
def expected(home):
    return collected(home, THEIRS, *NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_records_are_those_of_ir_datasets(found, expected, name):
    ours, theirs = found[name], expected[name]
    assert [len(ours[kind]) for kind in KINDS] == [len(theirs[kind]) for kind in KINDS]
    assert ours["queries"] == [[query_id, " ".join(text.split())] for query_id, text in theirs["queries"]]
    assert ours["qrels"] == theirs["qrels"]
    for (doc_id, title, text), (its_id, its_title, default) in zip(ours["docs"], theirs["docs"], strict=True):
        assert (doc_id, title, text.split()) == (its_id, " ".join(its_title.split()), default.split())


def test_texts_keep_their_spaces_but_not_their_line_breaks(found):
    assert found["beir/scifact/test"]["docs"] == [
        ["4983", "Microstructural development", "Microstructural development Alterations of the  architecture"],
        ["d-2", "", "untitled"],
        ["3", "A title alone", "A title alone"],
        ["4", "Only", "Only Onlyness, 3,5 €: naïve"],
    ]
    # The URL is no text.
    assert found["msmarco-document/dev"]["docs"] == [
        ["D1", "A title here", "A title here The body begins and goes on. Another  paragraph"],
        ["D2", "", "Only a body"],
        ["D3", ".", "."],
    ]
    assert found["cranfield"]["docs"][3] == ["4", "", ""]
    assert found["cranfield"]["qrels"][1] == ["1", "3", -1]


def test_records_are_described_by_version_count_and_digest(found):
    from importlib.metadata import version

    described = found["antique/test"]["described"]
    begin = f"ir_datasets {version('ir_datasets')}: antique/test, "
    assert [one["path"].removeprefix(begin) for one in described] == ["3 documents", "2 queries", "3 judgements"]
    lines = b"3990512 1_0 4\n3990512 174_1 1\n714612 2020338_0 2\n"
    assert (described[2]["bytes"], described[2]["sha256"]) == (len(lines), sha256(lines).hexdigest())


def test_as_many_records_as_published(tmp_path):
    homes.write_whole_cranfield(tmp_path)
    pairs = [("iter_documents", "cranfield"), ("iter_queries", "cranfield"), ("iter_qrels", "cranfield")]
    assert outcomes(tmp_path, *pairs) == list(homes.CRANFIELD)
    # One document less, as in a file that was copied in part.
    path = tmp_path / "cranfield" / "docs.txt"
    path.write_text(path.read_text().rpartition(".I ")[0])
    line = outcomes(tmp_path, *pairs)[0]
    assert line.startswith("ir_datasets cranfield, documents: found 1399 of them, expected 1400, as published")
    assert str(tmp_path / "cranfield") in line


SOURCES = {
    "cranfield": "cranfield/cran.tar.gz",
    "beir/scifact/test": "beir/scifact/source.zip",
    "msmarco-document/dev": "msmarco-document/collection.tsv.gz",
}


@pytest.mark.parametrize("kept", [0, 60])
def test_damaged_files_are_refused(home, tmp_path, kept):
    for path in SOURCES.values():
        homes.put(tmp_path / path, b"")
        (tmp_path / path).write_bytes((home / path).read_bytes()[:kept])
    for name, line in zip(SOURCES, outcomes(tmp_path, *(("iter_documents", name) for name in SOURCES)), strict=True):
        assert line.startswith(f"ir_datasets {name}, documents: ")
        # gzip takes an empty file for an empty text.
        assert "row 1: found an error of ir_datasets (" in line or (not kept and "found 0 of them" in line)


def test_names_that_do_not_exist_and_datasets_without_records(tmp_path):
    lines = {
        ("iter_documents", "beir/nfcorpsu"): ": found no dataset 'beir/nfcorpsu'.*; did you mean beir/nfcorpus?",
        ("iter_qrels", "beir/nfcorpus"): " beir/nfcorpus: found no judgements, expected one of beir/nfcorpus/dev, "
        "beir/nfcorpus/test, beir/nfcorpus/train;",
        ("iter_queries", "antique"): " antique: found no queries, expected one of antique/test, "
        "antique/test/non-offensive, antique/train, antique/train/split200-train, antique/train/split200-valid;",
        ("iter_documents", "beir"): " beir: found no documents, expected one of beir/arguana, ",
        ("iter_qrels", "msmarco-document/eval"): " msmarco-document/eval: found no judgements, expected a dataset",
    }
    for line, words in zip(outcomes(tmp_path, *lines), lines.values(), strict=True):
        assert re.match(f"ir_datasets{words}", line)


MISSING = [("iter_documents", "antique"), ("iter_qrels", "beir/nfcorpus/test"), ("iter_queries", "vaswani")]


def test_a_missing_file_without_a_network_is_one_line(tmp_path):
    # A proxy that is off, as there may be a network.
    proxies = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    for (_, name), line in zip(MISSING, outcomes(tmp_path, *MISSING, **proxies), strict=True):
        assert line.startswith(f"ir_datasets {name}, ")
        assert "ProxyError" in line or "Max retries exceeded" in line
        assert f"put there what is missing (https://ir-datasets.com/{name.partition('/')[0]}.html)" in line


def test_a_collection_with_a_licence_says_where_to_put_it(tmp_path):
    ((line,), log) = run(tmp_path, START + FAILURES, "iter_documents", "aquaint")
    path = tmp_path / "aquaint" / "aquaint_comp_LDC2002T31.tgz"
    assert line.startswith(f"ir_datasets aquaint, documents: row 1: found an error of ir_datasets ({path})")
    assert "LOG INFO The AQUAINT corpus is available" in log and f"symlink the source file here: {path}" in log


# Everything is fetched from a server of this test, which waits before it answers.
FETCHED = """
docs = irds.library().registry["antique"].docs_handler()._dlc
docs.mirrors[-1].url = "{url}"
docs._size_hint, docs.expected_md5 = 7, "{md5}"
"""


def test_several_processes_fetch_a_file_once_without_a_progress_bar(tmp_path):
    text = b"1\ttext\n"
    with serving() as server, ThreadPoolExecutor(3) as pool:
        # No client may ask for more before it fetches the file.
        server.serve("/antique", text, Step(pause=0.5, ranges=False))
        change = UNCOUNTED + FETCHED.format(url=f"{server.url}/antique", md5=md5_of(text))
        arguments = (tmp_path, START + change + FAILURES, "iter_documents", "antique")
        runs = [pool.submit(run, *arguments, no_proxy="127.0.0.1") for _ in range(3)]
    assert len(server.sent["/antique"]) == 1
    assert (tmp_path / "antique" / "collection.tsv").read_bytes() == text
    for found, log in (one.result() for one in runs):
        assert found == [1]
        assert all(line.startswith("LOG ") for line in log.splitlines())
        assert "\r" not in log
        assert "%" not in log


def test_invalid_records_are_named(tmp_path):
    homes.put(tmp_path / "antique" / "collection.tsv", "1\tfirst\n \ttext\n")
    homes.put(tmp_path / "antique" / "test" / "queries.txt", "1\tfirst\n2\t \n")
    homes.put(tmp_path / "antique" / "train" / "queries.txt", "1\tfirst\n2\ta\tb\n")
    homes.put(tmp_path / "antique" / "test" / "qrels", "1 0 2 1\n1 0 3 5000\n")
    beginnings = {
        ("iter_documents", "antique"): "documents: row 2: found an empty doc_id",
        ("iter_queries", "antique/test"): "queries: row 2: found an empty text",
        ("iter_queries", "antique/train"): "queries: row 2: found an error of ir_datasets (expected 2 fields, got 3)",
        ("iter_qrels", "antique/test"): "judgements: row 2: found the grade '5000'",
    }
    for ((_, name), words), line in zip(beginnings.items(), outcomes(tmp_path, *beginnings), strict=True):
        assert line.startswith(f"ir_datasets {name}, {words}")


def test_an_interruption_is_no_error_of_the_library(home):
    code = """
from cort.runtime.interruption import Interrupted
def end(record):
    raise Interrupted("", 143)
irds._document = end
try:
    list(irds.iter_documents("antique"))
except Interrupted as interrupted:
    print(json.dumps(interrupted.status))
"""
    assert run(home, START + code)[0] == [143]


def test_another_encoding(home):
    plain = {"PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    (line,) = outcomes(home, ("iter_documents", "antique"), **plain)
    assert line.startswith("ir_datasets: found the encoding ")
