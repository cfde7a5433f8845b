"""Write a run as a submission file; refuse runs that would be rejected.

There are two formats: `msmarco`, the leaderboard's ``query_id TAB doc_id TAB rank``, and `trec`, a TREC run with a run
id. Both need 1 to 1,000 documents of the collection for every query of the split, each document once. Ranks count from
1 without gaps; the scores of a TREC run decrease strictly, so that trec_eval, which ignores ranks, sees the same order.
A run id has 1 to 25 letters, digits, `-` and `_`, as NIST's checker for the Deep Learning track requires. The
leaderboard's script accepts no rank above 1,000, only warns of a document ranked twice, and counts a missing query as
0; here, all three are refused.

Reads:  run.trec, queries.parquet, passages.parquet
Writes: the file, queries in the order of the split
Usage:  python -m cort.submission --run run.trec --queries queries.parquet --passages passages.parquet --form trec
            --run-id CoRT-standalone --output submission.trec
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

from cort.formats import tables
from cort.formats.ids import unknown_ids
from cort.formats.runs import Run, read_run, write_run
from cort.retrieval.documents import documents_of
from cort.settings.collection import Aggregation
from cort.system import cli
from cort.system.errors import input_error, shorten
from cort.system.files import atomic_file
from cort.system.options import optional, options_class, required

log = logging.getLogger(__name__)

MOST = 1000
RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,25}")


def check_run_id(form: str, run_id: str | None) -> None:
    """Refuse a run id that NIST's checker would reject, and any run id in the format of the leaderboard."""
    if (form == "trec") != (run_id is not None):
        found = "no run id" if run_id is None else f"a run id with --form {form}"
        raise input_error("--run-id", found, "one with --form trec, and only there", "give or remove it")
    if run_id is not None and not RUN_ID.fullmatch(run_id):
        raise input_error("--run-id", shorten(run_id), "1 to 25 letters, digits, - and _", "choose another run id")


def check_queries(run: Run, query_ids: Sequence[str], source: str) -> None:
    """Refuse a run that lacks a query of the split, answers other queries, or ranks too many documents."""
    answered = set(run.query_ids)
    missing = [query_id for query_id in query_ids if query_id not in answered]
    if missing:
        found = f"no document for query {shorten(missing[0])} ({len(missing)} such queries)"
        raise input_error(source, found, "results for every query of the split", "retrieve for all of them")
    unknown = sorted(answered - set(query_ids))
    if unknown:
        found = f"query {shorten(unknown[0])} ({len(unknown)} such queries)"
        raise input_error(source, found, "only queries of the split", "name the run and the queries of one split")
    sizes = np.diff(run.offsets)
    if sizes.max(initial=0) > MOST:
        first = int(np.argmax(sizes))
        found = f"{sizes[first]} documents for query {shorten(run.query_ids[first])}"
        raise input_error(source, found, f"at most {MOST}", "retrieve or keep fewer (the setting depth)")


def check_documents(run: Run, doc_ids: pa.ChunkedArray, source: str) -> None:
    """Refuse a run that ranks documents of another collection."""
    unknown = unknown_ids(run.doc_ids, doc_ids)
    if len(unknown):
        found = f"document {shorten(unknown[0].as_py())} ({len(unknown)} such results)"
        raise input_error(source, found, "only documents of the collection", "name a run over this collection")


@options_class
class Options(Aggregation):
    """Options of this stage."""

    run: str = required("TREC", "the run to submit")
    queries: str = required("PARQUET", "all queries of the split")
    passages: str = required("PARQUET", "the collection")
    form: Literal["msmarco", "trec"] = required(help="of the file")
    run_id: str | None = optional(None, "with --form trec: last field of each line", "ID")
    output: str = required("FILE")


def stage(options: Options) -> None:
    """Check the run, and write its rankings in the order of the queries."""
    check_run_id(options.form, options.run_id)
    run = read_run(options.run)
    query_ids = tables.read_column(options.queries, tables.QUERIES, "query_id").to_pylist()
    check_queries(run, query_ids, options.run)
    doc_ids = tables.read_column(options.passages, tables.PASSAGES, "doc_id")
    check_documents(run, documents_of(doc_ids, options.aggregate), options.run)
    place = {query_id: position for position, query_id in enumerate(run.query_ids)}
    rankings = (run[place[query_id]] for query_id in query_ids)
    if options.run_id is not None:
        write_run(options.output, rankings, options.run_id)
    else:
        with atomic_file(options.output) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as handle:
            for query_id, doc_ids, _ in rankings:
                handle.writelines(f"{query_id}\t{doc_id}\t{rank}\n" for rank, doc_id in enumerate(doc_ids, start=1))
    log.info("%d queries, %d results", len(run), len(run.doc_ids))


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
