"""Texts as a reader sees them: one spelling for what looks the same.

"Reisekosten" with a soft hyphen inside is another word for every index, and an "e" with its accent behind it another
letter. Both come from editors, PDF and file systems, not from readers.
"""

import re
import unicodedata

# Soft hyphens, marks of direction, joiners of words, byte order marks: they have no width, and part no words.
_REPLACED: dict[int, str | None] = dict.fromkeys(
    (0x00AD, 0x034F, 0x061C, 0x180E, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2060, 0x206A), 0xFEFF)
)
# Characters for "ff", "fi", "fl", "ffi", "ffl" and "st", of fonts that do not say which letters they are.
_REPLACED |= {code: unicodedata.normalize("NFKC", chr(code)) for code in range(0xFB00, 0xFB07)}
# A place where a line may break. It parts words in scripts that have no spaces; elsewhere it is inside of them.
# Thai and Lao, Myanmar, Khmer.
_SCRIPTS = "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"
_BREAK = re.compile(rf"(?<!{_SCRIPTS})\u200b(?!{_SCRIPTS})")


def visible(text: str) -> str:
    """Remove characters that cannot be seen, compose letters and accents (NFC), and divide ligatures."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", _BREAK.sub("", text.translate(_REPLACED)))
