"""Measure how far a run stays within a reference run: RepBERT's consistency factor (section 4.4.3 and Figure 2).

C(f, n), equation 5, is the share of f's top n documents that are also in the reference's top 1,000, averaged over the
queries that f answers. If f has fewer than n documents for a query, the share is of those it has. A query that the
reference does not answer counts 0. RepBERT's reference is MS MARCO's official `top1000.dev.tsv`, whose training
counterpart its re-ranker was trained on.

Reads:  the run f and the reference, both run.trec
Writes: consistency.json (`cort.evaluation.depths.Consistency`)
Usage:  python -m cort.consistency --run repbert.trec --reference top1000.trec --reference-name top1000
            --depths 1 10 100 1000 --system repbert --split dev --output consistency.json
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass

from cort.evaluation.depths import Consistency, consistency
from cort.formats.artifacts import write_artifact
from cort.formats.runs import read_run, refuse_other_queries
from cort.system import cli
from cort.system.options import required

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of this stage."""

    run: str = required("TREC", "the run f")
    reference: str = required("TREC", "the run it is compared with")
    reference_name: str = required("NAME", "written into the output")
    depths: tuple[int, ...] = required("N", "values of n")
    system: str = required("NAME", "written into the output")
    split: str = required("NAME", "written into the output")
    output: str = required("JSON")


def stage(options: Options) -> None:
    """Read both runs, compare, write."""
    depths = list(options.depths)
    cli.check_depths(depths)
    run, reference = read_run(options.run), read_run(options.reference)
    refuse_other_queries(options.run, run, options.reference, reference)
    values = consistency(run, reference, depths)
    names = options.system, options.split, options.reference_name
    write_artifact(options.output, Consistency(*names, len(run), depths, [*values]))
    missing = len(set(run.query_ids) - set(reference.query_ids))
    log.info("%d queries, %d not in the reference; C from %.3f to %.3f", len(run), missing, values[0], values[-1])


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
