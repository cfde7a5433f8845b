"""Import published document expansions: queries that doc2query or docTTTTTquery predicted for this collection.

Such files do not name passages: each line belongs to the passage on the same line of the collection. So the number of
lines must be the same, and the log warns if queries do not share more words with their own passages than with others
nearby.

Reads:  the predictions (cort/formats/expansions.py says in which layouts), passages.parquet
Writes: doc_id and queries of each passage, as parquet, in the order of the passages
Usage:  python -m cort.import_expansions --predictions predicted_queries_topk_sampling.zip --queries 40
            --passages passages.parquet --output expansions.parquet
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from cort.formats import tables
from cort.formats.expansions import Queries, iter_predictions
from cort.system import cli
from cort.system.errors import input_error
from cort.system.options import optional, required
from cort.system.progress import track

log = logging.getLogger(__name__)

ROWS = 16_384
# In each batch: passages that are compared, the fewest that are worth comparing, and the greatest distance of others.
COMPARED, FEWEST, FURTHEST = 200, 20, 5
# Words of three letters or more, numbers, and each letter of the scripts from Thai on, most without spaces.
WORD = re.compile(r"[^\W\u0e00-\U0010ffff]{3,}|\d+|[^\W\0-\u0dff]")
OTHER = "name the predictions for this collection, in its order"


def join(passages: Iterator[pa.RecordBatch], predictions: Iterator[Queries], source: str) -> Iterator[pa.Table]:
    """Yield doc_id and queries of each passage.

    :raises InputError: if `source` has too few or too many lines.
    """
    done, warned = 0, False
    for batch in passages:
        queries = list(islice(predictions, batch.num_rows))
        if len(queries) < batch.num_rows:
            found = f"{done + len(queries)} lines for more passages"
            raise input_error(source, found, "a line for each passage", OTHER)
        if not warned and not fit(batch["text"].slice(0, COMPARED).to_pylist(), queries[:COMPARED]):
            warned = True
            last = done + min(len(queries), COMPARED)
            words = "%s: the queries of passages %d to %d share no more words with them than with others; if wrong, %s"
            log.warning(words, source, done + 1, last, OTHER)
        columns = [batch["doc_id"], pa.array(queries, pa.list_(pa.string()))]
        yield pa.table(columns, schema=tables.EXPANSIONS)
        done += batch.num_rows
    if next(predictions, None) is not None:
        raise input_error(source, f"more lines than the {done} passages", "a line for each passage", OTHER)


def fit(texts: Sequence[str], queries: Sequence[Queries]) -> bool:
    """Tell whether queries share words with their own texts, and no more words with the texts before and after."""
    in_texts = [set(WORD.findall(text.lower())) for text in texts]
    in_queries = [set(WORD.findall(" ".join(predicted).lower())) for predicted in queries]
    if len(texts) < FEWEST or not any(in_queries):
        return True

    def shared(shift: int) -> int:
        return sum(len(in_texts[(row + shift) % len(in_texts)] & words) for row, words in enumerate(in_queries))

    return shared(0) >= max(1, *(shared(shift) for shift in range(-FURTHEST, FURTHEST + 1) if shift))


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of this stage."""

    predictions: str = required("FILE", "predicted queries, .txt, .txt.gz, .tar.gz or .zip")
    queries: int | None = optional(None, "samples to take from a .zip", "N")
    passages: str = required("PARQUET", "the collection")
    output: str = required("PARQUET")


def stage(options: Options) -> None:
    """Read, check, write."""
    batches = tables.iter_batches(options.passages, tables.PASSAGES, ROWS)
    predictions = iter_predictions(options.predictions, options.queries)
    rows = tables.count_rows(options.passages, tables.PASSAGES)
    count = 0
    with tables.open_writer(options.output, tables.EXPANSIONS) as writer:
        for table in track(join(batches, predictions, options.predictions), rows, "passages", size=len):
            writer.write_table(table)
            count += len(pa.compute.list_flatten(table["queries"]))
    log.info("%d queries for %d passages", count, rows)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
