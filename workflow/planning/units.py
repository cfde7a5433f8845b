"""Amounts as a person writes them."""

from __future__ import annotations


def in_units(megabytes: float) -> str:
    """Write an amount of memory or disk for a person."""
    for limit, unit in ((1e3, "MB"), (1e6, "GB")):
        if megabytes < limit:
            amount = megabytes * 1e3 / limit
            return f"{amount:.1f} {unit}" if amount < 10 and unit != "MB" else f"{amount:.0f} {unit}"
    return f"{megabytes / 1e6:.1f} TB"


def in_time(seconds: float) -> str:
    """Write a time for a person."""
    for limit, size, unit in ((100, 1, "s"), (6_000, 60, "min"), (48 * 3600, 3600, "h")):
        if seconds < limit:
            amount = seconds / size
            return f"{amount:.1f} {unit}" if amount < 10 and unit != "s" else f"{amount:.0f} {unit}"
    return f"{seconds / 86400:.1f} days"
