"""Division of documents into passages, against brute force over numbered words."""

# ruff: noqa: RUF001

import unicodedata
from itertools import count, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cort.sources.documents import Document, Section
from cort.sources.passages import HEADING_WORDS, divide

UNSPACED = ("CJK UNIFIED", "HIRAGANA", "KATAKANA LETTER", "THAI CHARACTER", "LAO ", "KHMER ", "MYANMAR ", "BOPOMOFO")


def letters(number):
    """Name a number in consonants, so that neither abbreviations nor numerals arise."""
    return "".join("bcdfghjkqx"[int(digit)] for digit in f"{number:04d}")


def numbers(text):
    """Numbers of the words of a passage."""
    return [int("".join(str("bcdfghjkqx".index(one)) for one in word.strip(".").lower())) for word in text.split()]


def is_unspaced(character):
    return unicodedata.name(character, "").startswith(UNSPACED) and unicodedata.category(character)[0] == "L"


@st.composite
def documents(draw):
    """A document of numbered words, with the numbers after which its sentences, paragraphs and sections end."""
    number = count(1)
    sections, ends, borders = [], [0], [0]
    for place in range(draw(st.integers(1, 5))):
        paragraphs = []
        for lengths in draw(st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=5), min_size=1, max_size=3)):
            sentences = []
            for length in lengths:
                words = [letters(next(number)) for _ in range(length)]
                sentences.append(" ".join(words).capitalize() + ".")
                ends.append(ends[-1] + length)
            paragraphs.append(" ".join(sentences))
        sections.append(Section((f"Heading {letters(place)}",), tuple(paragraphs)))
        borders.append(ends[-1])
    return Document("d", "A title", tuple(sections)), ends, borders


@settings(deadline=None)
@given(documents(), st.integers(10, 30), st.integers(0, 50))
def test_passages_end_with_sentences_and_hold_every_word(case, words, overlap):
    document, ends, borders = case
    passages = list(divide(document, words, overlap, headings=False))
    assert [passage.doc_id for passage in passages] == [f"d#{number}" for number in range(len(passages))]
    stop = 0
    for passage in passages:
        found = numbers(passage.text)
        start, before, stop = found[0] - 1, stop, found[-1]
        assert found == list(range(start + 1, stop + 1))
        assert len(found) <= words
        assert before - overlap <= start <= before < stop
        # Words are cut apart only in a sentence that is too long.
        around = [(first, last) for first, last in pairwise(ends) if last - first > words]
        assert stop in ends or any(first < stop < last and (stop - first) % words == 0 for first, last in around)
        assert start in ends or start == before
        # Borders of sections inside are those of short ones.
        inside = [border for border in borders if start < border < stop]
        lengths = [border - borders[borders.index(border) - 1] for border in inside]
        assert all(3 * length < words for length in lengths)
        if inside:
            assert start in borders
            assert stop in borders
    assert stop == ends[-1]


@settings(deadline=None)
@given(st.lists(st.integers(1, 10), min_size=1, max_size=30), st.integers(10, 20), st.integers(0, 30))
def test_windows_are_as_long_as_possible_and_overlap_as_much_as_allowed(lengths, words, overlap):
    number = count(1)
    sentences = [" ".join(letters(next(number)) for _ in range(length)).capitalize() + "." for length in lengths]
    document = Document("d", "", (Section((), (" ".join(sentences),)),))

    def fits(first, last, limit):
        return sum(lengths[first:last]) <= limit

    expected, start = [], 0
    while True:
        stop = max(end for end in range(start, len(lengths) + 1) if fits(start, end, words))
        expected.append(" ".join(sentences[start:stop]))
        if stop == len(lengths):
            break
        starts = (begin for begin in range(stop + 1) if fits(begin, stop, overlap) and fits(begin, stop + 1, words))
        start = min(starts)
    assert [passage.text for passage in divide(document, words, overlap, headings=False)] == expected


SCRIPTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=300)
MIXED = st.text("我爱。，天安门กำที่สวัສabc .!?\n👍🏽e\u0301\u200b", max_size=300)


@settings(deadline=None)
@given(st.lists(SCRIPTS | MIXED, max_size=4), st.integers(10, 20), st.integers(0, 20))
def test_no_character_of_any_script_is_lost(paragraphs, words, overlap):
    document = Document("d", "", (Section((), tuple(paragraphs)),))
    everything = "".join("".join(paragraphs).split())
    apart = ["".join(one.text.split()) for one in divide(document, words, 0, headings=False)]
    assert "".join(apart) == everything
    # Where the passages so far may end: a text may occur several times.
    ends = {0}
    for passage in divide(document, words, overlap, headings=False):
        assert passage.text == passage.text.strip()
        assert max(len(passage.text.split()), sum(map(is_unspaced, passage.text))) <= words
        text = "".join(passage.text.split())
        begins = [begin for begin in range(max(ends) + 1) if everything.startswith(text, begin)]
        ends = {begin + len(text) for begin in begins for end in ends if begin <= end < begin + len(text)}
    assert len(everything) in ends


WORDS = [letters(number) for number in range(1, 10_001)]
ONE_WORD = [f"{letters(number).capitalize()}stop." for number in range(25)]
LONG = "x" * 100_000
SEVEN = "One two three four five six seven."
# Name -> the text, its passages of at most 10 words; three may overlap.
DIVIDED = {
    "Chinese ends with sentences": ("我爱北京。天安门！太阳升在。好吗？", ["我爱北京。天安门！", "太阳升在。好吗？"]),
    "Chinese counts characters": ("我" * 25, ["我" * 10, "我" * 10, "我" * 5]),
    "Thai is cut between characters with their marks": ("ที่นี่ " + "กี่" * 14, ["ที่นี่ " + "กี่" * 8, "กี่" * 6]),
    "sentences of one word": (" ".join(ONE_WORD), [" ".join(ONE_WORD[at : at + 10]) for at in (0, 7, 14, 21)]),
    "an endless word stays whole": (f"before. {LONG} after", [f"before. {LONG} after"]),
    "a dot in a name": (f"See module.Class for it. {SEVEN}", ["See module.Class for it.", SEVEN]),
    "a dot in a number": (f"It costs 3.5 dollars. {SEVEN}", ["It costs 3.5 dollars.", SEVEN]),
    "abbreviations": (f"Mr. Smith e.g. met Dr. Who. {SEVEN}", ["Mr. Smith e.g. met Dr. Who.", SEVEN]),
}


def texts(text, words, overlap):
    document = Document("d", "", (Section((), (text,)),))
    return [passage.text for passage in divide(document, words, overlap, headings=False)]


@pytest.mark.parametrize("name", DIVIDED)
def test_sentences_of_all_kinds(name):
    text, expected = DIVIDED[name]
    assert texts(text, 10, 3 if name == "sentences of one word" else 0) == expected


def test_a_sentence_of_ten_thousand_words():
    found = texts(f"Short one here. {' '.join(WORDS)}. Then another.", 150, 50)
    assert found[0] == "Short one here."
    assert " ".join(found[1:]) == f"{' '.join(WORDS)}. Then another."
    assert max(len(text.split()) for text in found) == 150
    assert len(found) == 68


def test_title_and_headings_begin_each_passage():
    long = " ".join(["Bab bac bad baf bag bah."] * 4)
    sections = (Section((), ("Intro words.",)), Section(("Usage", "Options"), (long,)))
    document = Document("d", "Guide", sections)
    assert [text.text for text in divide(document, 12, 0, headings=True)] == [
        "Guide Intro words.",
        "Guide Usage Options Bab bac bad baf bag bah. Bab bac bad baf bag bah.",
        "Guide Usage Options Bab bac bad baf bag bah. Bab bac bad baf bag bah.",
    ]
    assert next(divide(document, 12, 0, headings=False)).text == "Intro words."


def test_headings_of_joined_sections_are_between_them():
    sections = (Section(("A", "B"), ("One two.",)), Section(("A", "C"), ("Three four.",)), Section(("D",), ("Five.",)))
    document = Document("d", "T", sections)
    assert [text.text for text in divide(document, 10, 0, headings=True)] == ["T A B One two. C Three four. D Five."]
    assert [text.text for text in divide(document, 10, 0, headings=False)] == ["One two. Three four. Five."]


def test_words_beyond_the_longest_title_are_text_of_the_first_passages():
    title = [letters(number) for number in range(100)]
    document = Document("d", " ".join(title[:50]), (Section((" ".join(title[50:]),), ("Text.",)),))
    first, rest = title[:HEADING_WORDS], title[HEADING_WORDS:]
    pieces = [rest[start : start + 10] for start in range(0, len(rest), 10)]
    expected = [" ".join([*first, *piece]) for piece in [*pieces, ["Text."]]]
    assert [text.text for text in divide(document, 10, 0, headings=True)] == expected


def test_a_document_of_headings_only():
    document = Document("d", "Title", (Section(("Heading",), ()),))
    for headings in (True, False):
        assert [(one.doc_id, one.text) for one in divide(document, 10, 5, headings)] == [("d#0", "Title Heading")]
    assert not list(divide(Document("d", "", (Section((), (" ",)),)), 10, 5, headings=True))
