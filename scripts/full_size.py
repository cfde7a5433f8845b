"""Make files with MS MARCO's counts and lengths, or a fraction of them, for config/full-size.yaml.

Words are numbers after the stop words. A query has words of one passage, which is its judged one. The same seed gives
the same bytes. Writes collection.tsv, and queries and qrels of train, validation and dev.

Usage: python -m scripts.full_size --folder FOLDER [--scale 1/64] [--seed 1]
"""

from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from cort.runtime.files import atomic_folder
from scripts.bench.common import parse

Integers = npt.NDArray[np.int64]

PASSAGES = 8_841_823
# Queries, and how many of them are judged, with one passage each. As in config/msmarco.yaml, validation is a
# sample, and dev is dev.small.
SPLITS = {"train": (808_731, 502_939), "validation": (1_000, 1_000), "dev": (6_980, 6_980)}
LEAST = 100
# Words follow a Zipf-Mandelbrot distribution over as many terms as Lucene finds in MS MARCO; exponent and shift fit a
# sample of its passages. The most frequent words are Lucene's stop words.
TERMS, EXPONENT, SHIFT = 2_660_824, 1.05, 2.0
STOP_WORDS = "the of a to and is in for or that are on it with as by be at an this if not such their there these they"
# Words of a passage: parameters of a log-normal distribution (56 on average) and the maximum.
LENGTH, SPREAD, LONGEST = 3.95, 0.39, 300
# Words of a query: at least 2, and a Poisson distribution of the others (5.9 on average); the maximum.
MORE, LONGEST_QUERY = 3.92, 30
BLOCK = 65_536


def strings(numbers: Integers) -> pa.Array:
    """Write numbers as ids."""
    return pa.array(numbers).cast(pa.string())


def draw_words(generator: np.random.Generator, count: int) -> Integers:
    """Draw ranks of words by inverse transform sampling."""
    power = 1.0 - EXPONENT
    low, high = SHIFT**power, (TERMS + SHIFT) ** power
    ranks: Integers = ((low + (high - low) * generator.random(count)) ** (1.0 / power) - SHIFT).astype(np.int64)
    return ranks.clip(max=TERMS - 1)


def texts(vocabulary: pa.Array, words: Integers, lengths: Integers) -> pa.Array:
    """Join words to texts of these numbers of words."""
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    return pc.binary_join(pa.ListArray.from_arrays(offsets, vocabulary.take(pa.array(words))), " ")


def write(handle: BinaryIO, *columns: Any) -> None:
    """Write columns separated by tabs."""
    options = pa.csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    pa.csv.write_csv(pa.table(list(columns), [str(number) for number in range(len(columns))]), handle, options)


def generate(folder: Path, scale: Fraction | float, seed: int = 1) -> None:
    """Write all files, a block of passages and their queries at a time."""
    passages, stop_words = max(round(PASSAGES * scale), 10 * LEAST), STOP_WORDS.split()
    vocabulary = pa.concat_arrays([pa.array(stop_words), strings(np.arange(len(stop_words), TERMS))])
    splits = {name: [max(round(count * scale), LEAST) for count in counts] for name, counts in SPLITS.items()}
    with ExitStack() as stack:
        names = ["collection", *(f"{kind}.{split}" for kind in ("queries", "qrels") for split in splits)]
        files = {name: stack.enter_context(open(folder / f"{name}.tsv", "wb")) for name in names}
        for start in range(0, passages, BLOCK):
            end, generator = min(start + BLOCK, passages), np.random.default_rng([seed, start])
            lengths = np.exp(generator.normal(LENGTH, SPREAD, end - start)).astype(np.int64).clip(2, LONGEST)
            words, first = draw_words(generator, int(lengths.sum())), 0
            write(files["collection"], strings(np.arange(start, end)), texts(vocabulary, words, lengths))
            for split, (queries, judged) in splits.items():
                rows = np.arange(queries * start // passages, queries * end // passages)
                relevant = generator.integers(end - start, size=len(rows))
                counts = (2 + generator.poisson(MORE, len(rows))).clip(2, LONGEST_QUERY)
                share = generator.random(int(counts.sum())) * np.repeat(lengths[relevant], counts)
                drawn = words[np.repeat((np.cumsum(lengths) - lengths)[relevant], counts) + share.astype(np.int64)]
                ids, asked = strings(first + rows), texts(vocabulary, drawn, counts)
                some = slice(judged * end // passages - judged * start // passages)
                write(files[f"queries.{split}"], ids, asked)
                zeros, ones = (pa.repeat(grade, len(ids[some])) for grade in "01")
                write(files[f"qrels.{split}"], ids[some], zeros, strings(start + relevant[some]), ones)
                first += queries


if __name__ == "__main__":
    arguments = parse(__doc__, folder=Path, scale=Fraction(1), seed=1)
    with atomic_folder(arguments.folder) as temporary:
        generate(temporary, arguments.scale, arguments.seed)
