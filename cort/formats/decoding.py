"""Text of bytes that are not always UTF-8: nothing is refused, and what is doubtful has a name to be counted by."""

from __future__ import annotations

import codecs
import re
from contextlib import suppress
from typing import NamedTuple

from cort.runtime.errors import shorten

#: why a text may not be what its writer saw
LATIN, REPLACED = "read as Windows-1252", "read with \ufffd for bytes that are not {}"
GUESSED = "read as {}, by the look of its letters"
UTF_8 = REPLACED.format("UTF-8")
# The longer mark of UTF-32 begins with that of UTF-16.
MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# Bytes in which browsers look for a label; bytes that show zeros, and their share in Latin text of UTF-16.
LABELLED, SAMPLE, MOSTLY = 16_384, 4_096, 0.4
# Labels that browsers read as another encoding than Python does (encoding.spec.whatwg.org, "names and labels").
_LABELS = {
    "cp1252": "ansi_x3.4-1968 ascii cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1 iso88591 iso_8859-1 "
    "iso_8859-1:1987 l1 latin1 us-ascii x-cp1252",
    "cp1254": "csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 iso_8859-9:1989 l5 latin5 x-cp1254",
    "cp874": "dos-874 iso-8859-11 iso8859-11 iso885911 tis-620 windows-874",
    "gb18030": "chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 gbk iso-ir-58 x-gbk",
    "cp932": "csshiftjis ms932 ms_kanji shift-jis shift_jis sjis windows-31j x-sjis",
    "cp949": "cseuckr csksc56011987 euc-kr iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 "
    "windows-949",
    "big5hkscs": "big5 big5-hkscs cn-big5 csbig5 x-x-big5",
    # Where a label can be read, the text is no UTF-16.
    "utf-8": "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 x-unicode20utf8 utf-16 utf-16le utf-16be utf16 unicode",
    "cp1251": "x-cp1251",
    "cp1250": "x-cp1250",
    "mac_roman": "macintosh mac x-mac-roman csmacintosh",
    "mac_cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "euc_jp": "x-euc-jp cseucpkdfmtjapanese",
    "iso8859-8": "iso-8859-8-i iso-8859-8-e logical visual csiso88598i csiso88598e",
}
ENCODINGS = {label: encoding for encoding, labels in _LABELS.items() for label in labels.split()}
_CHARSET = re.compile(rb"<(?:meta|\?xml)\b[^>]*?(?:charset|encoding)\s*=[\s\"']*([\w:.+-]+)", re.IGNORECASE)
# Encodings of scripts that are not Latin, between which letters tell, and the one for all other texts.
_GUESSES = ["cp1252", "cp1251", "koi8_u", "iso8859_5", "cp866", "cp1253", "cp1255", "cp1256", "cp874"]
_GUESSES += ["cp932", "euc_jp", "gb18030", "big5hkscs", "cp949"]
# Bytes that tell; a language must be as clear as this, or another encoding make as much worse words.
_TELLING, _COHERENT, _WORSE = 1 << 16, 0.15, 0.1
_MARKUP, _KANA = re.compile(rb"<[^<>]*>"), re.compile("[\u3041-\u30ff]")
# Encodings of texts: Python has others, such as rot13, and browsers know no label for them.
_OF_TEXT = re.compile("cp|iso|koi8|big5|gb|euc|mac")


class Decoded(NamedTuple):
    """A text; `doubt` says why it may be another one, or is empty."""

    text: str
    doubt: str = ""

    @property
    def remedy(self) -> str:
        """What to look at, or to do about a doubt."""
        if "\ufffd" not in self.text:
            return "it is not UTF-8; convert it (`iconv`) if it is something else"
        place = self.text.find("\ufffd")
        return f"{self.text.count(self.text[place])}, the first behind {shorten(self.text[max(place - 20, 0) : place])}"


def decode(data: bytes) -> Decoded:
    """Decode UTF-8, or text that is not.

    If more characters than are wrong have several bytes, it is UTF-8, and what is wrong is replaced; otherwise all is
    Windows-1252.
    """
    with suppress(UnicodeDecodeError):
        return Decoded(data.decode())
    text = data.decode("utf-8", "replace")
    wrong, plain = text.count("\ufffd"), sum(map(str.isascii, text))
    return Decoded(text, UTF_8) if len(text) - plain > 2 * wrong else Decoded(data.decode("cp1252", "replace"), LATIN)


def decode_file(data: bytes) -> Decoded:
    """Decode a file as its byte order mark says, or as UTF-8, or by the label that HTML or XML has, or else `decode`.

    Text of another script without a label has the encoding that makes words of it, if there is only one. A label is
    read as browsers do; a byte that is wrong becomes a replacement character.
    """
    marked = next((encoding for mark, encoding in MARKS.items() if data.startswith(mark)), None) or _unmarked(data)
    if marked == "utf-8-sig":
        return decode(data.removeprefix(codecs.BOM_UTF8))
    if marked:
        return _replacing(data, marked, marked)
    declared = _CHARSET.search(data[:LABELLED])
    label = declared[1].decode().lower() if declared else "utf-8"
    with suppress(LookupError):
        encoding = ENCODINGS.get(label, label)
        # Text of ISO-2022 is UTF-8, too: its escapes say what letters mean.
        if _OF_TEXT.match(codecs.lookup(encoding).name) and (b"\x1b$" in data or decode(data).doubt):
            return _replacing(data, encoding, label)
    found = decode(data)
    if found.doubt == LATIN and (encoding := _guessed(data)):
        return Decoded(data.decode(encoding, "replace"), GUESSED.format(encoding))
    return found


def _guessed(data: bytes) -> str | None:
    """Tell the encoding of a text that is not in Latin letters; None if that is not certain."""
    from charset_normalizer import from_bytes

    text = _MARKUP.sub(b" ", data[:_TELLING])
    # No character is cut.
    text = text[: text.rfind(b"\n")] if len(data) > _TELLING and b"\n" in text else text
    found = [*from_bytes(text, cp_isolation=_GUESSES)]
    for match in found:
        # Of all languages, Japanese alone has kana.
        foreign = sum(not one.isascii() for one in str(match))
        if match.encoding in ("cp932", "euc_jp") and 5 * len(_KANA.findall(str(match))) > foreign:
            return str(match.encoding)
    if not found or found[0].encoding == "cp1252":
        return None
    best = found[0]
    letters = [one.isascii() for one in str(best) if one.isalpha()]
    others = [match for match in found[1:] if str(match) != str(best)]
    is_clear = best.coherence >= _COHERENT or all(match.chaos >= best.chaos + _WORSE for match in others)
    return str(best.encoding) if is_clear and 2 * sum(letters) < len(letters) else None


def _replacing(data: bytes, encoding: str, label: str) -> Decoded:
    text = data.decode(encoding, "replace")
    return Decoded(text, REPLACED.format(label) if "\ufffd" in text else "")


def _unmarked(data: bytes) -> str | None:
    """Tell UTF-16 without a mark by its zeros, of which Latin text has one in two bytes."""
    sample = data[:SAMPLE]
    if len(sample) < 4 or len(data) % 2:
        return None
    high, low = (sample[start::2].count(0) / len(sample) for start in (1, 0))
    return "utf-16-le" if high > MOSTLY > 20 * low else "utf-16-be" if low > MOSTLY > 20 * high else None
