"""Documents from passages, against a brute-force oracle."""

import math
import random

import numpy as np
import pyarrow as pa
import pytest

from cort.formats.records import Ranking
from cort.formats.runs import read_run, run_of, write_run
from cort.retrieval.documents import as_documents, document_of, documents_of, group_passages
from cort.runtime.errors import InputError

HOW = ("max", "first", "mean3")
IDS = ("a", "b-c", "b", "b!", "docs/a.md", "docs/a.md#old", "é", "Z")


def document(doc_id):
    return doc_id.rpartition("#")[0] or doc_id


def number(doc_id):
    return int(doc_id.rpartition("#")[2]) if "#" in doc_id else 0


def oracle(ranking, how):
    """(document, passages with ranks, the one that counts first), best document first."""
    found = {}
    for rank, (doc_id, score) in enumerate(zip(ranking.doc_ids, ranking.scores.tolist(), strict=True), 1):
        found.setdefault(document(doc_id), []).append((doc_id, score, rank))
    rows = []
    for doc_id, passages in found.items():
        if how == "first":
            passages.sort(key=lambda passage: number(passage[0]))
        used = [score for _, score, _ in passages[: 3 if how == "mean3" else 1]]
        rows.append((-math.fsum(used) / len(used), doc_id, passages))
    rows.sort(key=lambda row: (row[0], row[1].encode()))
    return rows


def made(seed, queries=40):
    """Rankings as run files have them: many passages of few documents, few of many, and documents of one passage."""
    generator = random.Random(seed)  # noqa: S311
    rankings = []
    for query in range(queries):
        folders = ("", f"x{query}/", "y/")
        ids = {
            f"{generator.choice(folders)}{generator.choice(IDS)}#{generator.randint(0, 12)}"
            for _ in range(generator.randint(1, 80))
        } | set(generator.sample(["whole", "alone"], generator.randint(0, 2)))
        # Few distinct scores: the means of documents tie.
        scores = np.sort(np.array([generator.choice([-1.5, 0.25, 0.5, 3, 12.125, 1e-3]) for _ in ids]))[::-1]
        rankings.append(Ranking(f"q{query}", sorted(ids), scores))
    return rankings


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run.trec"
    write_run(path, made(1), "made")
    return read_run(path)


@pytest.mark.parametrize("how", HOW)
def test_documents_are_those_of_an_oracle_to_the_byte(run, how, tmp_path):
    expected = []
    for ranking in run:
        rows = oracle(ranking, how)
        scores = np.array([-row[0] for row in rows])
        expected.append(Ranking(ranking.query_id, [row[1] for row in rows], scores))
    write_run(tmp_path / "expected.trec", expected, "made")
    documents = as_documents(run, how)
    write_run(tmp_path / "found.trec", documents, "made")
    assert (tmp_path / "found.trec").read_bytes() == (tmp_path / "expected.trec").read_bytes()
    # Strictly decreasing, within each query, in single precision.
    assert all((np.diff(ranking.scores.astype(np.float32)) < 0).all() for ranking in documents)


@pytest.mark.parametrize("how", HOW)
def test_each_document_has_the_passages_it_comes_from(run, how):
    documents = group_passages(run, how)
    rows = [row for ranking in run for row in oracle(ranking, how)]
    assert documents.passages.to_pylist() == [passages[0][0] for _, _, passages in rows]
    described = [[f"{number(id_) if '#' in id_ else ''} (rank {rank})" for id_, _, rank in row[2]] for row in rows]
    assert documents.about.to_pylist() == [", ".join(words) for words in described]


def test_the_document_is_the_id_up_to_the_last_mark(run):
    ids = pa.array(["a#1", "docs/a.md#x#12", "alone", "#1", "a#"])
    assert documents_of(ids, "max").to_pylist() == ["a", "docs/a.md#x", "alone", "#1", "a"]
    assert [document_of(doc_id) for doc_id in ids.to_pylist()] == documents_of(ids, "max").to_pylist()
    # Without aggregation, nothing changes.
    assert documents_of(ids, "none").equals(ids)
    assert as_documents(run, "none") is run


def test_the_first_passage_needs_numbers():
    run = run_of([Ranking("q", ["a#1", "a#intro"], np.array([2.0, 1.0]))])
    with pytest.raises(InputError, match=r"^passages: found 'a#intro'"):
        as_documents(run, "first")
    assert as_documents(run, "max").doc_ids.to_pylist() == ["a"]
