"""Check term-based rankers in an experiment's config, and what changes their texts."""

from __future__ import annotations

from collections.abc import Iterator

from cort.experiment.config import BM25, INDEX_ADDITIONS
from cort.experiment.downloads import check_suffix
from cort.experiment.idle import ORIGINS
from cort.settings.config import Config, listed
from cort.settings.lexical import LexicalIndex
from cort.systems.mistakes import check_tuning

# Endings of files of predictions: files of samples, or files with a line per passage.
SAMPLES, LINES = (".zip",), (".tar.gz", ".tgz", ".txt.gz", ".txt")
WEIGHTED = (".zip", ".jsonl.gz", ".jsonl")


def check_lexical(config: Config) -> Iterator[str]:
    """Check indexes, expanders and weighers."""
    for name, index in config["lexical"].items():
        place = f"lexical.{name}"
        for key in INDEX_ADDITIONS.values():
            if name == BM25 and key in index:
                yield f"{place}: found {key}, expected the passages as they are; give the index another name"
        if len(index.keys() & set(INDEX_ADDITIONS.values())) > 1:
            yield f"{place}: found {listed(INDEX_ADDITIONS.values())}, expected one of them; make two indexes"
        if index["cleaning"] == "cort" and index["language"] != LexicalIndex.language:
            expected = "raw or fixed, as cort keeps the letters of English alone"
            yield f"{place}.cleaning: found cort for the language {index['language']}, expected {expected}; change it"
        if "tune" in index:
            yield from check_tuning(f"{place}.tune", index["tune"], config)
    for name, expander in config["expanders"].items():
        yield from _check_expander(f"expanders.{name}", expander)
    for name, weigher in config["weighers"].items():
        yield from _check_weigher(f"weighers.{name}", weigher)


def _check_expander(place: str, expander: Config) -> Iterator[str]:
    yield from _check_origin(place, expander)
    if "file" not in expander:
        if expander.get("beams", expander["queries"]) < expander["queries"]:
            found, fix = f"found {expander['beams']}", "raise it or lower queries"
            yield f"{place}.beams: {found}, expected the {expander['queries']} queries or more; {fix}"
        return
    yield from check_suffix(f"{place}.file", expander["file"], SAMPLES + LINES)
    has_samples = expander["file"].endswith(SAMPLES)
    if has_samples != ("queries" in expander):
        found = "no queries with a .zip of samples" if has_samples else "queries with one line per passage"
        fix = "say how many are appended" if has_samples else "remove it, as all of a line are appended"
        yield f"{place}.queries: found {found}, expected it only with a .zip; {fix}"


def _check_weigher(place: str, weigher: Config) -> Iterator[str]:
    yield from _check_origin(place, weigher)
    if "file" in weigher:
        yield from check_suffix(f"{place}.file", weigher["file"], WEIGHTED)


def _check_origin(place: str, model: Config) -> Iterator[str]:
    """Check the origin of queries or weights."""
    origins = [key for key in ORIGINS if key in model]
    if len(origins) != 1:
        yield f"{place}: found {listed(origins)}, expected exactly one of {listed(ORIGINS)}; keep one"
