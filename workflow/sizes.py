"""Sizes of passages that `make verdict` compares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cort.config.experiment import Experiment
from cort.evaluation.paired import reasons
from cort.reporting.builds import compare_builds, difference_of, legend, systems_of, tests_of, unit_of
from cort.reporting.format import fixed, plural
from cort.runtime.errors import input_error

# Bounds of `collection.passages.words`.
FEWEST, MOST = 10, 10_000


def sizes_of(text: str) -> list[int]:
    """Read sizes of passages, in words.

    :raises InputError: for anything but different numbers.
    """
    words = text.split()
    sizes = [int(word) for word in words if word.isdecimal() and FEWEST <= int(word) <= MOST]
    if not sizes or len({*sizes}) != len(words):
        expected = f"different numbers of words from {FEWEST} to {MOST:,}, such as 100 200 400"
        raise input_error("WORDS", text or "nothing", expected, "correct them")
    return sizes


def sizes_table(sizes: Mapping[str, Experiment], split: str) -> Iterator[str]:
    """Compare systems at several sizes of passages with the first size, on the queries that all have.

    :param sizes: experiments by words of a passage.
    """
    builds = [*sizes.values()]
    systems = systems_of(builds, split)
    paired = compare_builds(builds, split, systems)
    labels, measure = builds[0].labels_of(split), paired.measures[0]
    number = plural(len(paired.texts), "query", "queries")
    first, *others = sizes
    yield (
        f"words of a passage: {measure} on {number} that all sizes have ({labels} labels, {unit_of(builds)}); "
        f"difference from {first} words; {legend(tests_of(builds[-1]), len(systems) * len(others))}:"
    )
    if paired.left_out:
        yield f"left out: {', '.join(reasons(paired.left_out))}"
    width, digits = max(len(names[0]) for names in systems), max(map(len, sizes))
    for name, *_ in systems:
        yield f"  {name:<{width}}  {first:>{digits}}  {fixed(paired.rows[name, 1][0].baseline_mean)}"
        for place, size in enumerate(others, start=1):
            yield f"  {name:<{width}}  {size:>{digits}}  {difference_of(paired.rows[name, place][0])}"
