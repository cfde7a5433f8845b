"""Passages without the titles, headings or sentences that become queries."""

import random

import pytest

from cort.sources.documents import Document, Section, plain_document
from cort.sources.headed import Division, headed_passages
from cort.sources.passages import divide

GUIDE = Document(
    "guide.md",
    "The guide",
    (
        Section((), ("Welcome to all. Read on.",)),
        Section(("Install",), ("Get the file now please today. Run it twice.",)),
        Section(("Install", "On Linux"), ("Use the shell for this purpose. Then wait a bit.",)),
    ),
)
TEXTS = ["Welcome to all. Read on.", "Get the file now please today. Run it twice."]
TEXTS += ["Use the shell for this purpose. Then wait a bit."]


def headed(document, origin, words=10, overlap=0, headings=True):
    """Ids, texts and queries of a document's passages."""
    return [
        (doc_id, text, tuple(queries))
        for doc_id, text, queries in headed_passages(document, Division(origin, words, overlap, headings))
    ]


ABOVE = {
    "titles": [(text, ("The guide",)) for text in TEXTS],
    "headings": [(TEXTS[0], ()), (TEXTS[1], ("Install",)), (TEXTS[2], ("Install", "On Linux"))],
    "sentences": [
        ("The guide Read on.", ("Welcome to all.",)),
        ("The guide Install Run it twice.", ("Get the file now please today.",)),
        ("The guide Install On Linux Then wait a bit.", ("Use the shell for this purpose.",)),
    ],
}


@pytest.mark.parametrize("origin", ABOVE)
def test_titles_or_headings_above_or_the_first_sentence_are_the_queries_of_a_passage(origin):
    found = headed(GUIDE, origin)
    assert [doc_id for doc_id, _, _ in found] == [f"guide.md#{number}" for number in range(len(TEXTS))]
    assert [one[1:] for one in found] == ABOVE[origin]
    assert origin != "sentences" or headed(GUIDE, origin, headings=False)[0][1] == "Read on."


def test_without_queries_passages_are_as_ever():
    for headings in (True, False):
        plain = [(passage.doc_id, passage.text, ()) for passage in divide(GUIDE, 10, 3, headings)]
        assert headed(GUIDE, None, overlap=3, headings=headings) == plain


@pytest.mark.parametrize("words", [None, 10])
@pytest.mark.parametrize(
    ("title", "text", "origin", "expected"),
    [
        ("A title", "A text.", "titles", ("A text.", ("A title",))),
        ("A title", "A text.", None, ("A title A text.", ())),
        ("A title", "A text.", "headings", ("A text.", ())),
        ("A title", "A text. More.", "sentences", ("A title More.", ("A text.",))),
        # Nothing would be below these.
        ("A title", "A text.", "sentences", ("A title A text.", ())),
        ("A title", "", "titles", ("A title", ())),
        ("", "A text.", "titles", ("A text.", ())),
    ],
)
def test_titles_and_texts(words, title, text, origin, expected):
    assert [one[1:] for one in headed(plain_document("d", title, text), origin, words)] == [expected]


def test_empty_documents_stay_and_what_no_text_can_hold_is_replaced():
    assert headed(plain_document("d", "", ""), "titles", words=None) == [("d", ".", ())]
    document = plain_document("d", "A\0B", "one\ntwo\0\n\nhalf \ud800")
    assert document == Document("d", "A B", (Section((), ("one two", "half ?")),))


@pytest.mark.parametrize("origin", ["titles", "headings", "sentences"])
def test_no_passage_of_a_document_has_the_words_of_its_queries(origin):
    # Every sentence and heading has words of its own, so that any copy would be seen.
    numbers = iter(range(100_000))
    draw = random.Random(7)  # noqa: S311

    def words(count):
        return " ".join(f"w{next(numbers)}" for _ in range(count))

    def sentences():
        return " ".join(f"W{words(draw.randint(2, 20))}." for _ in range(draw.randint(1, 12)))

    sections = tuple(Section((words(3), words(2))[: draw.randint(0, 2)], (sentences(), sentences())) for _ in range(40))
    found = headed(Document("d", words(4), sections), origin, words=30, overlap=25)
    queries = {query for _, _, above in found for query in above}
    assert queries
    assert not {word for query in queries for word in query.split()} & {w for one in found for w in one[1].split()}
