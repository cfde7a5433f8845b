"""A model makes queries of passages and judges what systems retrieve, beside real user queries; predicted queries."""

import json
import random
import re
from collections import Counter
from zipfile import ZipFile

import pytest
import yaml

from cort.formats.judgements import iter_qrels
from cort.formats.runs import read_run
from cort.formats.tables import QRELS, QUERIES, read_table
from cort.models.prompts import GRADE_PROMPT, QUERY_PROMPT
from cort.retrieval.documents import document_of, hash_of, split_of
from tests.support.changes import planned_jobs
from tests.support.common import texts_by_id
from tests.support.forking import run_module, snakemake, succeed
from tests.support.model_server import configured_server
from tests.support.sandbox import copy_with_tiny

pytestmark = pytest.mark.slow

BM25 = {"bm25": {"retrieve": "bm25"}, "flat": {"retrieve": "bm25", "bm25": {"k1": 0.1, "b": 0.0}}}
KEY = "sk-secret-of-the-tests"
DEPTH, SEED = 3, 42
ASKED = {"dev": 6, "test": 8}


def answer(prompt):
    """Three words of a passage; a grade by the number of words that it shares with the query; sometimes nonsense."""
    if prompt.startswith(QUERY_PROMPT):
        words = prompt.removeprefix(QUERY_PROMPT).split()
        return "" if "nello" in words[:20] else " ".join(words[:3])
    query, _, passage = prompt.removeprefix(GRADE_PROMPT + "Query: ").partition("\n\nPassage:\n")
    grade = min(len({*query.split()} & {*passage.split()}), 3)
    return "no idea" if grade == 0 else f"**{grade}**"


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A project with a folder of 30 files, two files of questions, and predicted queries."""
    tree = copy_with_tiny(tmp_path_factory.mktemp("asked") / "tree")
    draw = random.Random(5)  # noqa: S311
    words = [f"{first}{second}" for first in "bcdfgklmnp" for second in ("an", "ello", "iro", "umi")]
    (tree / "notes").mkdir()
    for number in range(30):
        sentences = [" ".join(draw.sample(words, 9)) + "." for _ in range(8)]
        (tree / "notes" / f"{number}.md").write_text(f"# Note {number}\n\n{' '.join(sentences)}\n", "utf-8")
    (tree / "mine.txt").write_text("".join(f"{' '.join(draw.sample(words, 3))}\n" for _ in range(10)), "utf-8")
    (tree / "questions.txt").write_text("1\tban umi\n2\tcello kiro\n", "utf-8")
    (tree / "judged.tsv").write_text("1 0 0.md 1\n2 0 2.md 1\n", "utf-8")
    config = {"dataset": "asked", "protect": False, "depth": 20, "systems": BM25}
    config["evaluation"] = {"measures": ["nDCG@10", "R@10"]}
    config["collection"] = {"folder": "notes", "passages": {"words": 40, "overlap": 10}}
    config["endpoint"] = {"model": "org/small", "max_requests": 100}
    files = {"queries": "questions.txt", "qrels": "judged.tsv"}
    config["splits"] = {
        "mine": {"queries": "mine.txt"},
        "graded": {"judge": {"split": "mine", "depth": DEPTH}},
        "people": files,
        "copied": {**files, "labels": "LLM"},
        **{name: {"generate": {"from": "endpoint"}, "sample": number} for name, number in ASKED.items()},
    }
    (tree / "asked.yaml").write_text(yaml.safe_dump(config), "utf-8")
    return tree


@pytest.fixture(scope="module")
def server():
    with configured_server(KEY, answer=answer) as server:
        yield server


@pytest.fixture(scope="module")
def results(tree, server):
    succeed(tree, "snakemake", "--cores", 2, "--configfile", "asked.yaml")
    return tree / "results" / "asked"


def test_the_smallest_hashes_of_each_split_are_asked_about_once(results, server):
    texts = texts_by_id(results / "collection/passages.parquet")
    # The index has all words.
    assert all(re.match(r"Note \d+ ", text) for text in texts.values())
    expected = Counter()
    for split, number in ASKED.items():
        own = [doc_id for doc_id in texts if split_of(document_of(doc_id), [*ASKED], SEED) == split]
        drawn = sorted(own, key=lambda doc_id: hash_of(SEED, doc_id))[:number]
        expected.update(QUERY_PROMPT + texts[doc_id] for doc_id in drawn)
        counts = json.loads((results / f"raw/imported/counts.{split}.json").read_text("utf-8"))
        queries = read_table(results / f"collection/queries.{split}.parquet", QUERIES)["text"].to_pylist()
        answers = [answer(QUERY_PROMPT + texts[doc_id]) for doc_id in drawn]
        assert sorted(queries) == sorted(filter(None, answers))
        assert counts["dropped: fewer than 3 words"] == answers.count("")
        judged = {qrel.doc_id for _, qrel in iter_qrels(results / f"raw/imported/qrels.{split}.tsv")}
        assert judged == {document_of(doc_id) for doc_id in drawn if answer(QUERY_PROMPT + texts[doc_id])}
    assert Counter({prompt: n for prompt, n in server.answered.items() if prompt.startswith(QUERY_PROMPT)}) == expected


def test_the_pool_of_all_systems_is_judged_once(results, server):
    texts, queries = texts_by_id(results / "collection/passages.parquet"), dict(enumerate(read_lines(results), 1))
    pool, best = set(), {}
    for system in BM25:
        for ranking in read_run(results / f"runs/mine/{system}.trec"):
            documents = {}
            for doc_id in ranking.doc_ids:
                documents.setdefault(document_of(doc_id), doc_id)
            pool |= {(ranking.query_id, *pair) for pair in [*documents.items()][:DEPTH]}
    prompts = [
        f"{GRADE_PROMPT}Query: {queries[int(query)]}\n\nPassage:\n{texts[passage]}" for query, _, passage in pool
    ]
    asked = {prompt: number for prompt, number in server.answered.items() if prompt.startswith(GRADE_PROMPT)}
    assert asked == dict.fromkeys(prompts, 1)
    for (query, document, _), prompt in zip(pool, prompts, strict=True):
        if (said := answer(prompt)) != "no idea":
            best[query, document] = max(int(said[2]), best.get((query, document), 0))
    found = read_table(results / "collection/qrels.graded.parquet", QRELS).to_pydict()
    assert dict(zip(zip(found["query_id"], found["doc_id"], strict=True), found["relevance"], strict=True)) == best
    counts = json.loads((results / "raw/imported/counts.graded.json").read_text("utf-8"))
    grades = Counter(f"grade {grade}" for grade in best.values())
    unknown = len({pair[:2] for pair in pool}) - len(best)
    assert counts == grades | ({"not judged: no grade in the answer": unknown} if unknown else {})


def read_lines(results):
    return (results.parents[1] / "mine.txt").read_text("utf-8").splitlines()


def test_everything_that_is_measured_says_who_judged(tree, results):
    page = (results / "report/index.html").read_text("utf-8")
    status, output = run_module(tree, "workflow.summary", "--configfile", "asked.yaml")
    assert status == 0
    for title in ("graded (LLM labels)", "copied (LLM labels)", "dev (synthetic labels)", "test (synthetic labels)"):
        assert title in output
        assert title in page
        assert f"{title}," in (results / "report/tables/systems.csv").read_text("utf-8")
    for line in (
        "Labels of dev, test are synthetic: queries were made of passages by org/small.",
        "Labels of graded are by org/small.",
        "Labels of copied are by a language model.",
    ):
        assert line in output
        assert line in page
    assert "people (" not in output
    assert "grades of graded (LLM labels)" in page
    assert "endpoint as queries of dev (synthetic labels)" in page
    names = ["--experiments", "asked.yaml", "--output-folder", "matrix", "--measures", "R@10"]
    status, output = run_module(tree, "cort.matrix", *names)
    assert status == 1
    assert "found LLM and human and synthetic labels, expected labels of one kind" in output
    succeed(tree, "cort.matrix", *names, "--labels", "human")
    header = (tree / "matrix/matrix.csv").read_text("utf-8").splitlines()[0]
    assert re.findall(r"asked/[^,]+", header) == ["asked/people"]


def test_no_file_has_the_address_or_the_key(tree, results, server):
    port = server.url.split(":")[2].partition("/")[0]
    words = (KEY.encode(), f"127.0.0.1:{port}".encode())
    for folder in ("results", "logs", "benchmarks", "endpoint_cache", ".snakemake"):
        for path in (tree / folder).rglob("*"):
            assert not path.is_file() or not any(word in path.read_bytes() for word in words), path


def test_another_build_sends_nothing(tree, results, server):
    before = sum(server.answered.values())
    status, output = snakemake(tree, "--cores", 2, "--configfile", "asked.yaml")
    assert (status, planned_jobs(output)) == (0, set()), output[-3000:]
    # A limit is no setting of results.
    config = yaml.safe_load((tree / "asked.yaml").read_text("utf-8"))
    config["endpoint"] |= {"max_requests": 0, "at_once": 1, "requests_per_minute": 1}
    (tree / "limited.yaml").write_text(yaml.safe_dump(config), "utf-8")
    status, output = snakemake(tree, "--dry-run", "--configfile", "limited.yaml")
    assert planned_jobs(output) == set()
    # Another experiment with the same texts.
    (tree / "again.yaml").write_text(yaml.safe_dump(config | {"dataset": "again"}), "utf-8")
    files = ("queries.test.jsonl", "qrels.dev.tsv")
    targets = [f"results/again/raw/imported/{file}" for file in files]
    succeed(tree, "snakemake", "--cores", 2, *targets, "--configfile", "again.yaml")
    assert sum(server.answered.values()) == before
    for file in files:
        one, other = (tree / "results" / name / "raw/imported" / file for name in ("asked", "again"))
        assert one.read_bytes() == other.read_bytes()


def test_predicted_queries_are_the_first_of_each_passage(tree, results):
    ids = [*texts_by_id(results / "collection/passages.parquet")]
    # A passage in ten has none.
    lines = [f"note word{number} ban" if number % 10 else "" for number in range(len(ids))]
    with ZipFile(tree / "predicted.zip", "w") as packed:
        for sample, texts in enumerate([lines, [text and "a second query" for text in lines]]):
            packed.writestr(f"sample{sample}.txt000-1004000", "".join(f"{text}\n" for text in texts))
    config = yaml.safe_load((tree / "asked.yaml").read_text("utf-8"))
    del config["endpoint"]
    config |= {"dataset": "predicted", "expanders": {"d2q": {"file": "predicted.zip", "queries": 2}}}
    config["splits"] = {"test": {"generate": {"from": "expanders.d2q"}}, "mine": config["splits"]["mine"]}
    (tree / "predicted.yaml").write_text(yaml.safe_dump(config), "utf-8")
    path = "results/predicted/collection/queries.test.parquet"
    succeed(tree, "snakemake", "--cores", 2, path, "--configfile", "predicted.yaml")
    queries = read_table(tree / path, QUERIES).to_pydict()
    expected = {(document_of(doc_id), line) for doc_id, line in zip(ids, lines, strict=True) if line}
    assert {(query_id.rpartition("?")[0], text) for query_id, text in zip(*queries.values(), strict=True)} == expected
