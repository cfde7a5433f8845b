"""Check term-based rankers in an experiment's config, and what changes their texts."""

from __future__ import annotations

from collections.abc import Iterator

from cort.config.entries import BM25, INDEX_ADDITIONS, listed
from cort.config.lexical import BeamSearch, Expander, FixedIndex, PredictionFile, TunedIndex
from cort.runtime.sections import default_of
from cort.systems.mistakes import check_tuning
from cort.systems.results import Results


def check_lexical(results: Results) -> Iterator[str]:
    """Check indexes and expanders."""
    for name, index in results.lexical.items():
        place, added = f"lexical.{name}", [key for key in INDEX_ADDITIONS.values() if getattr(index, key)]
        for key in added if name == BM25 else ():
            yield f"{place}: found {key}, expected the passages as they are; give the index another name"
        if len(added) > 1:
            yield f"{place}: found {listed(added)}, expected one of them; make two indexes"
        if index.cleaning == "cort" and index.language != default_of(FixedIndex, "language"):
            expected = "raw or fixed, as cort keeps the letters of English alone"
            yield f"{place}.cleaning: found cort for the language {index.language}, expected {expected}; change it"
        if isinstance(index, TunedIndex):
            yield from check_tuning(f"{place}.tune", index.tune, results)
    for name, expander in results.root.expanders.items():
        yield from _check_expander(f"expanders.{name}", expander)


def _check_expander(place: str, expander: Expander) -> Iterator[str]:
    if isinstance(expander, BeamSearch) and expander.beams < expander.queries:
        found, fix = f"found {expander.beams}", "raise it or lower queries"
        yield f"{place}.beams: {found}, expected the {expander.queries} queries or more; {fix}"
    if isinstance(expander, PredictionFile):
        yield from _check_predictions(place, expander)


def _check_predictions(place: str, expander: PredictionFile) -> Iterator[str]:
    has_samples = expander.file.endswith(".zip")
    if has_samples != (expander.queries is not None):
        found = "no queries with a .zip of samples" if has_samples else "queries with one line per passage"
        fix = "say how many are appended" if has_samples else "remove it, as all of a line are appended"
        yield f"{place}.queries: found {found}, expected it only with a .zip; {fix}"
