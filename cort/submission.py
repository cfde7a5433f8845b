"""Write a run as a submission file; refuse runs that would be rejected.

There are two formats: a TREC run, if it has a run id, or else the MS MARCO leaderboard's ``query_id TAB doc_id TAB
rank``. Both need 1 to 1,000 documents for every query of the split, and leave out other queries. Ranks count from 1
without gaps; the scores of a TREC run decrease strictly, so that trec_eval, which ignores ranks, sees the same order.
A run id has 1 to 25 letters, digits, `-` and `_`, as NIST's checker for the Deep Learning track requires. The
leaderboard's script accepts no rank above 1,000, and counts a missing query as 0; here, both are refused.

Reads:  run.trec, queries.parquet
Writes: the file, queries in the order of the split
Usage:  python -m cort.submission --run run.trec --queries queries.parquet --run-id CoRT-standalone
            --output submission.trec
"""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import numpy as np
from pydantic import Field

from cort.config.evaluation import RUN_ID, SUBMITTED, TrecRun
from cort.formats import tables
from cort.formats.runs import read_run, write_run
from cort.runtime import cli
from cort.runtime.errors import input_error, shorten
from cort.runtime.files import atomic_file
from cort.runtime.sections import AnyFile, Maybe, ParquetFile, Section, TrecFile, same_as

log = logging.getLogger(__name__)


class Options(Section):
    """Options of this stage."""

    run: TrecFile
    """The run to submit."""
    queries: ParquetFile
    """All queries of the split."""
    run_id: Maybe[Annotated[str, Field(pattern=RUN_ID)]] = same_as(TrecRun, "run_id")
    output: AnyFile


def stage(options: Options) -> None:
    """Check the run, and write its rankings in the order of the queries."""
    run = read_run(options.run)
    query_ids = tables.read_column(options.queries, tables.QUERIES, "query_id").to_pylist()
    place = {query_id: position for position, query_id in enumerate(run.query_ids)}
    if missing := [query_id for query_id in query_ids if query_id not in place]:
        found = f"no document for query {shorten(missing[0])} ({len(missing)} such queries)"
        raise input_error(options.run, found, "results for every query of the split", "retrieve for all of them")
    sizes = np.diff(run.offsets)
    if sizes.max(initial=0) > SUBMITTED:
        first = int(np.argmax(sizes))
        found = f"{sizes[first]} documents for query {shorten(run.query_ids[first])}"
        raise input_error(options.run, found, f"at most {SUBMITTED}", "retrieve or keep fewer (the setting depth)")
    rankings = (run[place[query_id]] for query_id in query_ids)
    if options.run_id is not None:
        write_run(options.output, rankings, options.run_id)
    else:
        with atomic_file(options.output) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as handle:
            for query_id, doc_ids, _ in rankings:
                handle.writelines(f"{query_id}\t{doc_id}\t{rank}\n" for rank, doc_id in enumerate(doc_ids, start=1))
    log.info("%d queries, %d results", len(query_ids), len(run.doc_ids))


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
