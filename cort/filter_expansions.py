"""Keep the predicted queries that a re-ranker scores best (Doc2Query--, Gospodinov, MacAvaney & Macdonald, 2023).

The share to keep is one of all queries of the collection, so a passage may keep all or none of its queries. Ties at the
threshold are broken by passage id, then by the order of a passage's queries.

Reads:  predicted queries and their scores, a row per passage, in the order of the passages
Writes: the queries that are kept, in the same format; as JSON their number and the lowest score
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
from cort.settings.lexical import ExpansionFilter
from cort.system import cli
from cort.system.errors import input_error, shorten
from cort.system.files import write_text
from cort.system.options import optional, required

log = logging.getLogger(__name__)


def kept_queries(
    scores: npt.NDArray[np.float32], sizes: npt.NDArray[np.int64], doc_ids: pa.Array, count: int
) -> npt.NDArray[np.bool_]:
    """Mark the `count` best queries, shape (queries,), by (-score, doc_id, place in the passage).

    :param sizes: number of queries of each passage; `scores` are in the order of passages and queries.
    """
    threshold = np.partition(scores, len(scores) - count)[len(scores) - count]
    kept: npt.NDArray[np.bool_] = scores > threshold
    ties = np.flatnonzero(scores == threshold)
    rows = np.searchsorted(np.cumsum(sizes), ties, side="right")
    order = np.lexsort((ties, alphabetic_codes(doc_ids.take(pa.array(rows)))))
    kept[ties[order[: count - int(kept.sum())]]] = True
    return kept


def read_queries(options: Options) -> Iterator[tuple[slice, pa.Array, pa.ListArray]]:
    """Yield predicted queries in batches: their rows, ids of the passages, lists of queries."""
    row = 0
    for batch in chain.from_iterable(tables.iter_batches(path, tables.EXPANSIONS) for path in options.expansions):
        yield slice(row, row + batch.num_rows), batch["doc_id"], batch["queries"]
        row += batch.num_rows


def filtered(options: Options, sizes: npt.NDArray[np.int64], kept: npt.NDArray[np.bool_]) -> Iterator[pa.Table]:
    """Yield the predicted queries that are kept, in batches."""
    ends = np.concatenate([[0], np.cumsum(sizes)])
    for rows, doc_ids, queries in read_queries(options):
        places = ends[rows.start : rows.stop + 1]
        here = kept[places[0] : places[-1]]
        offsets = np.concatenate([[0], np.cumsum(here)])[places - places[0]]
        values = pc.list_flatten(queries).filter(pa.array(here))
        yield pa.table(
            [doc_ids, pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)], schema=tables.EXPANSIONS
        )


def read_scores(path: str) -> pa.Table:
    """Read the scores of a file; NaN and infinite scores are refused."""
    table = tables.read_table(path, tables.EXPANSION_SCORES).combine_chunks()
    wrong = pc.index(pc.is_finite(pc.list_flatten(table["scores"])), False).as_py()
    if wrong >= 0:
        row = pc.list_parent_indices(table["scores"])[wrong].as_py()
        found = f"a NaN or infinite score of passage {shorten(table['doc_id'][row].as_py())}"
        raise input_error(path, found, "finite numbers", OTHERS[1], row + 1)
    return table


def check_sizes(options: Options, doc_ids: pa.Array, sizes: npt.NDArray[np.int64]) -> None:
    """Check that every query has a score.

    :raises InputError: names the file of scores.
    """
    count = 0
    for rows, ids, queries in read_queries(options):
        same = np.array_equal(sizes[rows], pc.list_value_length(queries).to_numpy())
        if not (same and doc_ids[rows].equals(ids)):
            parts = parts_of(options.scores, tables.EXPANSION_SCORES)
            first = rows.start
            path, row = place_of(parts, first) if first < len(doc_ids) else (options.scores[-1], first + 1)
            raise input_error(path, f"scores of other queries from row {row} on", *OTHERS)
        count = rows.stop
    if count != len(doc_ids):
        raise input_error(options.scores[-1], f"scores of {len(doc_ids)} passages, not of {count}", *OTHERS)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of this stage."""

    expansions: tuple[str, ...] = required("PARQUET", "predicted queries")
    scores: tuple[str, ...] = required("PARQUET", "their scores")
    keep: float = optional(ExpansionFilter.keep, "share of all queries to keep")
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
    check_sizes(options, doc_ids, sizes)
    if not len(scores):
        fix = "name another file, or remove the filter"
        raise input_error(options.expansions[0], "no predicted query", "at least one to filter", fix)
    count = math.ceil(options.keep * len(scores))
    kept = kept_queries(scores, sizes, doc_ids, count)
    with_queries = 0
    with tables.open_writer(options.output, tables.EXPANSIONS) as writer:
        for part in filtered(options, sizes, kept):
            writer.write_table(part)
            with_queries += int(pc.sum(pc.greater(pc.list_value_length(part["queries"]), 0)).as_py() or 0)
        counts = {
            "queries": len(scores),
            "kept": count,
            "share": count / len(scores),
            "threshold": float(scores[kept].min()),
            "passages": len(doc_ids),
            "passages with a query that is kept": with_queries,
        }
        write_text(options.output_counts, json.dumps(counts, indent=2) + "\n")
    log.info("kept %d of %d queries, with scores of %g or more", count, len(scores), counts["threshold"])
    log.info("%d of %d passages keep a query", with_queries, len(doc_ids))


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
