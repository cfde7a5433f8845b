"""Queries from the headings of a folder of Markdown files, beside an experiment with real user queries."""

import base64
import json
import random
import re
import zlib

import pytest
import yaml

from cort.formats.judgements import iter_qrels
from cort.formats.tables import QRELS, QUERIES, read_table
from cort.retrieval.documents import split_of
from tests.support.common import texts_by_id
from tests.support.forking import run_module, succeed
from tests.support.sandbox import copy_with_tiny

pytestmark = pytest.mark.slow

TITLE = "test (synthetic labels)"
BM25 = {"bm25": {"retrieve": "bm25"}, "flat": {"retrieve": "bm25", "bm25": {"k1": 0.1, "b": 0.0}}}
FUSED = {"fuse": {"systems": ["bm25", "flat"], "method": "linear", "tune": "nDCG@10"}}


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A project with a folder of 40 files, whose sections repeat the words of their headings below them."""
    tree = copy_with_tiny(tmp_path_factory.mktemp("generated") / "tree")
    draw = random.Random(5)  # noqa: S311
    words = [f"{first}{second}" for first in "bcdfgklmnp" for second in ("an", "ello", "iro", "umi")]
    (tree / "notes" / "deep").mkdir(parents=True)
    for number in range(40):
        sections = []
        for part in range(3):
            heading = draw.sample(words, 3)
            text = " ".join(f"{draw.choice(heading)} {draw.choice(words)} {draw.choice(words)}." for _ in range(12))
            sections.append(f"## {' '.join(heading)} part{part}\n\n{text}\n")
        text = "\n".join([f"# Note {number}", *sections, "## Notes\n\nToo short a heading.\n"])
        (tree / "notes" / ("deep" if number % 2 else "") / f"{number}.md").write_text(text, "utf-8")
    (tree / "questions.txt").write_text("1\tban umi\n2\tcello kiro\n", "utf-8")
    (tree / "judged.tsv").write_text("1 0 0.md 1\n2 0 2.md 1\n", "utf-8")
    human = {"dataset": "human", "protect": False, "depth": 100, "systems": BM25}
    human["evaluation"] = {"measures": ["nDCG@10", "R@10", "R@100"]}
    human["collection"] = {"folder": "notes", "passages": {"words": 30, "overlap": 10}}
    human["splits"] = {"test": {"queries": "questions.txt", "qrels": "judged.tsv"}}
    (tree / "human.yaml").write_text(yaml.safe_dump(human), "utf-8")
    generate = {"generate": {"from": "headings"}}
    synthetic = {"extends": "human.yaml", "dataset": "synthetic", "systems": BM25 | {"fused": FUSED}}
    synthetic["splits"] = {"validation": generate, "test": {**generate, "sample": 20}}
    (tree / "synthetic.yaml").write_text(yaml.safe_dump(synthetic), "utf-8")
    return tree


@pytest.fixture(scope="module")
def results(tree):
    succeed(tree, "snakemake", "--cores", 2, "--configfile", "synthetic.yaml")
    return tree / "results" / "synthetic"


def test_only_the_index_of_generated_queries_lacks_headings(tree, results):
    passages = "results/human/collection/passages.parquet"
    succeed(tree, "snakemake", "--cores", 2, passages, "--configfile", "human.yaml")
    human = texts_by_id(tree / passages)
    assert all(re.match(r"Note \d+ ", text) for text in human.values())
    heading = re.compile(r"^Note|part\d")
    assert not any(heading.search(text) for text in texts_by_id(results / "collection/passages.parquet").values())


def test_splits_share_no_document_and_samples_are_drawn_from_their_own(results):
    judged = {
        split: {qrel.doc_id for _, qrel in iter_qrels(results / f"raw/imported/qrels.{split}.tsv")}
        for split in ("validation", "test")
    }
    documents = {f"{'deep/' * (number % 2)}{number}.md" for number in range(40)}
    assert not judged["validation"] & judged["test"]
    splits = ["test", "validation"]
    of_split = {split: {one for one in documents if split_of(one, splits, 42) == split} for split in splits}
    assert judged["validation"] == of_split["validation"]
    assert judged["test"] < of_split["test"]
    queries = read_table(results / "collection/queries.test.parquet", QUERIES).to_pydict()
    assert len(queries["text"]) == 20
    assert all(re.fullmatch(r"(\w+ ){3}part\d", text) for text in queries["text"])
    qrels = read_table(results / "collection/qrels.test.parquet", QRELS).to_pydict()
    assert [query_id.rpartition("?")[0] for query_id in qrels["query_id"]] == qrels["doc_id"]
    assert {*qrels["doc_id"]} <= judged["test"]


def test_everything_that_is_measured_says_that_labels_are_synthetic(tree, results):
    page = (results / "report/index.html").read_text("utf-8")
    captions = re.findall(r"<caption.*?</caption>", page, re.DOTALL)
    named = [caption for caption in captions if re.search(r"\btest\b", caption)]
    assert len(named) >= 3
    assert all(TITLE in caption for caption in named)
    assert "All labels are synthetic" in page
    panels = [base64.b64decode(one).decode() for one in re.findall(r'data:image/svg\+xml;base64,([^"]*)', page)]
    assert panels
    assert all(TITLE in panel for panel in panels)
    assert {*re.findall(r'href="(explore/[^"#]*)', page)} == {"explore/test/index.html"}
    for name in ("systems", "comparisons"):
        rows = (results / f"report/tables/{name}.csv").read_text("utf-8").splitlines()[1:]
        assert rows
        assert all(row.startswith(f"{TITLE},") for row in rows)
    shard = (results / "report/explore/test/data/index.js").read_text("utf-8")
    index = json.loads(zlib.decompress(base64.b64decode(shard.split('"')[3])))
    assert index["split"] == TITLE
    status, output = run_module(tree, "workflow.summary", "--configfile", "synthetic.yaml")
    assert status == 0
    assert output.count(TITLE) >= 3
    assert "All labels are synthetic: queries are headings" in output


def test_the_report_counts_what_was_dropped(results):
    documents, counts = (
        json.loads((results / f"raw/{name}.json").read_text("utf-8")) for name in ("imported", "imported/counts.test")
    )
    page = (results / "report/index.html").read_text("utf-8")
    assert f"headings of documents as queries of {TITLE}" in page
    # "Notes" is a heading of each document.
    assert counts["dropped: fewer than 3 words"] > 0
    for name, count in [*documents.items(), *counts.items()]:
        shown = re.sub("`(.*)`", r"<code>\1</code>", name)
        assert re.search(rf"{re.escape(shown)}</td><td class=\"number\">{count}</td>", page)


def test_a_matrix_says_that_labels_are_synthetic(tree, results):
    words = ("--experiments", "synthetic.yaml", "--output-folder", "matrix")
    succeed(tree, "cort.matrix", *words)
    assert TITLE in (tree / "matrix" / "index.html").read_text("utf-8")
    assert f"synthetic/{TITLE}" in (tree / "matrix" / "matrix.csv").read_text("utf-8")
