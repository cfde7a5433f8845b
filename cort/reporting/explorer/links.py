"""Addresses that open the explorer at two systems, and at a query if one is named."""

from __future__ import annotations

from urllib.parse import urlencode


def link(page: str, a: str, b: str, query: str | None = None, measure: str | None = None) -> str:
    """Return the address of `page` (``"explore/test/index.html"``) with what it is to show."""
    names = {"a": a, "b": b, "measure": measure, "q": query}
    return f"{page}#{urlencode({key: value for key, value in names.items() if value is not None})}"
