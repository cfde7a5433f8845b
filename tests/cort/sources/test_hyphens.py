import pytest

from cort.sources import pdf
from cort.sources.documents import Document, Section, outline, paragraphs_of
from cort.sources.folder import Skips, iter_documents
from cort.sources.hyphens import OPEN, marked, settled
from tests.support.common import write_file
from tests.support.pdf import pdf_of

LINES = {
    "an exam-\nple": f"an exam{OPEN}ple",
    "an exam- \n  ple": f"an exam{OPEN}ple",
    "an exam\u2010\nple": f"an exam{OPEN}ple",
    "COVID-\n19": "COVID-19",
    "1990-\n2000": "1990-2000",
    "Anglo-\nSaxon": "Anglo-Saxon",
    "Vor-\nund Nachteile": "Vor- und Nachteile",
    "pre-\nand post-war": "pre- and post-war",
    "a dash -\nhere": "a dash -\nhere",
    "well-known\nman": "well-known\nman",
    "non\u2011\nbreaking": "non\u2011\nbreaking",
    "Über-\nöffnung": f"Über{OPEN}öffnung",
    "pro-\nviso and more": f"pro{OPEN}viso and more",
    "e-\norder": f"e{OPEN}order",
}


@pytest.mark.parametrize("lines", LINES)
def test_what_lines_divide_is_marked(lines):
    assert marked(lines) == LINES[lines]


def test_soft_hyphens_at_the_ends_of_lines_divide_words_of_any_text():
    assert paragraphs_of("Reise\u00ad\nkosten, Reise\u00ad \n Kosten\u00ad\n\nneu") == (
        *("Reisekosten, ReiseKosten\u00ad", "neu"),
    )


def test_a_hyphen_goes_only_where_the_collection_has_the_word():
    def texts(*lines):
        documents = [Document(str(number), "", (Section((), (line,)),)) for number, line in enumerate(lines)]
        return [one.sections[0].paragraphs[0] for one in settled(iter(documents), True)]

    text = f"Exam{OPEN}ple, well{OPEN}known, inter{OPEN}nation{OPEN}al"
    assert texts(text) == ["Exam-ple, well-known, inter-nation-al"]
    # Whether the word is in an earlier document or a later one, in whatever case.
    assert texts("an example", text, "INTERNATIONAL international") == [
        "an example", "Example, well-known, inter-nation-al", "INTERNATIONAL international"
    ]  # fmt: skip
    # A part of a word, or a divided word, is none.
    assert texts("examples", f"exam{OPEN}ple", f"exam{OPEN}ple") == ["examples", "exam-ple", "exam-ple"]


def test_pdf_files_of_a_folder(tmp_path):
    files = {"a.pdf": pdf_of("a well-\nknown exam-", "ple of trains"), "b.txt": "Each example counts."}
    for name, data in files.items():
        write_file(tmp_path / name, data)
    found = {one.doc_id: one.text for one in iter_documents(tmp_path, Skips())}
    assert found == {"a.pdf": "a well-known example of trains", "b.txt": "Each example counts."}
    assert OPEN in outline("d", pdf.read(files["a.pdf"])).text
