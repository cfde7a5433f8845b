"""Keep the predicted queries that a re-ranker scores best (Doc2Query--, Gospodinov, MacAvaney & Macdonald, 2023).

The share that is kept is one of all queries of the collection, so a passage may keep all of its queries or none. Of
queries with the score of the last one that is kept, those of the lowest passage id come first, then the first ones.

Reads:  predicted queries and their scores, both a row per passage, in the order of the passages
Writes: the queries that are kept, in the same form; as JSON how many these are, and the lowest score
Usage:  python -m cort.filter_expansions --expansions expansions.parquet --scores passages.1-of-1.parquet --keep 0.3
            --output filtered.parquet --output-counts filter.json
"""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats import tables
from cort.formats.expansions import OTHERS, parts_of
from cort.formats.ids import alphabetic_codes
from cort.formats.lines import place_of
from cort.system import cli
from cort.system.errors import input_error, shorten
from cort.system.files import write_text
from cort.system.options import optional, required

log = logging.getLogger(__name__)


def kept_queries(
    scores: npt.NDArray[np.float32], sizes: npt.NDArray[np.int64], doc_ids: pa.Array, count: int
) -> npt.NDArray[np.bool_]:
    """Tell which queries have the `count` best scores, shape (queries,), by (-score, doc_id, place in its passage).

    :param sizes: how many queries each passage has; `scores` has those of one passage after the other.
    """
    threshold = np.partition(scores, len(scores) - count)[len(scores) - count]
    kept: npt.NDArray[np.bool_] = scores > threshold
    ties = np.flatnonzero(scores == threshold)
    rows = np.searchsorted(np.cumsum(sizes), ties, side="right")
    order = np.lexsort((ties, alphabetic_codes(doc_ids.take(pa.array(rows)))))
    kept[ties[order[: count - int(kept.sum())]]] = True
    return kept


def filtered(options: Options, sizes: npt.NDArray[np.int64], kept: npt.NDArray[np.bool_]) -> Iterator[pa.Table]:
    """Yield the predicted queries batch by batch, with those alone that are kept."""
    ends, row = np.concatenate([[0], np.cumsum(sizes)]), 0
    for batch in chain.from_iterable(tables.iter_batches(path, tables.EXPANSIONS) for path in options.expansions):
        here = kept[ends[row] : ends[row + batch.num_rows]]
        before = ends[row : row + batch.num_rows + 1] - ends[row]
        offsets = np.concatenate([[0], np.cumsum(here)])[before]
        queries = pc.list_flatten(batch["queries"]).filter(pa.array(here))
        lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), queries)
        yield pa.table([batch["doc_id"], lists], schema=tables.EXPANSIONS)
        row += batch.num_rows


def read_scores(path: str) -> pa.Table:
    """Read the scores of a file; one that is not finite is refused."""
    table = tables.read_table(path, tables.EXPANSION_SCORES).combine_chunks()
    wrong = pc.index(pc.is_finite(pc.list_flatten(table["scores"])), False).as_py()
    if wrong >= 0:
        row = pc.list_parent_indices(table["scores"])[wrong].as_py()
        found = f"a score of passage {shorten(table['doc_id'][row].as_py())} that is not finite"
        raise input_error(path, found, "finite numbers", OTHERS[1], row + 1)
    return table


def read_sizes(options: Options, doc_ids: pa.Array, scored: npt.NDArray[np.int64]) -> None:
    """Check that queries and scores are of the same passages, and as many.

    :raises InputError: names the file of scores.
    """
    row = 0
    for batch in chain.from_iterable(tables.iter_batches(path, tables.EXPANSIONS) for path in options.expansions):
        sizes = pc.list_value_length(batch["queries"]).to_numpy()
        here = slice(row, row + batch.num_rows)
        if not (doc_ids[here].equals(batch["doc_id"]) and np.array_equal(scored[here], sizes)):
            parts = parts_of(options.scores, tables.EXPANSION_SCORES)
            path, first = place_of(parts, row) if row < len(doc_ids) else (options.scores[-1], row + 1)
            raise input_error(path, f"scores of other queries from row {first} on", *OTHERS)
        row += batch.num_rows
    if row != len(doc_ids):
        raise input_error(options.scores[-1], f"scores of {len(doc_ids)} passages, not of {row}", *OTHERS)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of this stage."""

    expansions: tuple[str, ...] = required("PARQUET", "predicted queries")
    scores: tuple[str, ...] = required("PARQUET", "their scores")
    keep: float = optional(0.3, "share of all queries that is kept")
    output: str = required("PARQUET")
    output_counts: str = required("JSON")


def stage(options: Options) -> None:
    """Read the scores, choose, write."""
    if not 0 < options.keep <= 1:
        raise input_error("--keep", f"{options.keep:g}", "above 0, at most 1", "fix it")
    table = pa.concat_tables(map(read_scores, options.scores)).combine_chunks()
    doc_ids = pa.concat_arrays(table["doc_id"].chunks)
    sizes = pc.list_value_length(table["scores"]).to_numpy().astype(np.int64)
    scores = pc.list_flatten(table["scores"]).to_numpy()
    read_sizes(options, doc_ids, sizes)
    if not len(scores):
        fix = "name another file, or remove the filter"
        raise input_error(options.expansions[0], "no predicted query", "one at least to filter", fix)
    count = math.ceil(options.keep * len(scores))
    kept = kept_queries(scores, sizes, doc_ids, count)
    left = 0
    with tables.open_writer(options.output, tables.EXPANSIONS) as writer:
        for part in filtered(options, sizes, kept):
            writer.write_table(part)
            left += int(pc.sum(pc.greater(pc.list_value_length(part["queries"]), 0)).as_py() or 0)
        found = {
            "queries": len(scores),
            "kept": count,
            "share": count / len(scores),
            "threshold": float(scores[kept].min()),
            "passages": len(doc_ids),
            "passages with a query that is kept": left,
        }
        write_text(options.output_counts, json.dumps(found, indent=2) + "\n")
    log.info("kept %d of %d queries, those with scores from %g on", count, len(scores), found["threshold"])
    log.info("%d of %d passages have such a query", left, len(doc_ids))


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
