"""What each term of a query adds to BM25's score, read from Lucene's own explanation.

A module of its own: the process that runs `cort.online.lucene` sends these to one that imports it.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

# A line of an explanation: what a term adds, and the numbers that this is made of.
TERM = re.compile(r" *(?P<score>\S+) = weight\(\w+:(?P<term>.*) in \d+\)")
DETAIL = re.compile(r" *(?P<value>\S+) = (?P<name>boost|idf|freq|n)\b")


class TermScore(NamedTuple):
    """What a term adds to a passage's score: `boost` (how often the query has it) times `idf` times a part of 1.

    `frequency` is that in the passage, `passages` the number of those that have the term, which is as the index has it.
    """

    term: str
    boost: float
    frequency: float
    passages: int
    idf: float
    score: float


def read_explanation(text: str) -> list[TermScore]:
    """Read what Lucene says of a score, a line per number, those it is made of below it and further in."""
    terms: list[dict[str, Any]] = []
    for line in text.splitlines():
        if term := TERM.match(line):
            terms.append(term.groupdict())
        elif terms and (detail := DETAIL.match(line)):
            terms[-1].setdefault(detail["name"], detail["value"])
    return [
        TermScore(
            one["term"],
            float(one.get("boost", 1)),
            float(one["freq"]),
            int(one["n"]),
            float(one["idf"]),
            float(one["score"]),
        )
        for one in terms
    ]
