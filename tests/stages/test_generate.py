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


def write_candidates(place, rows, texts=None):
    """Queries with their passages, which have texts of their own unless others are given."""
    write_table(place / "candidates.parquet", table_of(PASSAGES, rows))
    passages = {passage: f"text of {passage}" for passage, _ in rows} | (texts or {})
    write_table(place / "passages.parquet", table_of(PASSAGES, [*passages.items()]))


def known_by(document, text):
    """Id of a query."""
    return f"{document}?{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def options(place, split="test", splits=("test",), **changes):
    named = {"candidates": place / "candidates.parquet", "output_queries": place / f"{split}.jsonl"}
    named |= {"output_qrels": place / f"{split}.tsv", "output_counts": place / f"{split}.json"}
    named["passages"] = place / "passages.parquet"
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
    expected = {"How to begin here": "a.md", "A second good heading": "a.md", "日本語": "b.md"}
    assert queries == {known_by(document, text): text for text, document in expected.items()}
    assert qrels == [(known_by(document, text), document, 1) for text, document in expected.items()]
    assert counts == {
        "dropped: fewer than 3 words": 1,
        "dropped: more than 5 words": 1,
        "dropped: code": 0,
        "dropped: the same in several documents": 2,
        "dropped: the passage has the text of another one": 0,
        KEPT: 3,
    }


TYPES = ("isize", "u8", "u16", "u32", "u64", "usize", "f32", "f64", "bool", "char", "str", "never")
# Pages of a reference that is made from code, with headings that somebody might ask, too.
REFERENCE = {
    "impl Shl<&u64> for {0}": "code",
    "fn bitor_assign(&mut self, other: {0})": "code",
    "pub fn store(&self, val: {0}, order: Ordering)": "code",
    "pub const MAX: {0} = {0}::MAX": "code",
    "Function std::{0}::write of the library": "code",
    "impl Into{1} for Box": "code",
    "pub unsafe trait Alloc{1} of memory": "code",
    "Notes for everything here": "the same in several documents",
    "Notes about overflow of {0}": KEPT,
    "What happens when {0} is divided by zero?": KEPT,
    "What is {1}?": KEPT,
    "class sizes of {1}": KEPT,
}
# Questions are asked alike, but of few documents, and names of products are no code.
ANSWERS = {
    "install.md": ["How do I install it on Linux?", "How do I install it on Windows?", "Getting started with C#"],
    "connect.md": ["Connect to PostgreSQL from JavaScript", "Choose the setting(s) of a connection, e.g. $5 plans"],
    "ask.md": ["Wie installiere ich den Drucker unter Windows?", "What is the difference between Vec<T> and a slice?"],
}


def test_what_nobody_would_ask_is_dropped_by_reason(written, tmp_path):
    headings = [
        (f"{name}.html#{place}", heading.format(name, name.capitalize()), reason)
        for name in TYPES
        for place, (heading, reason) in enumerate(REFERENCE.items())
    ]
    write_candidates(tmp_path, [row[:2] for row in headings])
    queries, _, counts = written(aggregate="max")
    expected = {reason: sum(row[2] == reason for row in headings) for reason in {row[2] for row in headings}}
    assert {name.removeprefix("dropped: "): number for name, number in counts.items() if number} == expected
    assert {*queries.values()} == {text for _, text, reason in headings if reason == KEPT}


def test_questions_are_kept(written, tmp_path):
    rows = [(f"{name}#{place}", text) for name, texts in ANSWERS.items() for place, text in enumerate(texts)]
    write_candidates(tmp_path, rows)
    assert {*written(aggregate="max")[0].values()} == {text for _, text in rows}


def test_a_passage_with_a_twin_in_another_document_has_no_query(written, tmp_path):
    """A twin in its own document is no other result, unless passages are measured."""
    rows = [("a#0", "a question about it"), ("a#1", "another question about it"), ("b#0", "a question of its own")]
    rows.append(("d#0", "the last question here"))
    same = "Returns the argument unchanged."
    write_candidates(tmp_path, rows, {"a#0": same, "c#5": same, "b#0": "twice", "b#1": "twice"})
    assert {*written(aggregate="max")[0].values()} == {text for _, text in rows[1:]}
    queries, _, counts = written()
    assert {*queries.values()} == {"another question about it", "the last question here"}
    assert counts["dropped: the passage has the text of another one"] == 2


def test_a_sample_and_ids_stay_when_passages_are_divided_differently(written, tmp_path):
    """Queries that go move no others: those that both have, and were drawn from fewer, are drawn again."""
    rows = drawn(5, [f"{number}.md" for number in range(60)])
    write_candidates(tmp_path, rows)
    whole, (first, _, counts) = written()[0], written(sample=30)
    assert (len(first), counts[KEPT]) == (30, len(whole))
    assert first.items() <= whole.items()
    gone = {*[*whole][::3]}
    fewer = [(f"{passage}1", text) for passage, text in rows if known_by(passage.partition("#")[0], text) not in gone]
    write_candidates(tmp_path, fewer)
    second = written(sample=30)[0]
    assert second.items() <= whole.items()
    assert {*first} - gone <= {*second}
    assert written(sample=30, seed=7)[0] != second


def test_of_predicted_queries_the_first_of_each_passage_is_taken(written, tmp_path):
    shards = {
        "0.parquet": [("a#0", ["the first of these", "another"]), ("a#1", [])],
        "1.parquet": [("b#0", ["only this one here"])],
    }
    for name, rows in shards.items():
        write_table(tmp_path / name, table_of(EXPANSIONS, rows))
    write_table(tmp_path / "passages.parquet", table_of(PASSAGES, [("a#0", "x"), ("a#1", "y"), ("b#0", "z")]))
    queries, qrels, counts = written(candidates=[tmp_path / name for name in shards])
    first, second = known_by("a", "the first of these"), known_by("b", "only this one here")
    assert queries == {first: "the first of these", second: "only this one here"}
    assert (qrels, counts[KEPT]) == ([(first, "a#0", 1), (second, "b#0", 1)], 2)


def test_without_aggregation_all_passages_below_a_query_are_relevant(written, tmp_path):
    write_candidates(tmp_path, ROWS)
    assert written()[1] == [
        (known_by("a.md", "How to begin here"), "a.md#0", 1),
        (known_by("a.md", "How to begin here"), "a.md#1", 1),
        (known_by("a.md", "A second good heading"), "a.md#1", 1),
        (known_by("b.md", "日本語"), "b.md#2", 1),
        (known_by("c.md", "one two three four five six"), "c.md#7", 1),
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


@pytest.mark.parametrize(("rows", "why"), [([], "none"), ([("a#0", "Too short")], "1 fewer than 3 words")])
def test_a_split_without_queries_is_refused(refused, tmp_path, rows, why):
    write_candidates(tmp_path, rows)
    expected = f"found no query left for test of {len(rows)} candidates ({why} here), "
    assert expected in refused("generate", **options(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"candidates.parquet", "passages.parquet"}
