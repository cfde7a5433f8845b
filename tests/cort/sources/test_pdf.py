import pytest

from cort.sources import pdf
from cort.sources.hyphens import OPEN
from tests.support.pdf import pdf_of


def test_pages_are_paragraphs_and_words_are_joined():
    found = pdf.read(pdf_of("An exam-\nple on\ntwo lines.", "", "Page three.", title="The title"))
    title, blocks = found[:2]
    assert title == "The title"
    assert [(level, text) for level, text in blocks] == [(0, f"An exam{OPEN}ple on two lines."), (0, "Page three.")]


@pytest.mark.parametrize("title", ["paper.tex", "Microsoft Word - a.docx", "untitled", ""])
def test_names_of_files_are_no_titles(title):
    assert pdf.read(pdf_of("Text.", title=title)).title == ""


def test_a_password_that_is_empty():
    assert pdf.read(pdf_of("Text.", owner="secret")).blocks == [(0, "Text.")]
