"""PDF as typesetting programs write it: two columns, words broken at the end of a line, ligatures as glyphs."""

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

from cort.sources.folder import Skips, iter_documents

LEFT = ("An efficient office classi-", "fies flat files of raf-", "fle figures.")
RIGHT = ("The other column affirms", "what fluid shelves offer.")
LIGATURES = {"ffi": "ﬃ", "ffl": "ﬄ", "ff": "ﬀ", "fi": "ﬁ", "fl": "ﬂ"}


def as_characters(text):
    """Write ligatures as the characters that fonts without a table of letters give."""
    for letters, ligature in LIGATURES.items():
        text = text.replace(letters, ligature)
    return text


def typeset(path, write):
    """Typeset both columns with matplotlib, which takes the font's ligatures as other typesetting programs do."""
    figure = Figure()
    for left, column in ((0.1, LEFT), (0.55, RIGHT)):
        for number, line in enumerate(column):
            figure.text(left, 0.9 - 0.05 * number, write(line))
    with mpl.rc_context({"font.family": "DejaVu Sans"}):
        figure.savefig(path)
    # The names of glyphs.
    assert {b"/fi", b"/fl"} <= set(path.read_bytes().replace(b"]", b" ").split())


@pytest.mark.parametrize("write", [str, as_characters])
def test_words_are_whole_and_one_column_follows_the_other(tmp_path, write):
    typeset(tmp_path / "paper.pdf", write)
    # A hyphen goes where the collection has the word without it.
    (tmp_path / "words.txt").write_text("It classifies a raffle.")
    document, _ = iter_documents(tmp_path, Skips())
    words = "An efficient office classifies flat files of raffle figures."
    assert document.text == f"{words} The other column affirms what fluid shelves offer."
