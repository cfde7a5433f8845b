"""Fields, ids and numbers in a line; values that are easily mistaken for others are refused.

The workflow imports this module, too, so it imports no numpy.
"""

import json
import math
import re
import unicodedata
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, unquote

from cort.runtime.errors import shorten

# Control and format characters, and surrogates: invisible, but they make a different id.
INVISIBLE = frozenset({"Cc", "Cf", "Cs"})
# float() alone also takes "1_000", "nan", "inf" and digits of other scripts.
NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
GRADE = re.compile(r"[+-]?[0-9]{1,9}(\.0*)?")
# Measures need memory for every grade up to the largest.
LARGEST_GRADE = 1000


class BadLine(Exception):
    """A line that is refused: what was found in it, what was expected, and what to do."""


def split_fields(line: str) -> list[str]:
    """Split at spaces and TABs only; other whitespace stays in its field, which is then no valid id."""
    return [field for field in line.replace("\t", " ").split(" ") if field]


def checked_id(name: str, value: str) -> str:
    """Refuse an id that is empty or has whitespace or invisible characters; errors call it `name`."""
    if value.isascii() and value.isprintable() and value and " " not in value:
        return value
    expected, fix = f"a {name} without whitespace, as run files need it", "give the row another id"
    if value.split() != [value]:
        found = f"{name} {shorten(value)} with whitespace" if value.strip() else f"an empty {name}"
        raise BadLine(found, expected, fix)
    if odd := next(filter(is_odd, value), None):
        found = f"{name} {shorten(value)} with the invisible character U+{ord(odd):04X}"
        raise BadLine(found, f"a {name} of visible characters", fix)
    return value


def writable_id(name: str, value: str) -> str:
    """Make an id one that run files can hold: strip whitespace, and percent-encode what `checked_id` refuses inside."""
    return checked_id(name, _quoted(value.strip(), is_odd))


def encoded_id(value: str) -> str:
    """Encode a path or a name as an id: as `writable_id`, and "%" and quotes, so that different ones stay different."""
    return _quoted(value, lambda one: one in '%"' or is_odd(one))


def spellings_of(value: str) -> list[str]:
    """List how an id may be written elsewhere: with or without percent-encoding, with accents composed or not."""
    plain = dict.fromkeys((value, unquote(value)))
    forms = [unicodedata.normalize(form, one) for one in plain for form in ("NFC", "NFD")]
    return list(
        dict.fromkeys(spelled for one in [*plain, *forms] for spelled in (encoded_id(one), _quoted(one, is_odd)))
    )


def _quoted(value: str, is_left_out: Callable[[str], bool]) -> str:
    return "".join(quote(one, safe="", errors="replace") if is_left_out(one) else one for one in value)


def is_odd(character: str) -> bool:
    """Whether a character is whitespace or invisible, so that run files cannot hold it in an id."""
    return character.isspace() or unicodedata.category(character) in INVISIBLE


def checked_text(text: str) -> str:
    """Strip whitespace; refuse an empty text, or one with a NUL character."""
    if not (stripped := text.strip()):
        raise BadLine("an empty text", "at least one character", "remove the row")
    return readable(stripped)


def readable(text: str) -> str:
    """Refuse a text with a NUL character."""
    if "\x00" in text:
        raise BadLine("a NUL character", "text", "remove it")
    return text


def checked_grade(value: str) -> int:
    """Parse the grade of a judgement, an integer, which some write as 1.0."""
    if not GRADE.fullmatch(value) or abs(grade := int(value.partition(".")[0])) > LARGEST_GRADE:
        expected = f"an integer from -{LARGEST_GRADE} to {LARGEST_GRADE}"
        raise BadLine(f"the grade {shorten(value)}", expected, "correct the row")
    return grade


def checked_number(name: str, value: str) -> float:
    """Parse a finite number in ASCII digits; errors call it `name`."""
    if not NUMBER.fullmatch(value) or not math.isfinite(number := float(value)):
        raise BadLine(f"the {name} {shorten(value)}", "a finite number", "fix or drop the line")
    return number


def parse_json(text: str) -> Any:
    """Parse JSON; anything else is a ValueError. Of equal keys in an object, the last counts."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def checked_unicode(key: str, value: str) -> str:
    """Refuse unpaired surrogates, which JSON allows and UTF-8 does not; errors call the text `key`."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        found = f"half a character (\\u{ord(value[error.start]):04x}) in {key!r}"
        raise BadLine(found, "valid Unicode", "remove it or write both surrogates") from error
    return value
