import random
import re
from pathlib import Path

import pyarrow as pa
import pytest

from cort.formats.cleaning import FORMS, convert

DATA = Path(__file__).parents[4] / "shared" / "data"
ALPHABET = "aZ09 .,!?;/:-'\"()[]\t\n\x00_éß€٣中\u2028😀Ã©"


def authors_filter(text):
    """The authors' PreProcessor, as they describe it: other characters become one blank, and ends are stripped."""
    return re.sub(r"[^a-zA-Z\d\.,\!\?;\/:]+", " ", text).strip()


def converted(texts, form):
    return convert(pa.array(texts, pa.string()), form).to_pylist()


@pytest.mark.parametrize(
    ("raw", "fixed"),
    [
        ("It costs 5â\u201a¬ at the cafÃ©.", "It costs 5€ at the café."),
        ("plain text stays as it is", "plain text stays as it is"),
        ("good: é, €, “quotes” and ﬁ", "good: é, €, “quotes” and ﬁ"),
        ("the Sun\u00e2\u0080\u0099s mass", "the Sun\u2019s mass"),
        ("", ""),
    ],
)
def test_only_wrongly_decoded_characters_are_fixed(raw, fixed):
    assert converted([raw], "fixed") == [fixed]
    assert converted([raw], "raw") == [raw]


def test_the_filter_is_the_authors():
    generator = random.Random(3)  # noqa: S311 - a test, not a secret
    texts = ["".join(generator.choices(ALPHABET, k=generator.randrange(30))) for _ in range(2_000)]
    ascii_only = [text.encode("ascii", "ignore").decode() for text in texts]
    assert converted(texts, "cort") == [authors_filter(text) for text in texts]
    assert converted(ascii_only, "cort") == [authors_filter(text) for text in ascii_only]
    assert "" in converted(texts, "cort")
    assert [converted([], form) for form in FORMS] == [[] for _ in FORMS]


@pytest.mark.skipif(not DATA.exists(), reason="needs ../shared/data")
def test_forms_of_real_passages():
    lines = (DATA / "msmarco-sample" / "collection.tsv").read_text("utf-8").splitlines()
    texts = [line.split("\t")[1] for line in lines]
    fixed = converted(texts, "fixed")
    # Nearly all passages with non-ASCII characters were published wrongly decoded.
    assert sum(not text.isascii() for text in texts) == 6_943
    assert sum(old != new for old, new in zip(texts, fixed, strict=True)) == 6_941
    assert converted(texts, "cort") == [authors_filter(text) for text in texts]
