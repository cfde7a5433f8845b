"""How numbers and names are written for a reader."""

from __future__ import annotations

import re

MISSING = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
MEAN_OF = {"RR": "MRR", "AP": "MAP"}
RECALL = re.compile(r"^R@(\d+)$")


def measure_label(name: str) -> str:
    """Return the usual name of the mean of a measure: the mean of RR@10 is MRR@10, that of AP is MAP."""
    return re.sub(r"^(RR|AP)(?=[@(]|$)", lambda match: MEAN_OF[match.group()], name)


def recall_cutoff(name: str) -> int | None:
    """Return the k of ``R@k``; None for every other measure."""
    match = RECALL.match(name)
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


def duration(seconds: float | None) -> str:
    """Show a time span in the two units that matter: ``0.4 s``, ``12 s``, ``3 min 05 s``, ``2 h 07 min``."""
    if seconds is None:
        return MISSING
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    minutes, hours = whole // 60, round(seconds / 60) // 60
    if minutes < 1:
        return f"{whole} s"
    if whole < 3600:
        return f"{minutes} min {whole % 60:02d} s"
    return f"{hours:,} h {round(seconds / 60) % 60:02d} min"


def memory(megabytes: float | None) -> str:
    """Show a memory size in MB, or in GB from 1,000 MB on."""
    if megabytes is None:
        return MISSING
    return f"{megabytes:.0f} MB" if round(megabytes) < 1000 else f"{megabytes / 1000:,.1f} GB"
