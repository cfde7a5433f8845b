"""The first sections of docs/documents.md, collections.md and reproduction.md, command by command.

A folder of texts without headings becomes a verdict, a searchable experiment and files for search engines.
"""

import json
import random
import re
import shlex
import shutil
import subprocess

import pytest
import yaml
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers

from cort.formats.artifacts import read_artifact
from cort.formats.runs import read_run
from cort.retrieval.weights import TunedWeights
from tests.support.common import ROOT, texts_by_id
from tests.support.forkclient import EXECUTABLE
from tests.support.forking import FORKED, succeed
from tests.support.processes import Python
from tests.support.sandbox import copy_with_tiny, hurry_latencies

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
    hurry_latencies(tree)
    (tree / "questions.txt").write_text("ban umi\ncello kiro\nein Wort\nzwei Worte\n", "utf-8")
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


def steps(page):
    """The commands of the first section of a page, in order."""
    start = re.search(r"^## Start\n(.*?)^## ", (ROOT / "docs" / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return re.findall(r"^ {8}(make .*)$", start[1], re.MULTILINE)


@pytest.fixture(autouse=True)
def builds_start_at_once(monkeypatch):
    """Also those that the verdict starts."""
    monkeypatch.setenv(EXECUTABLE, str(FORKED / "python"))


def follow(tree, command):
    """Do what make would, and return what was printed; the explorer opens for judging alone, for a moment."""
    plan = ["make", "--dry-run", "--assume-old=.venv/.installed", *shlex.split(command)[1:]]
    lines = subprocess.run(plan, cwd=tree, check=True, capture_output=True, text=True).stdout.replace("\\\n", " ")
    printed = ""
    for module, words in re.findall(r"^\S+/python -m (\S+) (.*)$", lines, re.MULTILINE):
        options = [word for word in shlex.split(words) if word != "--open"]
        if module == "cort.explore" and "--judgements" not in options:
            assert (tree / options[1]).is_file()
        elif module == "cort.explore":
            with Python("-m", module, *options, "--port", 0, cwd=tree, stdout=subprocess.PIPE) as explorer:
                assert explorer.stdout.readline().startswith("http://127.0.0.1:")
        else:
            printed += succeed(tree, module, *options)
    return printed


def test_the_start_with_documents(tree):
    """A verdict on synthetic labels, with user queries and an encoder, in the explorer, and with judgements."""
    here = [re.sub(r"MODEL=\S+", "MODEL=models/mine", step) for step in steps("documents.md")]
    first, asked, explore, judge, judged = (re.sub(r"\bdocs\b", "notes", step) for step in here)
    assert "VERDICT: " in follow(tree, first)
    shutil.copytree(tree / "models" / "wordllama", tree / "models" / "mine")
    lines = report_of(follow(tree, asked))
    assert len(lines) <= 16
    assert "made from sentences (synthetic labels)" in lines[1]
    assert [line for line in lines if line.startswith("VERDICT: ")]
    assert any(
        line.startswith("BM25 finds nothing for 2 of 4 queries: is lexical.bm25.language right?") for line in lines
    )
    results = tree / "results"
    # Experiments that share weights: those tuned on generated queries merge the runs of real user queries.
    tuned = read_artifact(results / "notes-synthetic" / "weights" / "static+bm25.json", TunedWeights)
    assert tuned.weights[0] <= 0.5
    log = (tree / "logs" / "notes" / "fuse" / "queries.static+bm25.log").read_text("utf-8")
    assert "--tuned=results/notes-synthetic/weights/static+bm25.json" in log
    follow(tree, explore)
    follow(tree, judge)
    texts = texts_by_id(results / "notes" / "collection" / "passages.parquet")
    found = read_run(results / "notes" / "runs" / "queries" / "bm25.trec")
    rows = [{"query_id": one.query_id, "text": texts[one.doc_ids[0]], "relevance": 2} for one in found]
    (tree / "judged.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    # Too few to decide.
    assert "on synthetic labels" in follow(tree, judged)
    assert json.loads((results / "notes" / "deploy" / "search" / "check.json").read_text("utf-8"))
    assert (results / "notes" / "deploy" / "search" / "README.md").is_file()


def test_the_start_with_a_collection(tree):
    """The experiment of the page, with documents and a model that are here; the quickstart has tests of its own."""
    quickstart, *others = steps("collections.md")
    assert quickstart == "make results"
    text = (ROOT / "docs" / "collections.md").read_text("utf-8")
    config = yaml.safe_load(re.search(r"^ {4}```yaml\n(.*?)```", text, re.MULTILINE | re.DOTALL)[1])
    config |= {"collection": {"folder": "notes"}, "encoders": {"minilm": {"pretrained": "models/mine"}}}
    config["splits"] = {"test": {"queries": "questions.txt", "qrels": "judged.jsonl"}}
    (tree / "my.yaml").write_text(yaml.safe_dump(config), "utf-8")
    planned, inspected, built, searched = (follow(tree, step) for step in others)
    assert "retrieve" in planned
    assert "passages" in inspected
    assert "TOO FEW QUERIES" in built
    assert searched == ""


def test_the_start_with_a_paper(tree):
    """What is missing is named; the other commands are tests of their own, or take days."""
    plan, *others = steps("reproduction.md")
    assert "train" in follow(tree, plan)
    assert others == ["make smoke-test", "make results TABLE=cort/1", "make results CONFIG=config/msmarco.yaml"]


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
    output = succeed(tree, "workflow.verdict", "--folder", "notes", "--queries", "questions.txt")
    assert "used as edited: config/verdict/notes-synthetic.yaml\n" in output
    lines = report_of(output)
    assert "VERDICT: oracle, the best of those better than BM25, on synthetic labels" in lines
    assert "config/verdict/notes.yaml does not have oracle: add it there to search with it" in lines
    deployed = [line for line in lines if line.startswith("deploy: results/notes/deploy/search/README.md (")]
    assert len(deployed) == 1
    assert deployed[0].endswith(", not oracle)")
