"""Queries and judgements of splits from titles, headings and sentences: known answers, and the division by document."""

import hashlib
import json
import random

import pyarrow as pa
import pytest

from cort import generate
from cort.formats.judgements import iter_qrels
from cort.formats.tables import EXPANSIONS, PASSAGES, write_table
from cort.formats.topics import iter_queries
from tests.support.common import command_line

SPLITS = ("validation", "test")
KEPT = "kept (before `sample`)"


def write_candidates(place, rows):
    ids, texts = zip(*rows, strict=True) if rows else ((), ())
    write_table(place / "candidates.parquet", pa.table([ids, texts], schema=PASSAGES))


def run(place, split="test", splits=("test",), **changes):
    named = {"candidates": [place / "candidates.parquet"], "output-queries": place / f"{split}.jsonl"}
    named |= {"output-qrels": place / f"{split}.tsv", "output-counts": place / f"{split}.json", "split": split}
    return generate.main(command_line(named, {"splits": [*splits], **changes}))


def written(place, split="test"):
    """Queries, judgements and counts."""
    queries = {query.id: query.text for _, query in iter_queries(place / f"{split}.jsonl")}
    qrels = [tuple(qrel) for _, qrel in iter_qrels(place / f"{split}.tsv")]
    return queries, qrels, json.loads((place / f"{split}.json").read_text("utf-8"))


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


def test_known_answers(tmp_path):
    write_candidates(tmp_path, ROWS)
    assert run(tmp_path, aggregate="max", max_words=5) == 0
    queries, qrels, counts = written(tmp_path)
    assert queries == {"a.md?0": "How to begin here", "a.md?1": "A second good heading", "b.md?0": "日本語"}
    assert qrels == [("a.md?0", "a.md", 1), ("a.md?1", "a.md", 1), ("b.md?0", "b.md", 1)]
    assert counts == {
        "dropped: fewer than 3 words": 1,
        "dropped: more than 5 words": 1,
        "dropped: the same in several documents": 2,
        KEPT: 3,
    }


def test_of_predicted_queries_the_first_of_each_passage_is_taken(tmp_path):
    shards = [
        [("a#0", ["the first of these", "another"]), ("a#1", [])],
        [("b#0", ["only this one here"])],
    ]
    for number, rows in enumerate(shards):
        columns = [[doc_id for doc_id, _ in rows], [queries for _, queries in rows]]
        write_table(tmp_path / f"{number}.parquet", pa.table(columns, schema=EXPANSIONS))
    assert run(tmp_path, candidates=[tmp_path / "0.parquet", tmp_path / "1.parquet"]) == 0
    queries, qrels, counts = written(tmp_path)
    assert queries == {"a?0": "the first of these", "b?0": "only this one here"}
    assert (qrels, counts[KEPT]) == ([("a?0", "a#0", 1), ("b?0", "b#0", 1)], 2)


def test_without_aggregation_all_passages_below_a_query_are_relevant(tmp_path):
    write_candidates(tmp_path, ROWS)
    assert run(tmp_path) == 0
    assert written(tmp_path)[1] == [
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


def divided(place, rows, splits=SPLITS, seed=42):
    """Documents of each split."""
    write_candidates(place, rows)
    for split in splits:
        assert run(place, split, splits, seed=seed, aggregate="max") == 0
    return {split: {doc_id for _, doc_id, _ in written(place, split)[1]} for split in splits}


@pytest.mark.parametrize("splits", [SPLITS, ("train", "validation", "test")])
def test_every_document_is_in_the_split_that_its_hash_says(tmp_path, splits):
    documents = [f"folder/{number}.md" for number in range(300)]
    found = divided(tmp_path, drawn(1, documents), splits)
    expected = {split: set() for split in splits}
    for document in documents:
        digest = hashlib.sha256(f"42 {document}".encode()).hexdigest()
        expected[splits[int(digest, 16) % len(splits)]].add(document)
    assert found == expected
    assert set.union(*found.values()) == {*documents}
    assert all(
        len(documents) / len(splits) / 1.5 < len(own) < len(documents) / len(splits) * 1.5 for own in found.values()
    )


def test_other_documents_and_their_order_move_no_document(tmp_path):
    documents = [f"{number}.md" for number in range(100)]
    rows = drawn(2, documents)
    before = divided(tmp_path, rows)
    more = divided(tmp_path, [*drawn(3, [f"new-{number}.md" for number in range(50)]), *rows])
    assert {split: {name for name in own if not name.startswith("new-")} for split, own in more.items()} == before
    assert (
        divided(tmp_path, [row for name in reversed(documents) for row in rows if row[0].startswith(f"{name}#")])
        == before
    )
    assert divided(tmp_path, rows, seed=43) != before


def test_a_text_above_documents_of_two_splits_is_in_neither(tmp_path):
    own = divided(tmp_path, drawn(4, [f"{number}.md" for number in range(20)]))
    first, second = min(own["validation"]), min(own["test"])
    rows = [(f"{first}#0", "the same text"), (f"{second}#0", "The same text"), (f"{first}#1", "one of its own")]
    write_candidates(tmp_path, [*rows, (f"{second}#1", "another one of its own")])
    for split, text in (("validation", "one of its own"), ("test", "another one of its own")):
        assert run(tmp_path, split, SPLITS) == 0
        assert [*written(tmp_path, split)[0].values()] == [text]


@pytest.mark.parametrize("rows", [[], [("a#0", "Too short")]])
def test_a_split_without_queries_is_refused(tmp_path, capsys, rows):
    write_candidates(tmp_path, rows)
    assert run(tmp_path) == 1
    assert (
        "found no query left, expected one or more; change `generate` of test, or add documents"
        in capsys.readouterr().err
    )
    assert [path.name for path in tmp_path.iterdir()] == ["candidates.parquet"]
