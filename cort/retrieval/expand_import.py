"""Import published document expansions: queries that doc2query or docTTTTTquery predicted for this collection.

Such files contain no ids: each line belongs to the passage on the same line of the collection. The numbers of lines
must therefore agree.

Reads:  the predictions (layouts: cort/formats/expansions.py), passages.parquet
Writes: the doc_id and queries of each passage, as parquet, in the order of the passages
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice

import pyarrow as pa

from cort.config.lexical import Sampling
from cort.formats import tables
from cort.formats.expansions import Queries, iter_predictions
from cort.runtime.errors import input_error
from cort.runtime.progress import track
from cort.runtime.sections import AnyFile, Maybe, ParquetFile, Section, same_as

log = logging.getLogger(__name__)

ROWS = 16_384

OTHER = "name the predictions for this collection, in its order"


def join(passages: Iterator[pa.RecordBatch], predictions: Iterator[Queries], source: str) -> Iterator[pa.Table]:
    """Yield the doc_id and queries of each passage.

    :raises InputError: if `source` has too few or too many lines.
    """
    done = 0
    for batch in passages:
        queries = list(islice(predictions, batch.num_rows))
        if len(queries) < batch.num_rows:
            found = f"{done + len(queries)} lines for more passages"
            raise input_error(source, found, "a line for each passage", OTHER)
        columns = [batch["doc_id"], pa.array(queries, pa.list_(pa.string()))]
        yield pa.table(columns, schema=tables.EXPANSIONS)
        done += batch.num_rows
    if next(predictions, None) is not None:
        raise input_error(source, f"more lines than the {done} passages", "a line for each passage", OTHER)


class Options(Section):
    """Options of this stage."""

    predictions: AnyFile
    """Predicted queries, .txt, .txt.gz, .tar.gz or .zip."""
    queries: Maybe[int] = same_as(Sampling, "queries", default=None)
    """Samples to take from a .zip."""
    passages: ParquetFile
    """The collection."""
    output: ParquetFile


def stage(options: Options) -> None:
    """Pair the predictions with the passages and write them."""
    batches = tables.iter_batches(options.passages, tables.PASSAGES, ROWS)
    predictions = iter_predictions(options.predictions, options.queries)
    rows = tables.count_rows(options.passages, tables.PASSAGES)
    count = 0
    with tables.open_writer(options.output, tables.EXPANSIONS) as writer:
        for table in track(join(batches, predictions, options.predictions), rows, "passages", size=len):
            writer.write_table(table)
            count += len(pa.compute.list_flatten(table["queries"]))
    log.info("%d queries for %d passages", count, rows)
