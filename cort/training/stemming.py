"""Porter's stemmer (1980), as Lucene's English analysis has it: for lower-case words of ASCII letters and digits."""

from __future__ import annotations

import re

VOWELS = "aeiou"
# Endings of words whose rest has a vowel and a consonant after it (m > 0), the longest first, and what they become.
SECOND = {
    **{"ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize", "bli": "ble", "alli": "al"},
    **{"entli": "ent", "eli": "e", "ousli": "ous", "ization": "ize", "ation": "ate", "ator": "ate", "alism": "al"},
    **{"iveness": "ive", "fulness": "ful", "ousness": "ous", "aliti": "al", "iviti": "ive", "biliti": "ble"},
    "logi": "log",
}
THIRD = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}
FOURTH = [
    *("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate"),
    *("iti", "ous", "ive", "ize"),
]


def stem(word: str) -> str:
    """Cut a word to its stem."""
    if len(word) <= 2:
        return word
    word = _plural(word)
    word = _past(word)
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = f"{word[:-1]}i"
    for endings in (SECOND, THIRD):
        word = _replaced(word, endings)
    return _last(_fourth(word))


def _shape(word: str) -> str:
    """Write v for each vowel, c for each consonant; y is a vowel after a consonant."""
    shape = ""
    for letter in word:
        is_vowel = letter in VOWELS or (letter == "y" and shape.endswith("c"))
        shape += "v" if is_vowel else "c"
    return shape


def _measure(word: str) -> int:
    """Count how often a consonant follows a vowel."""
    return len(re.findall("vc", _shape(word)))


def _has_vowel(word: str) -> bool:
    return "v" in _shape(word)


def _ends_double(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _shape(word)[-1] == "c"


def _ends_short(word: str) -> bool:
    """Whether a word ends in consonant, vowel, consonant, the last of which is not w, x or y."""
    return _shape(word).endswith("cvc") and word[-1] not in "wxy"


def _plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    ending = next((one for one in ("ed", "ing") if word.endswith(one)), None)
    if ending is None or not _has_vowel(rest := word.removesuffix(ending)):
        return word
    if rest.endswith(("at", "bl", "iz")):
        return f"{rest}e"
    if _ends_double(rest) and rest[-1] not in "lsz":
        return rest[:-1]
    return f"{rest}e" if _measure(rest) == 1 and _ends_short(rest) else rest


def _replaced(word: str, endings: dict[str, str]) -> str:
    ending = max((one for one in endings if word.endswith(one)), key=len, default=None)
    if ending is None or _measure(rest := word.removesuffix(ending)) == 0:
        return word
    return rest + endings[ending]


def _fourth(word: str) -> str:
    ending = max((one for one in FOURTH if word.endswith(one)), key=len, default=None)
    if ending is None or _measure(rest := word.removesuffix(ending)) < 2:
        return word
    return word if ending == "ion" and not rest.endswith(("s", "t")) else rest


def _last(word: str) -> str:
    if word.endswith("e"):
        rest = word[:-1]
        measure = _measure(rest)
        if measure > 1 or (measure == 1 and not _ends_short(rest)):
            word = rest
    return word[:-1] if _ends_double(word) and word[-1] == "l" and _measure(word) > 1 else word
