"""Marking the words of a query in a passage, as in Table 6 of the CoRT paper."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

WORD = re.compile(r"\w+")
STOP_WORDS = frozenset(
    # A list of words is easier to read and to check than a list of quoted words.
    """
    a about am an and any are as at be been being but by can could did do does for from had has have he her his how i
    if in into is it its many may me more most much must my no nor not of off on or our she should so some such than
    that the their them then there these they this those to too until up us was we were what when where which while who
    whom whose why will with would you your
    """.split()  # noqa: SIM905
)
SHORTEST_STEM = 3


def highlight(text: str, query: str) -> Markup:
    """Escape `text` and put ``<mark>`` around the words that share a stem with a word of `query`, stop words aside."""
    wanted = {stem(word) for word in WORD.findall(query.lower()) if word not in STOP_WORDS}
    parts: list[Markup] = []
    end = 0
    for match in WORD.finditer(text):
        word = match.group()
        parts.append(escape(text[end : match.start()]))
        lowered = word.lower()
        marked = lowered not in STOP_WORDS and stem(lowered) in wanted
        parts.append(Markup("<mark>{}</mark>").format(word) if marked else escape(word))
        end = match.end()
    parts.append(escape(text[end:]))
    return Markup("").join(parts)


def stem(word: str) -> str:
    """Strip one simple English inflection from a lower-cased word: plural, -ed, -ing; a final e or y is levelled."""
    for suffix in ("ing", "ed", "es", "s"):
        rest = word.removesuffix(suffix)
        if rest != word and len(rest) >= SHORTEST_STEM and not word.endswith(("ss", "us", "is")):
            word = rest
            # running -> run, but falling -> fall.
            doubled = len(word) > SHORTEST_STEM and word[-1] == word[-2] and word[-1] not in "aeiouls"
            if doubled and suffix in ("ing", "ed"):
                word = word[:-1]
            break
    if len(word) > SHORTEST_STEM and word[-1] in "ey":
        word = word[:-1]
    # studies -> studi, study -> stud: the i of a plural goes with the y.
    return word[:-1] if len(word) > SHORTEST_STEM and word.endswith("i") else word
