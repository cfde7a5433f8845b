"""PDF files with text that pypdf reads."""

import io

import pypdf
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject


def pdf_of(*pages, password=None, owner=None, title=None):
    """Write a page for each text; a password is needed for reading, that of the owner is not."""
    writer = pypdf.PdfWriter()
    names = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
    font = DictionaryObject({NameObject(key): NameObject(value) for key, value in names.items()})
    fonts = DictionaryObject({NameObject("/F1"): writer._add_object(font)})
    for text in pages:
        page = writer.add_blank_page(300, 300)
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        content = DecodedStreamObject()
        lines = " ".join(f"({line}) Tj T*" for line in text.split("\n")) if text else ""
        content.set_data(f"BT /F1 12 Tf 20 250 Td 14 TL {lines} ET".encode("latin-1"))
        page[NameObject("/Contents")] = writer._add_object(content)
    if title is not None:
        writer.add_metadata({"/Title": title})
    if password or owner:
        writer.encrypt(password or "", owner, algorithm="RC4-128")
    with io.BytesIO() as file:
        writer.write(file)
        return file.getvalue()
