"""Measure how far a run stays within a reference run: RepBERT's consistency factor (section 4.4.3 and Figure 2).

C(f, n), equation 5, is the share of f's first n documents that are also among the reference's first 1,000, averaged
over the queries f answers. Where f has fewer than n documents for a query, the share is of those it has. A query that
the reference does not answer counts 0. RepBERT's reference is MS MARCO's official `top1000.dev.tsv`, the like of which
its re-ranker was trained on.

Reads:  the run f and the reference, both run.trec
Writes: consistency.json {"system", "split", "reference", "queries": those f answers, "depths": [n, ...],
        "consistency": [C(f, n), ...]}
Usage:  python -m cort.consistency --run repbert.trec --reference top1000.trec --reference-name top1000
            --depths 1 10 100 1000 --system repbert --split dev --output consistency.json
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats.ids import positions
from cort.formats.runs import Run, read_run
from cort.system import cli
from cort.system.errors import input_error
from cort.system.files import write_text

log = logging.getLogger(__name__)

REFERENCE_DEPTH = 1000


def consistency(run: Run, reference: Run, depths: Sequence[int], reference_depth: int = REFERENCE_DEPTH) -> list[float]:
    """Compute C(run, n) for each n of `depths`; an empty run has none (an error of the caller)."""
    inside = _is_inside(run, reference, reference_depth).astype(np.int64)
    sizes = np.diff(run.offsets)
    # counted[i] is the number of documents before position i of the whole run that the reference has too.
    counted = np.concatenate([[0], np.cumsum(inside)])
    starts = run.offsets[:-1]
    found = []
    for depth in depths:
        kept = np.minimum(sizes, depth)
        found.append(float(np.mean((counted[starts + kept] - counted[starts]) / kept)))
    return found


def _is_inside(run: Run, reference: Run, reference_depth: int) -> npt.NDArray[np.bool_]:
    """Whether each result of the run is among the first results of the reference for the same query."""
    numbers = {query_id: number for number, query_id in enumerate(reference.query_ids)}
    documents = pc.unique(reference.doc_ids)
    near = np.flatnonzero(reference.ranks() <= reference_depth)
    known = _pairs(reference, np.arange(len(reference)), documents)[near]
    asked = _pairs(run, np.array([numbers.get(query_id, -1) for query_id in run.query_ids], dtype=np.int64), documents)
    return np.isin(asked, known) & (asked >= 0)


def _pairs(run: Run, queries: npt.NDArray[np.int64], documents: pa.Array) -> npt.NDArray[np.int64]:
    """Give each result a number for its query and document; -1 where either is unknown.

    :param queries: one number per query of the run, -1 for an unknown one.
    """
    found, of_query = positions(run.doc_ids, documents), queries[run.query_numbers()]
    pairs: npt.NDArray[np.int64] = np.where((found < 0) | (of_query < 0), -1, of_query * len(documents) + found)
    return pairs


def build_parser() -> argparse.ArgumentParser:
    """Options of this stage."""
    parser = cli.make_parser("cort.consistency", __doc__)
    parser.add_argument("--run", required=True, metavar="TREC", help="the run f")
    parser.add_argument("--reference", required=True, metavar="TREC", help="the run it is compared with")
    parser.add_argument("--reference-name", required=True, metavar="NAME", help="written into the output")
    parser.add_argument("--depths", required=True, nargs="+", type=int, metavar="N", help="numbers of documents")
    parser.add_argument("--system", required=True, metavar="NAME", help="written into the output")
    parser.add_argument("--split", required=True, metavar="NAME", help="written into the output")
    parser.add_argument("--output", required=True, metavar="JSON")
    return parser


def stage(args: argparse.Namespace) -> None:
    """Read both runs, compare, write."""
    cli.check_depths(args.depths)
    run, reference = read_run(args.run), read_run(args.reference)
    for path, one in ((args.run, run), (args.reference, reference)):
        if not len(one):
            raise input_error(path, "an empty run", "at least one result", "build the run again or name another")
    values = consistency(run, reference, args.depths)
    summary = {
        "system": args.system,
        "split": args.split,
        "reference": args.reference_name,
        "queries": len(run),
        "depths": args.depths,
        "consistency": values,
    }
    write_text(args.output, json.dumps(summary, indent=2) + "\n")
    strange = len(set(run.query_ids) - set(reference.query_ids))
    log.info("%d queries, %d unknown to the reference; C from %.3f to %.3f", len(run), strange, values[0], values[-1])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())
