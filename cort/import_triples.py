"""Import released training triples, such as those of MS MARCO, for an encoder or, as pairs, for a re-ranker.

Triples with unknown queries or passages are refused or, optionally, dropped and counted; triples whose positive is also
the negative are always dropped. Each epoch has every kept triple once, in random order or in that of the file.

Reads:  the triples, queries.train.parquet, passages.parquet
Writes: triples.parquet (with rank 0: unknown) or pairs.parquet, and as JSON how many triples each filter dropped
Usage:  python -m cort.import_triples --triples qidpidtriples.train.full.2.tsv.gz --sample 26991900
            --queries queries.train.parquet --passages passages.parquet --output triples.parquet
            --output-counts triples.json
"""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.config.fields import Seed
from cort.config.models import Selection
from cort.config.training import Epochs
from cort.formats import tables
from cort.formats.artifacts import write_artifact
from cort.formats.ids import joined, positions
from cort.formats.released_triples import COLUMNS, iter_triples
from cort.runtime import cli
from cort.runtime.errors import input_error, shorten
from cort.runtime.files import temporary_folder
from cort.runtime.progress import track
from cort.runtime.sampling import sample_rows
from cort.runtime.sections import AnyFile, JsonFile, ParquetFile, Section, same_as

log = logging.getLogger(__name__)

#: rows of queries, positives and negatives, (triples, 3)
Rows = npt.NDArray[np.int32]

# Lines whose ids are looked up together, because each look-up builds a hash table of all ids.
LOOKED_UP = 1 << 22
# Triples that are written at once.
BLOCK = 1 << 20
READ, KEPT = "triples read", "triples kept"
UNKNOWN = tuple(f"dropped: unknown {name}" for name in COLUMNS)
FIX = "name triples of this collection or, if queries were held out or passages sampled, set unknown_ids to drop"
NOT_DRAWN, SAME = "dropped: not in the sample", "dropped: positive and negative are one passage"


class Options(Section):
    """Options of this stage."""

    triples: AnyFile
    """Released triples, .tsv or .txt, plain or .gz."""
    form: Literal["triples", "pairs"] = "triples"
    """Triples for an encoder, or pairs for a re-ranker."""
    limit: int = same_as(Selection, "limit")
    sample: int = same_as(Selection, "sample")
    shuffle: bool = same_as(Selection, "shuffle")
    unknown_ids: Literal["refuse", "drop"] = same_as(Selection, "unknown_ids")
    queries: ParquetFile
    """The training queries."""
    passages: ParquetFile
    """The collection."""
    epochs: int = same_as(Epochs, "epochs", default=1)
    seed: int = same_as(Seed, "seed")
    output: ParquetFile
    output_counts: JsonFile


def find_rows(options: Options, query_ids: pa.Array, doc_ids: pa.Array, counts: dict[str, int]) -> Iterator[Rows]:
    """Look up the queries and passages of each line; yield their rows, (lines, 3), and count what is dropped."""
    lines = _first_lines(iter_triples(options.triples), options.limit)
    for table in tables.regroup(track(lines, None, "triples", size=len), LOOKED_UP):
        documents = pa.chunked_array([*table["positive"].chunks, *table["negative"].chunks])
        rows = np.column_stack([positions(table["query"], query_ids), *positions(documents, doc_ids).reshape(2, -1)])
        rows = rows.astype(np.int32)
        unknown = rows < 0
        if unknown.any() and options.unknown_ids == "refuse":
            line, column = divmod(int(unknown.ravel().argmax()), len(COLUMNS))
            kind, source = ("passage", options.passages) if column else ("query", options.queries)
            found = f"the id {shorten(table[column][line].as_py())} of no {kind}"
            raise input_error(options.triples, found, f"one of {source}", FIX, counts[READ] + line + 1)
        # A line counts once: for its query if that is unknown, otherwise for its first unknown passage.
        first = unknown & (np.cumsum(unknown, axis=1) == 1)
        for name, count in zip(UNKNOWN, first.sum(axis=0).tolist(), strict=True):
            counts[name] += count
        counts[READ] += len(rows)
        rows = rows[~unknown.any(axis=1)]
        same = rows[:, 1] == rows[:, 2]
        counts[SAME] += int(same.sum())
        yield rows[~same]


def _first_lines(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    remaining = limit or sys.maxsize
    for batch in batches:
        yield batch.slice(0, remaining)
        remaining -= batch.num_rows
        if remaining <= 0:
            return


def read_triples(options: Options, folder: Path) -> tuple[Rows, pa.Array, pa.Array, dict[str, int]]:
    """Look up the triples in a file in the folder; return them as rows of queries and passages, the ids, and counts."""
    query_ids = joined(tables.read_column(options.queries, tables.QUERIES, "query_id"))
    doc_ids = joined(tables.read_column(options.passages, tables.PASSAGES, "doc_id"))
    counts, known = dict.fromkeys((READ, *UNKNOWN, SAME), 0), folder / "known"
    with open(known, "wb") as file:
        for rows in find_rows(options, query_ids, doc_ids, counts):
            rows.tofile(file)
    if not known.stat().st_size:
        found = f"no triple of known ids and two passages among {counts[READ]}"
        raise input_error(options.triples, found, "at least one", "name triples of this collection")
    return np.memmap(known, np.int32, "r").reshape(-1, len(COLUMNS)), query_ids, doc_ids, counts


def table_of(rows: Rows, epoch: int, query_ids: pa.Array, doc_ids: pa.Array, form: str) -> pa.Table:
    """Look up the ids in rows: as triples, or as two pairs each, the positive first."""

    def taken(ids: pa.Array, places: npt.NDArray[np.int32]) -> pa.Array:
        return ids.take(places).cast("string")

    if form == "triples":
        query, *documents = rows.T
        columns = [taken(query_ids, query), *(taken(doc_ids, document) for document in documents)]
        schema, last = tables.TRIPLES, np.zeros(len(rows), np.int32)
    else:
        queries, passages = np.repeat(rows[:, 0], 2), rows[:, 1:].reshape(-1)
        columns = [taken(query_ids, queries), taken(doc_ids, passages)]
        schema, last = tables.PAIRS, np.tile(np.array([1, 0], np.int32), len(rows))
    return pa.table([np.full(len(last), epoch, np.int32), *columns, last], schema=schema)


def stage(options: Options) -> None:
    """Look up the triples, draw a sample, and write all epochs."""
    schema = tables.TRIPLES if options.form == "triples" else tables.PAIRS
    with temporary_folder(options.output) as folder:
        triples, query_ids, doc_ids, counts = read_triples(options, folder)
        kept = sample_rows(len(triples), options.sample or len(triples), options.seed)
        counts |= {NOT_DRAWN: len(triples) - len(kept), KEPT: len(kept)}
        for name, count in counts.items():
            log.info("%s: %d", name, count)
        with tables.open_writer(options.output, schema) as writer:
            for epoch in range(options.epochs):
                order = np.random.default_rng([options.seed, epoch]).permutation(kept) if options.shuffle else kept
                for start in range(0, len(order), BLOCK):
                    rows = triples[order[start : start + BLOCK]]
                    writer.write_table(table_of(rows, epoch, query_ids, doc_ids, options.form))
            write_artifact(options.output_counts, counts)
    log.info("wrote %d epochs of %d triples", options.epochs, len(kept))


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
