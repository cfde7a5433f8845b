"""How numbers, names and verdicts are written, everywhere: pages, tables, logs and terminals; and which system is best.

Files for programs have full precision.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias
from urllib.parse import urlencode

from markupsafe import Markup, escape

from cort.evaluation.comparisons import (
    ALL,
    BASELINE,
    DETECTABLE,
    LOSS,
    MIN_QUERIES,
    NOT_SIGNIFICANT,
    OTHERS,
    TOO_FEW,
    WIN,
    Comparison,
    Comparisons,
    by_pair,
)

#: of the memory of a system's vectors, by a system that searches smaller ones, and that system
Shares: TypeAlias = Mapping[tuple[str, str], float]
NO_SHARES: Shares = {}
MISSING = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
#: headings of the bounds of an interval
INTERVAL = {"low": "interval from", "high": "to"}
# Decimals of measures; systems that agree to these are equally good.
DIGITS = 3


def fixed(value: float | None, digits: int = DIGITS) -> str:
    """Format a number with `digits` decimals and thousands separators; a dash where it is unknown, which NaN means."""
    if value is None or value != value:
        return MISSING
    # Rounding may leave a negative zero; adding 0.0 makes it positive.
    return f"{round(value, digits) + 0.0:,.{digits}f}"


def signed(value: float | None, digits: int = DIGITS) -> str:
    """Format a difference with its sign, which zero lacks."""
    text = fixed(value, digits)
    return f"+{text}" if value is not None and round(value, digits) > 0 else text


def count(value: float | None) -> str:
    """Format a whole number."""
    return fixed(value, 0)


def significant(value: float | None) -> str:
    """Format a number of unknown size with four digits."""
    return fixed(value, 0 if value and abs(value) >= 1000 else 4) if not value or value % 1 else count(value)


def percent(value: float | None) -> str:
    """Format a share."""
    return MISSING if value is None else f"{fixed(100 * value, 1)} %"


def p_value(value: float | None) -> str:
    """Format a p-value with four decimals, or as less than 0.0001."""
    return "<0.0001" if value is not None and value < 0.0001 else fixed(value, 4)


def interval(low: float, high: float) -> str:
    """Format the interval of a difference."""
    return f"[{signed(low)}, {signed(high)}]"


def difference(row: Comparison) -> str:
    """Format a difference and its interval."""
    return f"{signed(row.difference)} {interval(row.difference_low, row.difference_high)}"


def plural(number: int, one: str, many: str) -> str:
    """Format a count with its noun."""
    return f"{count(number)} {one if number == 1 else many}"


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


def typeset(text: str) -> str:
    """Write minus signs as such."""
    return re.sub(r"(?<![\w.])-(?=\d)", MINUS, text)


def coded(text: str) -> Markup:
    """Write in HTML what is between backticks as code."""
    return Markup(re.sub(r"(?<!\w)`([^`]+)`(?!\w)", r"<code>\1</code>", str(escape(text))))  # noqa: S704


def named(measure: str) -> str:
    """Return what people read for a measure or its mean: its name, as ir_measures has it."""
    plain = measure.replace("(judged_only=True)", "")
    return plain if plain == measure else f"{plain}, judged only"


def by_cutoff(measures: Iterable[str]) -> list[str]:
    """Order names so that those which differ in the cutoff alone are side by side, the smallest first."""
    places: dict[str, int] = {}
    keys = {}
    for name in measures:
        kind, cutoff = re.sub(r"(?<=@)\d+", "", name), re.search(r"(?<=@)\d+", name)
        keys[name] = places.setdefault(kind, len(places)), int(cutoff[0]) if cutoff else 0
    return sorted(keys, key=lambda name: keys[name])


def best_first(values: Mapping[str, float | None]) -> list[str]:
    """List systems by their value, the best first; those without a value are left out."""
    known = {name: value for name, value in values.items() if value is not None and value == value}
    return sorted(known, key=lambda name: -known[name])


def best(values: Mapping[str, float | None]) -> list[str]:
    """List the best systems, which agree to three decimals, the best first."""
    ordered = best_first(values)
    return [name for name in ordered if fixed(values[name]) == fixed(values[ordered[0]])]


def address(page: str, a: str, b: str, **more: str) -> str:
    """Return the address at which the explorer's `page` shows two systems, of one query or by a measure."""
    return f"{page}#{urlencode({'a': a, 'b': b} | more)}"


# Verdicts.


def headline(values: Mapping[str, float | None], rows: Iterable[Comparison], measure: str, baseline: str) -> str:
    """Say in one sentence which system is best by a measure, and how it differs from the baseline.

    :param values: means by system, of which at least one is known.
    """
    name, leaders = named(measure), best(values)
    leader = baseline if baseline in leaders else leaders[0]
    start = f"{leader} has the highest {name}, {fixed(values[leader])}"
    row = next((row for row in rows if (row.system, row.baseline, row.measure) == (leader, baseline, measure)), None)
    if row is None:
        return f"{start}."
    if row.verdict == WIN:
        return f"{start}: {difference(row)} over {baseline}."
    if row.verdict == TOO_FEW:
        return f"{start}, but has too few queries to be compared with {baseline}: {difference(row)}."
    return f"{start}, but does not differ significantly from {baseline}: {difference(row)}."


def verdict_lines(compared: Comparisons, shares: Shares = NO_SHARES) -> list[str]:
    """Write a legend, then a line per pair: verdict and numbers by the first measure, then other differences."""
    pairs = by_pair(compared.comparisons).values()
    families = " and over ".join(family(name, compared) for name in compared.sizes()) or "0 comparisons"
    legend = (
        f"differences over {count(compared.queries)} queries, with the {compared.confidence * 100:g} % interval of "
        f"each by itself; p of the paired randomisation test corrected by Holm's method over {families}, for each "
        f"measure by itself; WIN and LOSS if at most {compared.alpha:g}"
    )
    lines = [legend, *(_verdict_line(rows, compared) + memory_of(rows[0], shares) for rows in pairs)]
    return [f"{compared.split}: {line}" for line in lines]


def family(name: str, compared: Comparisons) -> str:
    """Name the comparisons over which p is corrected, with their number."""
    number = plural(compared.sizes()[name], "comparison", "comparisons")
    return {ALL: f"all {number}", BASELINE: f"{number} with {compared.baseline}", OTHERS: f"{number} of others"}[name]


def _verdict_line(rows: Sequence[Comparison], compared: Comparisons) -> str:
    first, others = rows[0], rows[1:]
    pair = f"{first.system} against {first.baseline}: {named(first.measure)}"
    if first.verdict == TOO_FEW:
        return f"{TOO_FEW} ({count(compared.queries)})  {pair} {signed(first.difference)}; {needed(first)}"
    text = f"{first.verdict:<{len(NOT_SIGNIFICANT)}}  {pair} {difference(first)}"
    text += f", p {p_value(first.randomization_test_holm)}"
    if first.disagrees:
        text += f" ({disagreement(first, compared)})"
    for verdict in (WIN, LOSS):
        if names := [named(row.measure) for row in others if row.verdict == verdict]:
            text += f"; {verdict} in {', '.join(names)}"
    return text


def memory_of(row: Comparison, shares: Shares) -> str:
    """Say what share of the memory a system needs that searches smaller vectors."""
    share = shares.get((row.system, row.baseline))
    return "" if share is None else f"; {percent(share)} of the memory"


def needed(row: Comparison) -> str:
    """Say how many queries a verdict requires."""
    if row.queries_needed is None:
        return f"at least {MIN_QUERIES} are needed"
    return f"about {count(row.queries_needed)} are needed to detect a difference of {DETECTABLE}"


def disagreement(row: Comparison, compared: Comparisons) -> str:
    """Explain why an interval and its verdict may seem to contradict each other."""
    return (
        "interval and p disagree: the interval is the bootstrap's, for this comparison alone; p is the randomisation "
        f"test's, corrected over {family(row.family, compared)}"
    )
