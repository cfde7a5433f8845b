"""Office files as Word, PowerPoint, Excel and makers of e-books write them, reduced to the parts that are needed."""

import io
import zipfile

_TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_MAIN = "application/vnd.openxmlformats-officedocument.wordprocessingml"


def _zip(members):
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w") as archive:
            for name, text in members.items():
                archive.writestr(name, text)
        return file.getvalue()


def docx_of(*blocks):
    """Write paragraphs of (style, text), such as ("Heading1", "Use") and ("Normal", "Some text.")."""
    paragraphs = "".join(
        f'<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>' for style, text in blocks
    )
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="{key}"><w:name w:val="{name}"/></w:style>'
        for key, name in (("Normal", "Normal"), ("Heading1", "heading 1"), ("Heading2", "heading 2"))
    )
    parts = {"document": "document.main", "styles": "styles"}
    overrides = "".join(
        f'<Override PartName="/word/{name}.xml" ContentType="{_MAIN}.{kind}+xml"/>' for name, kind in parts.items()
    )
    rels = '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'

    def relations(kind, target):
        return (
            f'<Relationships xmlns="{_RELATIONS}">'
            f'<Relationship Id="rId1" Type="{_OFFICE}/{kind}" Target="{target}"/></Relationships>'
        )

    return _zip(
        {
            "[Content_Types].xml": f'<Types xmlns="{_TYPES}">{rels}{overrides}</Types>',
            "_rels/.rels": relations("officeDocument", "word/document.xml"),
            "word/_rels/document.xml.rels": relations("styles", "styles.xml"),
            "word/document.xml": f'<w:document xmlns:w="{_WORD}"><w:body>{paragraphs}</w:body></w:document>',
            "word/styles.xml": f'<w:styles xmlns:w="{_WORD}">{styles}</w:styles>',
        }
    )


def epub_of(title, *chapters):
    """Write chapters of XHTML."""
    names = [f"chapter{number}" for number in range(len(chapters))]
    items = "".join(f'<item id="{name}" href="{name}.xhtml" media-type="application/xhtml+xml"/>' for name in names)
    spine = "".join(f'<itemref idref="{name}"/>' for name in names)
    metadata = f'<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{title}</dc:title></metadata>'
    package = f'<package xmlns="http://www.idpf.org/2007/opf" version="3.0">{metadata}'
    root = '<rootfile full-path="OEBPS/content.opf" media-type="application/oebps-package+xml"/>'
    container = "urn:oasis:names:tc:opendocument:xmlns:container"
    return _zip(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": f'<container version="1.0" xmlns="{container}">'
            f"<rootfiles>{root}</rootfiles></container>",
            "OEBPS/content.opf": f"{package}<manifest>{items}</manifest><spine>{spine}</spine></package>",
            **{
                f"OEBPS/{name}.xhtml": f'<html xmlns="http://www.w3.org/1999/xhtml"><body>{text}</body></html>'
                for name, text in zip(names, chapters, strict=True)
            },
        }
    )


def pptx_of(*slides):
    """Write slides of (title, text)."""
    from pptx import Presentation

    presentation = Presentation()
    for title, text in slides:
        slide = presentation.slides.add_slide(presentation.slide_layouts[1])
        slide.shapes.title.text, slide.placeholders[1].text = title, text
    with io.BytesIO() as file:
        presentation.save(file)
        return file.getvalue()


def xlsx_of(**sheets):
    """Write sheets of rows."""
    from openpyxl import Workbook

    book = Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    with io.BytesIO() as file:
        book.save(file)
        return file.getvalue()
