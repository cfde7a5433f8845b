"""Format numbers, names, passages and addresses; mark the words of a query, as in Table 6 of CoRT."""

from __future__ import annotations

import re
from urllib.parse import quote, urlencode

from markupsafe import Markup, escape

MISSING = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
RECALL = re.compile(r"R@([0-9]+)")

# Characters of a passage that the report shows; the file of examples has the whole text.
LONGEST_PASSAGE = 700
STOP_WORDS = frozenset(
    # Plain text is easier to read and to check than a list of quoted words.
    """
    a about am an and any are as at be been being but by can could did do does for from had has have he her his how i
    if in into is it its many may me more most much must my no nor not of off on or our she should so some such than
    that the their them then there these they this those to too until up us was we were what when where which while who
    whom whose why will with would you your
    """.split()  # noqa: SIM905
)
SHORTEST_STEM = 3


def measure_label(name: str) -> str:
    """Return the usual name of the mean of a measure: the mean of RR@10 is MRR@10, that of AP is MAP."""
    plain, judged_only = re.subn(r"\(judged_only=True\)", "", name)
    return re.sub(r"^(RR|AP)(?=[@(]|\Z)", r"M\1", plain) + (", judged only" if judged_only else "")


def recall_cutoff(name: str) -> int | None:
    """Return the k of ``R@k``; None for every other measure."""
    match = RECALL.fullmatch(name)
    return int(match.group(1)) if match else None


def fixed(value: float | int | None, digits: int = 3) -> str:
    """Format a number with `digits` decimals and thousands separators; a dash where it is unknown."""
    if value is None:
        return MISSING
    # Rounding may leave a negative zero; adding 0.0 makes it positive.
    return f"{round(value, digits) + 0.0:,.{digits}f}".replace("-", MINUS)


def signed(value: float, digits: int = 3) -> str:
    """Format a difference with its sign."""
    rounded = round(value, digits) + 0.0
    sign = "±" if rounded == 0 else "+" if rounded > 0 else MINUS
    return f"{sign}{abs(rounded):,.{digits}f}"


def count(value: int | None) -> str:
    """Format a whole number with thousands separators."""
    return fixed(value, 0)


def plural(number: int, one: str, many: str) -> str:
    """Format a count with its noun."""
    return f"{count(number)} {one if number == 1 else many}"


def p_value(value: float | None) -> str:
    """Format a p-value with four decimals, or as less than 0.0001."""
    return MISSING if value is None else "<0.0001" if value < 0.0001 else f"{value:.4f}"


def shown_interval(low: float, high: float, *, sign: bool = False) -> str:
    """Format an interval with three decimals."""
    return " to ".join((signed if sign else fixed)(bound) for bound in (low, high))


def duration(seconds: float) -> str:
    """Format a time span in its two largest units: ``0.4 s``, ``3 min 05 s``, ``2 h 07 min``, ``2.5 days``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, second = divmod(round(seconds), 60)
    if minutes < 1:
        return f"{second} s"
    if minutes < 60:
        return f"{minutes} min {second:02d} s"
    hours, minute = divmod(round(seconds / 60), 60)
    return f"{seconds / 86_400:.1f} days" if hours >= 48 else f"{hours:,} h {minute:02d} min"


def memory(megabytes: float | None) -> str:
    """Format a memory size in MB, or in GB from 1,000 MB on."""
    if megabytes is None:
        return MISSING
    return f"{megabytes:.0f} MB" if round(megabytes) < 1000 else f"{megabytes / 1000:,.1f} GB"


def clip(text: str, limit: int = LONGEST_PASSAGE) -> str:
    """Truncate a long text at the end of a word."""
    if len(text) <= limit:
        return text
    head = text[:limit]
    return f"{head.rsplit(None, 1)[0] if ' ' in head else head} …"


def highlight(text: str, query: str) -> Markup:
    """Escape `text` and mark the words that share a stem with a word of `query`, except stop words."""
    wanted = {stem(word) for word in re.findall(r"\w+", query.lower()) if word not in STOP_WORDS}

    def mark(part: str) -> Markup:
        marked = part.lower() not in STOP_WORDS and stem(part.lower()) in wanted
        return Markup("<mark>{}</mark>").format(part) if marked else escape(part)

    # The parts are words and the text between them, alternately.
    return Markup("").join(map(mark, re.split(r"(\w+)", text)))


def stem(word: str) -> str:
    """Strip one simple English inflection from a lower-cased word: plural, -ed or -ing, and a final e or y."""
    for suffix in ("ing", "ed", "es", "s"):
        stripped = word.removesuffix(suffix)
        if stripped != word and len(stripped) >= SHORTEST_STEM and not word.endswith(("ss", "us", "is")):
            word = stripped
            # running -> run, but falling -> fall.
            doubled = len(word) > SHORTEST_STEM and word[-1] == word[-2] and word[-1] not in "aeiouls"
            if doubled and suffix in ("ing", "ed"):
                word = word[:-1]
            break
    if len(word) > SHORTEST_STEM and word[-1] in "ey":
        word = word[:-1]
    # studies -> studi, study -> stud: the i of a plural is dropped like the y.
    return word[:-1] if len(word) > SHORTEST_STEM and word.endswith("i") else word


def page_of(explorer: str, split: str) -> str:
    """Return the address of the explorer's page of a split, given its title."""
    return f"{explorer}/{quote(split.partition(' (')[0])}/index.html"


def link(page: str, a: str, b: str, query: str | None = None, measure: str | None = None) -> str:
    """Return the address at which the explorer's `page` shows two systems, or one query."""
    state = {"a": a, "b": b, "measure": measure, "q": query}
    return f"{page}#{urlencode({key: value for key, value in state.items() if value is not None})}"
