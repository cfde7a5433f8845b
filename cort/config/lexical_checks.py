"""Check term-based rankers in an experiment's config, and what changes their texts."""

from __future__ import annotations

from collections.abc import Iterator

from cort.config.entries import BM25, INDEX_ADDITIONS, Config, listed
from cort.config.lexical import FixedIndex
from cort.runtime.sections import default_of
from cort.systems.mistakes import check_tuning
from cort.systems.results import Results


def check_lexical(results: Results) -> Iterator[str]:
    """Check indexes and expanders."""
    config = results.config
    for name, index in config["lexical"].items():
        place = f"lexical.{name}"
        for key in INDEX_ADDITIONS.values():
            if name == BM25 and key in index:
                yield f"{place}: found {key}, expected the passages as they are; give the index another name"
        if len(index.keys() & set(INDEX_ADDITIONS.values())) > 1:
            yield f"{place}: found {listed(INDEX_ADDITIONS.values())}, expected one of them; make two indexes"
        if index["cleaning"] == "cort" and index["language"] != default_of(FixedIndex, "language"):
            expected = "raw or fixed, as cort keeps the letters of English alone"
            yield f"{place}.cleaning: found cort for the language {index['language']}, expected {expected}; change it"
        if "tune" in index:
            yield from check_tuning(f"{place}.tune", index["tune"], results)
    for name, expander in config["expanders"].items():
        yield from _check_expander(f"expanders.{name}", expander)


def _check_expander(place: str, expander: Config) -> Iterator[str]:
    if "beams" in expander and expander["beams"] < expander["queries"]:
        found, fix = f"found {expander['beams']}", "raise it or lower queries"
        yield f"{place}.beams: {found}, expected the {expander['queries']} queries or more; {fix}"
    has_samples = expander.get("file", "").endswith(".zip")
    if "file" in expander and has_samples != ("queries" in expander):
        found = "no queries with a .zip of samples" if has_samples else "queries with one line per passage"
        fix = "say how many are appended" if has_samples else "remove it, as all of a line are appended"
        yield f"{place}.queries: found {found}, expected it only with a .zip; {fix}"
