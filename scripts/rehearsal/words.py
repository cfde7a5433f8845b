"""Predicted queries and weighted documents made up of the passages' words, in the layouts in which they are published.

Queries are words of their passage, drawn at random; of documents every word weighs something drawn at random.
"""

import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats import tables
from scripts.rehearsal.synthetic import join_words

QUERIES, QUERY_WORDS = 40, 7
# Mean weight of a word, 1 at least: most of DeepCT's are small.
WEIGHT = 3.0
# Passages of one part of a sample.
ROWS = 65_536
Ids = npt.NDArray[np.int64]


def write_predictions(path: Path, passages: Path) -> None:
    """Write queries about all passages as docTTTTTquery's: in a .zip, a file for each sample and part."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for part, (_, words, lengths) in enumerate(_blocks(passages)):
            starts = np.cumsum(lengths) - lengths
            for sample in range(QUERIES):
                generator = np.random.default_rng([part, sample])
                drawn = generator.random((len(lengths), QUERY_WORDS)) * lengths[:, None]
                places = (starts[:, None] + drawn.astype(np.int64)).reshape(-1)
                queries = join_words(words, places, np.full(len(lengths), QUERY_WORDS))
                name = f"predicted_queries_sample{sample:03d}.txt{part:03d}-{len(lengths)}"
                archive.writestr(name, _lines(queries))


def write_documents(path: Path, passages: Path) -> None:
    """Write weighted documents as DeepCT's: in a .zip, JSON lines with each word as often as it weighs."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for part, (ids, words, lengths) in enumerate(_blocks(passages)):
            weights = np.random.default_rng(part).geometric(1 / WEIGHT, len(words))
            ends = np.cumsum(lengths)
            total = np.concatenate([[0], np.cumsum(weights)])
            contents = join_words(words, np.repeat(np.arange(len(words)), weights), total[ends] - total[ends - lengths])
            lines = pc.binary_join_element_wise('{"id": "', ids, '", "contents": "', contents, '"}', "")
            archive.writestr(f"documents.{part:03d}.jsonl", _lines(lines))


def _blocks(passages: Path) -> Iterator[tuple[pa.Array, pa.Array, Ids]]:
    """Yield ids, words one passage after the other, and the number of words of each."""
    for batch in tables.iter_batches(passages, tables.PASSAGES, ROWS):
        words = pc.split_pattern(batch["text"], " ")
        yield batch["doc_id"], words.flatten(), pc.list_value_length(words).to_numpy().astype(np.int64)


def _lines(texts: pa.Array) -> str:
    return "\n".join([*texts.to_pylist(), ""])
