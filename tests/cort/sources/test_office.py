"""Word, PowerPoint, Excel and e-books as their programs write them: every word is there, and nothing else."""

import io
import re
import zipfile
from datetime import date

import pytest

from cort.sources import epub, office
from cort.sources.documents import Unread, outline
from tests.support.office import epub_of

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
MC = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'


def saved(document):
    with io.BytesIO() as file:
        document.save(file)
        return file.getvalue()


def replaced(data, name, change):
    """Change a file in a zip."""
    with io.BytesIO() as file:
        with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(file, "w") as target:
            for one in source.namelist():
                target.writestr(one, change(source.read(one)) if one == name else source.read(one))
        return file.getvalue()


def with_run(document, xml):
    """The file of a document whose paragraph MARK has another run."""
    own = b"<w:r><w:t>MARK</w:t></w:r>"
    return replaced(saved(document), "word/document.xml", lambda text: text.replace(own, xml.encode()))


@pytest.fixture
def document():
    """A new document of Word."""
    return pytest.importorskip("docx", reason="python-docx is not installed").Document()


def sections(suffix, data):
    document = outline("d", office.READERS[suffix](data))
    return document.title, [(one.headings, one.paragraphs) for one in document.sections]


def words(suffix, data):
    document = outline("d", office.READERS[suffix](data))
    return document.text.split()


def test_word(document):
    document.add_paragraph("Travel rules", style="Title")
    document.add_heading("Cost", 1)
    bold = document.add_paragraph("see")
    bold.add_run(" ").bold = True
    bold.add_run("below | a <b> *c*")
    document.add_paragraph("one\ttab\nline")
    document.add_heading("Trains", 2)
    document.add_paragraph("first", style="List Bullet")
    table = document.add_table(2, 3)
    for number, cell in enumerate(one for row in table.rows for one in row.cells):
        cell.text = f"c{number} x"
    table.cell(0, 0).merge(table.cell(0, 1))
    table.cell(1, 2).add_table(1, 1).cell(0, 0).text = "inner"
    document.sections[0].header.paragraphs[0].text = "Policy 7"
    document.sections[0].footer.paragraphs[0].text = "Draft"
    assert sections(".docx", saved(document)) == (
        "Travel rules",
        [
            (("Cost",), ("see below | a <b> *c*", "one tab line")),
            (("Cost", "Trains"), ("first", "c0 x c1 x c2 x", "c3 x c4 x c5 x inner", "Policy 7", "Draft")),
        ],
    )


BOX = "<w:r><w:pict><w:txbxContent><w:p><w:r><w:t>box</w:t></w:r></w:p></w:txbxContent></w:pict></w:r>"
TWICE = f"<mc:AlternateContent {MC}><mc:Choice>{BOX}</mc:Choice><mc:Fallback>{BOX}</mc:Fallback></mc:AlternateContent>"
SYMBOLS = '<w:sym w:char="00E9"/><w:sym w:char="F0B7"/>'
# What stands in a paragraph -> what is read.
RUNS = {
    "<w:r><w:t>Reise</w:t><w:softHyphen/><w:t>kosten e</w:t><w:noBreakHyphen/><w:t>mail</w:t></w:r>": (
        "Reisekosten e-mail"
    ),
    "<w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t><w:cr/><w:t>d</w:t></w:r>": "a b c d",
    "<w:ins><w:r><w:t>new</w:t></w:r></w:ins><w:del><w:r><w:delText>old</w:delText></w:r></w:del>": "new",
    "<w:moveFrom><w:r><w:t>x</w:t></w:r></w:moveFrom><w:moveTo><w:r><w:t>moved</w:t></w:r></w:moveTo>": "moved",
    "<w:hyperlink><w:r><w:t>link</w:t></w:r></w:hyperlink><w:smartTag><w:r><w:t>ed</w:t></w:r></w:smartTag>": "linked",
    "<w:sdt><w:sdtPr><w:alias/></w:sdtPr><w:sdtContent><w:r><w:t>field</w:t></w:r></w:sdtContent></w:sdt>": "field",
    "<w:r><w:instrText>PAGEREF x</w:instrText></w:r><w:r><w:t>seven</w:t></w:r>": "seven",
    f"<w:r><w:t>co</w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t>sts</w:t>{SYMBOLS}</w:r>": "costsé",
    f"{TWICE}<w:r><w:t>beside</w:t></w:r>": "beside box",
}


@pytest.mark.parametrize("xml", RUNS)
def test_what_word_has_in_a_paragraph(document, xml):
    document.add_paragraph("MARK")
    assert words(".docx", with_run(document, xml)) == RUNS[xml].split()


def test_what_word_does_not_show_as_text_is_told(document):
    import docx

    paragraph = document.add_paragraph("kept ")
    deleted = '<w:del><w:r><w:delText xml:space="preserve">old rule</w:delText></w:r></w:del>'
    paragraph._p.append(
        docx.oxml.parse_xml(deleted.replace("<w:del>", f'<w:del xmlns:w="{docx.oxml.ns.nsmap["w"]}">', 1))
    )
    document.add_comment(paragraph.runs[0], text="ask Ann", author="me")
    content = office.READERS[".docx"](saved(document))
    assert ([text.strip() for _, text in content.blocks if text], content.left) == (
        *(["kept"], (("comments", "ask Ann"), ("deleted text", "old rule"))),
    )


def test_notes_stand_below_their_paragraph_and_styles_may_be_based_on_headings(document):
    from docx.opc.constants import RELATIONSHIP_TYPE
    from docx.opc.packuri import PackURI
    from docx.opc.part import Part

    style = document.styles.add_style("Kapitel", 1)
    style.base_style = document.styles["Heading 1"]
    document.add_paragraph("Own heading", style="Kapitel")
    document.add_paragraph("MARK")
    document.add_paragraph("after")
    notes = f'<w:footnotes {W}><w:footnote w:id="2"><w:p><w:r><w:t>a note</w:t></w:r></w:p></w:footnote></w:footnotes>'
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.footnotes+xml"
    part = Part(PackURI("/word/footnotes.xml"), kind, notes.encode(), document.part.package)
    document.part.relate_to(part, RELATIONSHIP_TYPE.FOOTNOTES)
    data = with_run(document, '<w:r><w:t>said</w:t><w:footnoteReference w:id="2"/><w:t>.</w:t></w:r>')
    assert sections(".docx", data) == ("Own heading", [((), ("said.", "a note", "after"))])


def test_powerpoint():
    pptx = pytest.importorskip("pptx", reason="python-pptx is not installed")
    from pptx.chart.data import CategoryChartData
    from pptx.enum.chart import XL_CHART_TYPE
    from pptx.util import Inches

    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    slide.shapes.title.text = "Guide\vtwo"
    slide.placeholders[1].text = "First | <b>\nSecond"
    place = [Inches(1)] * 4
    inner = slide.shapes.add_group_shape().shapes.add_group_shape().shapes.add_textbox(*place)
    inner.text_frame.text = "in groups"
    table = slide.shapes.add_table(2, 2, *place).table
    for number in range(4):
        table.cell(number // 2, number % 2).text = f"t{number}"
    table.cell(0, 0).merge(table.cell(0, 1))
    data = CategoryChartData()
    data.categories = ["East", "West"]
    data.add_series("Sales", (1, 2))
    slide.shapes.add_chart(XL_CHART_TYPE.BAR_CLUSTERED, *place, data)
    slide.notes_slide.notes_text_frame.text = "Say hello"
    slide._element.set("show", "0")
    presentation.slides.add_slide(presentation.slide_layouts[6]).shapes.add_textbox(*place).text_frame.text = "untitled"
    shown = ("First | <b>", "Second", "in groups", "t0 t1", "t2 t3", "Sales", "East", "West", "Say hello", "untitled")
    assert sections(".pptx", saved(presentation)) == ("Guide two", [((), shown)])


def test_excel():
    openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed")
    from openpyxl.comments import Comment

    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Stock"
    for row in (["code", "price | <b>"], ["00123", 123456789.123], [7, None, 0.5], [True, date(2026, 11, 28)], ["=A2"]):
        sheet.append(row)
    for place, code in {"A3": "00000", "C3": "0%", "B4": "dd.mm.yyyy"}.items():
        sheet[place].number_format = code
    sheet["A1"].comment = Comment("ask Ann", "me")
    sheet["A7"] = "merged"
    sheet.merge_cells("A7:C8")
    hidden = book.create_sheet("Lists")
    hidden.sheet_state = "hidden"
    hidden["B9"] = "far"
    data = saved(book)
    content = office.READERS[".xlsx"](data)
    assert [(one.args[0], one.count) for one in content.doubts] == [("formulas without values", 1)]
    rows = ("code price | <b>", "00123 123456789.123", "00007 50%", "TRUE 28.11.2026", "merged")
    assert sections(".xlsx", data) == ("", [(("Stock",), rows), (("Lists",), ("far", "ask Ann"))])
    computed = replaced(data, "xl/worksheets/sheet1.xml", lambda text: re.sub(b"<v ?/>|<v></v>", b"<v>8</v>", text))
    assert office.READERS[".xlsx"](computed).doubts == ()
    assert "8" in words(".xlsx", computed)


def test_a_wrong_size_of_a_sheet_costs_no_row():
    openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed")
    book = openpyxl.Workbook()
    for number in range(3):
        book.active.append([f"a{number}", f"b{number}"])
    data = replaced(saved(book), "xl/worksheets/sheet1.xml", lambda text: text.replace(b'ref="A1:B3"', b'ref="A1"'))
    assert words(".xlsx", data) == ["Sheet", "a0", "b0", "a1", "b1", "a2", "b2"]


def test_locked_and_old_files_are_named():
    for suffix in (".docx", ".pptx", ".xlsx"):
        with pytest.raises(Unread, match="password, or of before 2007"):
            office.READERS[suffix](b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 99)


def test_e_books():
    data = epub_of("Guide", "<h1>One</h1><p>first</p>", "<h2>Two</h2><p>caf&#233; &amp; tea</p>")
    assert sections(".epub", data) == ("Guide", [(("One",), ("first",)), (("One", "Two"), ("café & tea",))])
    lost = replaced(data, "OEBPS/content.opf", lambda text: text.replace(b"chapter1.xhtml", b"gone.xhtml"))
    assert [one.args for one in epub.read(lost).doubts] == [("chapters that an e-book lacks", "OEBPS/gone.xhtml")]
    assert [text for _, text in epub.read(lost).blocks] == ["One", "first"]
