"""Encodings of files: as browsers read labels, and one character for each wrong byte."""

import pytest

from cort.formats.decoding import GUESSED, LATIN, REPLACED, UTF_8, decode, decode_file

PAGE = '<meta charset="{}"><p>{}'
# Labels and the encodings that browsers take them for; characters that only these have.
LABELS = [
    *(("gb2312", "gb18030", "榕镕"), ("gbk", "gb18030", "㐀"), ("gb_2312-80", "gb18030", "中")),
    *(("shift_jis", "cp932", "①髙"), ("x-sjis", "cp932", "㈱"), ("euc-jp", "euc_jp", "日本")),
    *(("euc-kr", "cp949", "뷁똠"), ("korean", "cp949", "한"), ("big5", "big5hkscs", "中")),
    *(("iso-8859-1", "cp1252", "“€”"), ("us-ascii", "cp1252", "…"), ("iso-8859-9", "cp1254", "ğ€")),
    *(("tis-620", "cp874", "ไทย"), ("windows-1251", "cp1251", "Ж"), ("koi8-r", "koi8-r", "Ж")),
    *(("iso-8859-15", "iso-8859-15", "€"), ("x-mac-roman", "mac_roman", "é"), ("utf-16", "utf-8", "日本é")),
]


@pytest.mark.parametrize(("label", "encoding", "text"), LABELS)
def test_labels_are_read_as_browsers_do(label, encoding, text):
    page = PAGE.format(label, text)
    assert decode_file(page.encode(encoding)) == (page, "")
    # A wrong byte costs its character alone.
    found = decode_file(page.encode(encoding) + (b" \x81" if encoding == "cp932" else b" \xff "))
    assert found.text[: len(page)] == page
    one_byte = encoding.startswith(("cp12", "koi8", "iso", "mac"))
    assert found.doubt == ("" if one_byte else REPLACED.format(label if encoding != "utf-8" else "UTF-8"))
    assert found.text.count("\ufffd") == (not one_byte)


@pytest.mark.parametrize("label", ["utf-8", "nonsense", "rot13", "unicode_escape", "hex", "idna", "\u00fc"])
def test_other_labels_and_wrong_ones_change_nothing(label):
    page = PAGE.format(label, r"Überfluß \u00e9")
    assert decode_file(page.encode()) == (page, "")
    if label.isascii():
        assert decode_file(page.encode("cp1252")) == (page, LATIN)


def test_a_label_tells_escapes_and_may_stand_behind_scripts():
    page = PAGE.format("iso-2022-jp", "日本")
    assert decode_file(page.encode("iso2022_jp")) == (page, "")
    page = f"<script>{'x' * 10_000}</script>{PAGE.format('windows-1251', 'Ж')}"
    assert decode_file(page.encode("cp1251")) == (page, "")


def test_utf_8_with_another_label_is_utf_8():
    page = PAGE.format("iso-8859-1", "“Café”")
    assert decode_file(page.encode()) == (page, "")
    assert decode_file(b'<?xml version="1.0" encoding="iso-8859-15"?>\xa4').text.endswith("€")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "utf-8"])
def test_encodings_of_unicode_are_known_by_their_marks_and_utf_16_by_its_zeros(encoding):
    text = "“Café” 日本 \U0001f600\r\n"
    assert decode_file(("\ufeff" + text).encode(encoding)) == (text, "")
    text = "Ein Café in Köln.\n" * 9
    assert "32" in encoding or decode_file(text.encode(encoding)) == (text, "")


def test_one_bad_byte_of_utf_8_is_one_character_and_anything_else_is_windows():
    text = "Überfluß " * 4
    found = decode_file(text.encode() + b"\xe9 and more")
    assert found == (text + "\ufffd and more", UTF_8)
    assert found.remedy == "1, the first behind 'ß Überfluß Überfluß '"
    # A character that is cut off is one, too.
    assert decode(text.encode() + "€".encode()[:2]).text == text + "\ufffd"
    assert decode(text.encode("cp1252")) == (text, LATIN)
    assert decode(b"caf\xe9 \xe0 la \x80") == ("café à la €", LATIN)
    assert decode(text.encode()) == (text, "")


# Texts of other scripts in the encodings they had before Unicode.
SCRIPTS = [
    ("Чтобы вернуть товар, заполните форму и приложите чек.", ["cp1251", "koi8_u", "iso8859_5", "cp866"]),
    ("Αυτή η τεκμηρίωση περιγράφει την εγκατάσταση του προγράμματος.", ["cp1253"]),
    ("החזרת מוצרים נעשית באמצעות טופס שנמצא באתר שלנו", ["cp1255"]),
    ("نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر", ["cp1256"]),
    ("การคืนสินค้าทำได้โดยกรอกแบบฟอร์มและแนบใบเสร็จรับเงิน", ["cp874"]),
    ("返品の手続きについて説明します。領収書を添付して送ってください。", ["cp932", "euc_jp"]),
    ("退货流程说明。请填写表格并附上收据。我们会在三天内处理。", ["gb18030"]),
    ("退貨流程說明。請填寫表格並附上收據。我們會在三天內處理。", ["big5hkscs"]),
    ("양식을 작성하고 영수증을 첨부하십시오. 사흘 안에 처리합니다.", ["cp949"]),
]


@pytest.mark.parametrize(
    ("text", "encoding"), [(text, encoding) for text, encodings in SCRIPTS for encoding in encodings]
)
@pytest.mark.parametrize("form", ["{}\n", "<p class=text>{}</p>\n"])
def test_text_of_another_script_without_a_label_is_known_by_its_words(text, encoding, form):
    page = form.format(text) * 3
    assert decode_file(page.encode(encoding)) == (page, GUESSED.format(encoding))


@pytest.mark.parametrize(
    "text",
    [
        "Les élèves ont été très déçus à Noël. Ça coûte 5 € à l'été.",
        "Größe und Maße für Äpfel, schön.",
        "Flygande bäckasiner söka hwila på mjuka tuvor.",
        "¿Dónde está el pingüino? Año.",
        "ÜBER GRÖSSE ÄPFEL\n" * 20,
        "éèàüöäéè",
        "prix: 10 €",
        'int main() { printf("Straße"); } // für alle',
    ],
)
def test_latin_letters_without_a_label_are_windows(text):
    assert decode_file(text.encode("cp1252")) == (text, LATIN)


def test_an_encoding_that_is_not_certain_is_no_guess():
    text = "int main() { return 0; } // привет мир, and words of English code"
    assert decode_file(text.encode("cp1251")).doubt == LATIN
