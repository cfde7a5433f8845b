"""What DeepCT learns: of each word of a passage, the share of the passage's queries that have it (Dai & Callan, 2019).

Words of both are compared by their stems; stop words, which BM25's index does not have either, are no targets. DeepCT's
authors leave out about 300 stop words, not Lucene's 33.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from cort.training.stemming import stem

# Those that Lucene's English analysis leaves out.
STOP_WORDS = {
    *("a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not", "of"),
    *(
        "on",
        "or",
        "such",
        "that",
        "the",
        "their",
        "then",
        "there",
        "these",
        "they",
        "this",
        "to",
        "was",
        "will",
        "with",
    ),
}
OTHERS = re.compile(r"[^a-z0-9]+")

_stem = lru_cache(1 << 16)(stem)


def words_of(text: str) -> list[str]:
    """Cut a text into lower-case words of ASCII letters and digits, without possessive s and stop words."""
    words = OTHERS.sub(" ", text.lower().replace("'s", " ")).split()
    return [word for word in words if word not in STOP_WORDS]


def term_recall(passage: str, queries: Sequence[str]) -> dict[str, float]:
    """Give each word of a passage that some of its queries have the share of these."""
    counts = Counter(stemmed for query in queries for stemmed in {_stem(word) for word in words_of(query)})
    words = dict.fromkeys(words_of(passage))
    return {word: counts[_stem(word)] / len(queries) for word in words if _stem(word) in counts}
