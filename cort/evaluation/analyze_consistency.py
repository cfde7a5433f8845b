"""Measure how far a run stays within a reference run: RepBERT's consistency factor (section 4.4.3 and Figure 2).

C(f, n), equation 5, is the share of f's top n documents that are also in the reference's top 1,000, averaged over
the queries that f answers. If f has fewer than n documents for a query, the share is taken over those. A query that
the reference does not answer counts as 0. RepBERT's reference is MS MARCO's official `top1000.dev.tsv`; its
re-ranker was trained on the training counterpart of that file.

Reads:  the run f and the reference, both run.trec
Writes: consistency.json (`cort.evaluation.curves.Consistency`)
"""

import logging

from cort.config import evaluation
from cort.config.fields import Cutoff
from cort.evaluation.curves import Consistency, consistency
from cort.evaluation.options import SplitOptions
from cort.formats.artifacts import write_artifact
from cort.formats.runs import read_run, refuse_other_queries
from cort.runtime.sections import Several, Text, TrecFile, same_as

log = logging.getLogger(__name__)


class Options(SplitOptions):
    """Options of this stage."""

    run: TrecFile
    """The run f."""
    reference: TrecFile
    """The run it is compared with."""
    reference_name: Text
    """Written into the output."""
    depths: Several[Cutoff] = same_as(evaluation.Consistency, "depths", required=True)
    system: Text
    """Written into the output."""


def stage(options: Options) -> None:
    """Compare both runs at every depth."""
    depths = list(options.depths)
    run, reference = read_run(options.run), read_run(options.reference)
    refuse_other_queries(options.run, run, options.reference, reference)
    values = consistency(run, reference, depths)
    names = options.system, options.split, options.reference_name
    write_artifact(options.output, Consistency(*names, len(run), depths, [*values]))
    missing = len(set(run.query_ids) - set(reference.query_ids))
    log.info("%d queries, %d not in the reference; C from %.3f to %.3f", len(run), missing, values[0], values[-1])
