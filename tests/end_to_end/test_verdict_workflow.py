"""A folder of texts without headings becomes a verdict, a searchable experiment and files for search engines."""

import json
import random

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers

from cort.formats.artifacts import read_artifact
from cort.retrieval.tuning import TunedWeights
from tests.support.forking import run_module
from tests.support.sandbox import copy_with_tiny

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A project with 80 texts about words of their own, and a static model of random vectors."""
    tree = copy_with_tiny(tmp_path_factory.mktemp("verdict") / "tree")
    draw = random.Random(5)  # noqa: S311
    words = [f"{first}{second}" for first in "bcdfgklmnprst" for second in ("an", "ello", "iro", "umi", "oda", "est")]
    (tree / "notes").mkdir()
    for number in range(80):
        own = draw.sample(words, 6)
        lines = [" ".join(draw.choices(own, k=4) + draw.choices(words, k=4)).capitalize() + "." for _ in range(30)]
        (tree / "notes" / f"{number}.txt").write_text("\n".join(lines), "utf-8")
    (tree / "questions.txt").write_text("ban umi\ncello kiro\nein Wort\nzwei Worte\n", "utf-8")
    (tree / "german.txt").write_text("ein Wort\nzwei Worte\n", "utf-8")
    vocabulary = {word: number for number, word in enumerate(["[UNK]", "[PAD]", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))  # noqa: S106 - no password
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    static = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=16)], device="cpu")
    static.save(str(tree / "models" / "wordllama"), create_model_card=False)
    return tree


def report_of(output):
    """The lines of the verdict."""
    lines = output.splitlines()
    return lines[next(number for number, line in enumerate(lines) if line.startswith("80 documents, ")) :]


def test_bm25_may_find_nothing(tree):
    status, output = run_module(tree, "workflow.verdict", "--folder", "notes/", "--queries", "german.txt")
    assert status == 0, output[-5000:]
    assert (tree / "results" / "notes" / "runs" / "queries" / "bm25.trec").read_bytes() == b""
    assert "BM25 finds nothing for 2 of 2 queries: is lexical.bm25.language right?" in report_of(output)


def test_a_folder_of_texts_becomes_a_verdict_and_files_for_engines(tree):
    """After another call for the same folder, whose choice of sentences stays."""
    words = ["--folder", "notes", "--queries", "questions.txt"]
    status, output = run_module(tree, "workflow.verdict", *words)
    assert status == 0, output[-5000:]
    lines = report_of(output)
    assert len(lines) <= 15
    assert "made from sentences (synthetic labels)" in lines[1]
    assert [line for line in lines if line.startswith("VERDICT: ")]
    assert any(
        line.startswith("BM25 finds nothing for 2 of 4 queries: is lexical.bm25.language right?") for line in lines
    )
    results = tree / "results"
    check = json.loads((results / "notes" / "deploy" / "search" / "check.json").read_text("utf-8"))
    assert check
    # Experiments that share weights: those tuned on generated queries merge the runs of people's queries.
    tuned = read_artifact(results / "notes-synthetic" / "weights" / "static+bm25.json", TunedWeights)
    assert tuned.weights[0] <= 0.5
    log = (results.parent / "logs" / "notes" / "fuse" / "queries.static+bm25.log").read_text("utf-8")
    assert "--tuned results/notes-synthetic/weights/static+bm25.json" in log
    assert run_module(tree, "workflow.verdict", *words)[1].count("Nothing to be done") == 2


def test_a_system_that_somebody_added_may_win(tree):
    """A published run of the relevant documents, which only the synthetic experiment has, and no engine can run."""
    qrels = (tree / "results" / "notes-synthetic" / "raw" / "imported" / "qrels.test.tsv").read_text("utf-8")
    relevant = {query_id: doc_id for query_id, _, doc_id, _ in map(str.split, qrels.splitlines())}
    lines = [f"{query_id} Q0 {doc_id}#0 1 1 x\n" for query_id, doc_id in relevant.items()]
    (tree / "oracle.trec").write_text("".join(lines), "utf-8")
    path = tree / "config" / "verdict" / "notes-synthetic.yaml"
    path.write_text(
        path.read_text("utf-8").replace("\nsystems:\n", "\nsystems:\n  oracle: {run: {test: oracle.trec}}\n")
    )
    status, output = run_module(tree, "workflow.verdict", "--folder", "notes", "--queries", "questions.txt")
    assert status == 0, output[-5000:]
    assert "used as edited: config/verdict/notes-synthetic.yaml\n" in output
    lines = report_of(output)
    assert "VERDICT: oracle, the best of those better than BM25, on synthetic labels" in lines
    assert "config/verdict/notes.yaml does not have oracle: add it there to search with it" in lines
    deployed = [line for line in lines if line.startswith("deploy: results/notes/deploy/search/README.md (")]
    assert len(deployed) == 1
    assert deployed[0].endswith(", not oracle)")
