"""Make up a collection, queries and judgements with the counts and lengths of MS MARCO's, to rehearse with.

Words follow a Zipf-Mandelbrot distribution over as many terms as Lucene finds in MS MARCO; the commonest are English
stop words, so that BM25's posting lists are as long as on real text, and no longer. A query is made of words of its
first relevant passage. Everything depends on the seed and the size alone, and streams.

Usage: python -m scripts.rehearsal.synthetic --size 1/64 --seed 42 --output FOLDER
"""

import logging
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from cort.system import cli
from cort.system.options import optional, required

log = logging.getLogger(__name__)

Ids = npt.NDArray[np.int64]

# Terms of MS MARCO's Lucene index; exponent and shift fit the counts of words of a sample of its passages.
TERMS, EXPONENT, SHIFT = 2_660_824, 1.05, 2.0
# Words of a passage: log-normal. 56 on average, which gives lines of MS MARCO's 346 bytes.
PASSAGE_LENGTH, PASSAGE_SPREAD, LONGEST_PASSAGE = 3.95, 0.39, 300
# Words of a query of dev.small: 2 or more, 5.9 on average.
QUERY_LENGTH, LONGEST_QUERY = 3.92, 30
CHUNK = 65_536
# Lucene's own.
STOP_WORDS = (
    *("the", "of", "a", "to", "and", "is", "in", "for", "or", "that", "are", "on", "it", "with", "as", "by", "be"),
    *("at", "an", "this", "if", "not", "such", "their", "there", "these", "they", "was", "will", "but", "into", "no"),
    "then",
)


@dataclass(frozen=True)
class Split:
    """Counts of one set of queries: of those with n + 1 judgements, `judged[n]`; the others have none."""

    queries: int
    judged: tuple[int, ...]

    def scaled(self, size: Fraction) -> "Split":
        """Keep the proportions at another size, each count at least 1."""
        judged = tuple(max(round(count * size), 1) for count in self.judged)
        return Split(max(round(self.queries * size), sum(judged)), judged)


PASSAGES = 8_841_823
# Where the number of queries per number of judgements is not published, all beyond the first go to queries with two.
# `dev` is without dev.small here; the file of dev holds both.
SPLITS = {
    "train": Split(808_731, (502_939 - 29_822, 29_822)),
    "dev": Split(101_093 - 6_980, (48_598 - 3_238, 3_238)),
    "dev.small": Split(6_980, (6_590, 331, 51, 8)),
}


def word_ids(generator: np.random.Generator, count: int) -> Ids:
    """Draw ranks of words, 0 the commonest: the inverse of the Zipf-Mandelbrot distribution function."""
    power = 1.0 - EXPONENT
    low, high = SHIFT**power, (TERMS + SHIFT) ** power
    ranks = (low + (high - low) * generator.random(count)) ** (1.0 / power) - SHIFT
    ids: Ids = np.minimum(ranks.astype(np.int64), TERMS - 1)
    return ids


def vocabulary() -> pa.Array:
    """All words by rank: stop words, then distinct strings of letters, longer ones further down."""
    rest = np.arange(TERMS - len(STOP_WORDS))
    # Two syllables tell 10,000 words apart, the third one 200,000, and the fourth all.
    syllables = np.array([consonant + vowel for consonant in "bcdfghjklmnprstvwxyz" for vowel in "aeiou"])
    words = np.char.add(syllables[rest % 100], syllables[rest // 100 % 100]).astype("U8")
    for first in (2_000, 200_000):
        longer = rest >= first
        words[longer] = np.char.add(words[longer], syllables[rest[longer] // first % 100])
    return pa.concat_arrays([pa.array(STOP_WORDS, pa.string()), pa.array(words.tolist(), pa.string())])


def join_words(words: pa.Array, ids: Ids, lengths: Ids) -> pa.Array:
    """Texts of `lengths` words each, from the ranks of all their words."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), words.take(pa.array(ids))), " ")


def judgements(split: Split, passages: int, generator: np.random.Generator) -> tuple[Ids, Ids]:
    """Positions of queries and relevant passages of all judgements; the first queries are the judged ones."""
    counts = np.repeat(np.arange(1, len(split.judged) + 1), split.judged)
    # Neighbours from a random place on: distinct for each query, as long as there are passages enough.
    first = generator.integers(passages, size=len(counts))
    queries = np.repeat(np.arange(len(counts)), counts)
    ordinal = np.arange(len(queries)) - np.repeat(np.cumsum(counts) - counts, counts)
    return queries, (first[queries] + ordinal) % passages


class Queries:
    """The queries of all splits while passages stream by: each takes its words from its first relevant passage."""

    def __init__(self, relevant: Ids, generator: np.random.Generator) -> None:
        """:param relevant: first relevant passage of each query, -1 for none."""
        lengths = np.minimum(2 + generator.poisson(QUERY_LENGTH, len(relevant)), LONGEST_QUERY)
        self.offsets: Ids = np.concatenate([[0], np.cumsum(lengths)])
        self.words = word_ids(generator, int(self.offsets[-1]))
        self._order = np.argsort(relevant, kind="stable")
        self._relevant = relevant[self._order]

    def take_words(self, first: int, ids: Ids, lengths: Ids, generator: np.random.Generator) -> None:
        """Give words to the queries of passages `first` and following, whose words are `ids`."""
        start, end = np.searchsorted(self._relevant, [first, first + len(lengths)])
        queries, passages = self._order[start:end], self._relevant[start:end] - first
        wanted = np.diff(self.offsets)[queries]
        places = np.repeat(self.offsets[queries] - (np.cumsum(wanted) - wanted), wanted) + np.arange(wanted.sum())
        starts = np.cumsum(lengths) - lengths
        drawn = (generator.random(len(places)) * np.repeat(lengths[passages], wanted)).astype(np.int64)
        self.words[places] = ids[np.repeat(starts[passages], wanted) + drawn]


def iter_passages(passages: int, words: pa.Array, queries: Queries, seed: int) -> Iterator[pa.Table]:
    """Make the passages, chunk by chunk, and hand their words to the queries."""
    for first in range(0, passages, CHUNK):
        generator = np.random.default_rng([seed, 1, first])
        count = min(CHUNK, passages - first)
        drawn = np.exp(generator.normal(PASSAGE_LENGTH, PASSAGE_SPREAD, count))
        lengths = drawn.astype(np.int64).clip(2, LONGEST_PASSAGE)
        ids = word_ids(generator, int(lengths.sum()))
        queries.take_words(first, ids, lengths, generator)
        yield pa.table({"doc_id": _strings(np.arange(first, first + count)), "text": join_words(words, ids, lengths)})


def write_tsv(path: Path, tables: Iterable[pa.Table]) -> int:
    """Write tables without a header, fields separated by TAB; their number of rows."""
    options = pa.csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    rows = 0
    with open(path, "wb") as handle:
        for table in tables:
            pa.csv.write_csv(table, handle, options)
            rows += table.num_rows
    return rows


def generate(folder: Path, size: Fraction, seed: int) -> dict[str, int]:
    """Write collection.tsv, and queries and qrels of train, dev and dev.small, which is a part of dev; row counts."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng([seed, 0])
    passages = max(round(PASSAGES * size), 1_000)
    splits = {name: split.scaled(size) for name, split in SPLITS.items()}
    judged = {name: judgements(split, passages, generator) for name, split in splits.items()}
    *starts, total = np.cumsum([0, *(split.queries for split in splits.values())])
    numbers, relevant = generator.permutation(total), np.full(total, -1)
    for start, (queries, documents) in zip(starts, judged.values(), strict=True):
        # The other way round, so that the first passage of a query stays.
        relevant[start + queries[::-1]] = documents[::-1]
    texts, words = Queries(relevant, generator), vocabulary()
    rows = write_tsv(folder / "collection.tsv", iter_passages(passages, words, texts, seed))
    text = join_words(words, texts.words, np.diff(texts.offsets))
    parts: dict[str, list[pa.Table]] = {}
    for (name, split), start in zip(splits.items(), starts, strict=True):
        ids, (queries, documents) = numbers[start : start + split.queries], judged[name]
        by = np.argsort(ids)
        columns = {"query_id": _strings(ids[queries]), "q0": pa.repeat("0", len(queries))}
        columns |= {"doc_id": _strings(documents), "relevance": pa.repeat("1", len(queries))}
        asked = {"query_id": _strings(ids[by]), "text": text.take(pa.array(start + by))}
        for file in {name, name.removesuffix(".small")}:
            parts.setdefault(f"queries.{file}.tsv", []).append(pa.table(asked))
            parts.setdefault(f"qrels.{file}.tsv", []).append(pa.table(columns))
    return {"collection.tsv": rows} | {name: write_tsv(folder / name, tables) for name, tables in parts.items()}


def _strings(numbers: Ids) -> pa.Array:
    return pa.array(numbers).cast(pa.string())


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of this program."""

    size: Fraction = optional(Fraction(1), "1 is MS MARCO's", "FRACTION")
    seed: int = optional(42)
    output: str = required("FOLDER")


def stage(options: Options) -> None:
    """Generate, log counts."""
    for name, count in generate(Path(options.output), options.size, options.seed).items():
        log.info("%s: %d lines", name, count)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
