"""Queries and judgements of splits from titles, headings and sentences: known answers, and the division by document."""

import hashlib
import json
import random

import pytest

from cort.formats.judgements import iter_qrels
from cort.formats.tables import EXPANSIONS, PASSAGES, write_table
from cort.formats.topics import iter_queries
from tests.support.common import table_of

SPLITS = ("validation", "test")
KEPT = "kept (before `sample`)"


def write_candidates(place, rows):
    write_table(place / "candidates.parquet", table_of(PASSAGES, rows))


def options(place, split="test", splits=("test",), **changes):
    named = {"candidates": place / "candidates.parquet", "output_queries": place / f"{split}.jsonl"}
    named |= {"output_qrels": place / f"{split}.tsv", "output_counts": place / f"{split}.json"}
    return named | {"split": split, "splits": [*splits]} | changes


@pytest.fixture
def written(stage, tmp_path):
    """A function that runs the stage; queries, judgements and counts."""

    def run(split="test", splits=("test",), **changes):
        stage("generate", **options(tmp_path, split, splits, **changes))
        queries = {query.id: query.text for _, query in iter_queries(tmp_path / f"{split}.jsonl")}
        qrels = [tuple(qrel) for _, qrel in iter_qrels(tmp_path / f"{split}.tsv")]
        return queries, qrels, json.loads((tmp_path / f"{split}.json").read_text("utf-8"))

    return run


ROWS = [
    ("a.md#0", "How to begin here"),
    ("a.md#1", "How to begin here"),
    ("a.md#1", "A second good heading"),
    ("b.md#0", "Shared by two documents"),
    ("b.md#1", "Too short"),
    ("b.md#2", "日本語"),
    ("c.md#0", "shared by  two documents."),
    ("c.md#7", "one two three four five six"),
]


def test_known_answers(written, tmp_path):
    write_candidates(tmp_path, ROWS)
    queries, qrels, counts = written(aggregate="max", max_words=5)
    assert queries == {"a.md?0": "How to begin here", "a.md?1": "A second good heading", "b.md?0": "日本語"}
    assert qrels == [("a.md?0", "a.md", 1), ("a.md?1", "a.md", 1), ("b.md?0", "b.md", 1)]
    assert counts == {
        "dropped: fewer than 3 words": 1,
        "dropped: more than 5 words": 1,
        "dropped: the same in several documents": 2,
        KEPT: 3,
    }


def test_of_predicted_queries_the_first_of_each_passage_is_taken(written, tmp_path):
    shards = {
        "0.parquet": [("a#0", ["the first of these", "another"]), ("a#1", [])],
        "1.parquet": [("b#0", ["only this one here"])],
    }
    for name, rows in shards.items():
        write_table(tmp_path / name, table_of(EXPANSIONS, rows))
    queries, qrels, counts = written(candidates=[tmp_path / name for name in shards])
    assert queries == {"a?0": "the first of these", "b?0": "only this one here"}
    assert (qrels, counts[KEPT]) == ([("a?0", "a#0", 1), ("b?0", "b#0", 1)], 2)


def test_without_aggregation_all_passages_below_a_query_are_relevant(written, tmp_path):
    write_candidates(tmp_path, ROWS)
    assert written()[1] == [
        ("a.md?0", "a.md#0", 1),
        ("a.md?0", "a.md#1", 1),
        ("a.md?1", "a.md#1", 1),
        ("b.md?0", "b.md#2", 1),
        ("c.md?0", "c.md#7", 1),
    ]


def drawn(number, documents):
    """Queries of many documents, some with several passages."""
    draw = random.Random(number)  # noqa: S311
    passages = ((document, f"{document}#{place}") for document in documents for place in range(draw.randint(1, 4)))
    return [(passage, f"words above {document} {draw.randint(0, 2)}") for document, passage in passages]


@pytest.fixture
def divided(written, tmp_path):
    """A function that returns the documents of each split."""

    def run(rows, splits=SPLITS, seed=42):
        write_candidates(tmp_path, rows)
        qrels = {split: written(split, splits, seed=seed, aggregate="max")[1] for split in splits}
        return {split: {doc_id for _, doc_id, _ in own} for split, own in qrels.items()}

    return run


@pytest.mark.parametrize("splits", [SPLITS, ("train", "validation", "test")])
def test_every_document_is_in_the_split_that_its_hash_says(divided, splits):
    documents = [f"folder/{number}.md" for number in range(300)]
    found = divided(drawn(1, documents), splits)
    expected = {split: set() for split in splits}
    for document in documents:
        digest = hashlib.sha256(f"42 {document}".encode()).hexdigest()
        expected[splits[int(digest, 16) % len(splits)]].add(document)
    assert found == expected
    share = len(documents) / len(splits)
    assert all(share / 1.5 < len(own) < share * 1.5 for own in found.values())


def test_other_documents_and_their_order_move_no_document(divided):
    documents = [f"{number}.md" for number in range(100)]
    rows = drawn(2, documents)
    before = divided(rows)
    more = divided([*drawn(3, [f"new-{number}.md" for number in range(50)]), *rows])
    assert {split: {name for name in own if not name.startswith("new-")} for split, own in more.items()} == before
    turned = [row for name in reversed(documents) for row in rows if row[0].startswith(f"{name}#")]
    assert divided(turned) == before
    assert divided(rows, seed=43) != before


def test_a_text_above_documents_of_two_splits_is_in_neither(divided, written, tmp_path):
    own = divided(drawn(4, [f"{number}.md" for number in range(20)]))
    first, second = min(own["validation"]), min(own["test"])
    rows = [(f"{first}#0", "the same text"), (f"{second}#0", "The same text"), (f"{first}#1", "one of its own")]
    write_candidates(tmp_path, [*rows, (f"{second}#1", "another one of its own")])
    for split, text in (("validation", "one of its own"), ("test", "another one of its own")):
        assert [*written(split, SPLITS)[0].values()] == [text]


@pytest.mark.parametrize("rows", [[], [("a#0", "Too short")]])
def test_a_split_without_queries_is_refused(refused, tmp_path, rows):
    write_candidates(tmp_path, rows)
    assert f"found no query left for test of {len(rows)} candidates, " in refused("generate", **options(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["candidates.parquet"]
