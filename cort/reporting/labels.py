"""How numbers, names and passages are written for a reader; words of a query are marked as in Table 6 of CoRT."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

MISSING = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
RECALL = re.compile(r"R@([0-9]+)")

LONGEST_PASSAGE = 700
"""Characters of a passage shown; the file of examples has all of it."""
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


def measure_label(name: str) -> str:
    """Return the usual name of the mean of a measure: the mean of RR@10 is MRR@10, that of AP is MAP."""
    whole, judged_only = re.subn(r"\(judged_only=True\)", "", name)
    return re.sub(r"^(RR|AP)(?=[@(]|\Z)", r"M\1", whole) + (", judged only" if judged_only else "")


def recall_cutoff(name: str) -> int | None:
    """Return the k of ``R@k``; None for every other measure."""
    match = RECALL.fullmatch(name)
    return int(match.group(1)) if match else None


def fixed(value: float | int | None, digits: int = 3) -> str:
    """Show a number with `digits` decimals and thousands apart; a dash where it is unknown."""
    if value is None:
        return MISSING
    # Adding 0.0 turns the negative zero that rounding may leave into zero.
    return f"{round(value, digits) + 0.0:,.{digits}f}".replace("-", MINUS)


def signed(value: float, digits: int = 3) -> str:
    """Show a difference with its sign."""
    rounded = round(value, digits) + 0.0
    sign = "±" if rounded == 0 else "+" if rounded > 0 else MINUS
    return f"{sign}{abs(rounded):,.{digits}f}"


def count(value: int | None) -> str:
    """Show a whole number with thousands apart."""
    return fixed(value, 0)


def plural(number: int, one: str, many: str) -> str:
    """Show a count with its noun."""
    return f"{count(number)} {one if number == 1 else many}"


def p_value(value: float | None) -> str:
    """Show a p-value with four decimals, or that it is below the smallest of these."""
    return MISSING if value is None else "<.0001" if value < 0.0001 else f"{value:.4f}".removeprefix("0")


def shown_interval(low: float, high: float, *, sign: bool = False) -> str:
    """Show an interval with three decimals."""
    return " to ".join((signed if sign else fixed)(bound) for bound in (low, high))


def duration(seconds: float) -> str:
    """Show a time span in the two units that matter: ``0.4 s``, ``3 min 05 s``, ``2 h 07 min``, ``2.5 days``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    minutes, hours = whole // 60, round(seconds / 60) // 60
    if minutes < 1:
        return f"{whole} s"
    if whole < 3600:
        return f"{minutes} min {whole % 60:02d} s"
    if hours >= 48:
        return f"{seconds / 86_400:.1f} days"
    return f"{hours:,} h {round(seconds / 60) % 60:02d} min"


def memory(megabytes: float | None) -> str:
    """Show a memory size in MB, or in GB from 1,000 MB on."""
    if megabytes is None:
        return MISSING
    return f"{megabytes:.0f} MB" if round(megabytes) < 1000 else f"{megabytes / 1000:,.1f} GB"


def clip(text: str, limit: int = LONGEST_PASSAGE) -> str:
    """Keep the beginning of a long text, ended at a word."""
    if len(text) <= limit:
        return text
    head = text[:limit]
    return f"{head.rsplit(None, 1)[0] if ' ' in head else head} …"


def highlight(text: str, query: str) -> Markup:
    """Escape `text` and put ``<mark>`` around the words that share a stem with a word of `query`, stop words aside."""
    wanted = {stem(word) for word in re.findall(r"\w+", query.lower()) if word not in STOP_WORDS}

    def shown(part: str) -> Markup:
        marked = part.lower() not in STOP_WORDS and stem(part.lower()) in wanted
        return Markup("<mark>{}</mark>").format(part) if marked else escape(part)

    # Words, and what is between them, in turn.
    return Markup("").join(map(shown, re.split(r"(\w+)", text)))


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
