"""Turn a run of passages into one of documents (`cort.retrieval.documents`), which is measured in its place.

Reads:  run.trec, with passages
Writes: run.trec, with documents by (-score, doc_id)
Usage:  python -m cort.aggregate --run passages.trec --aggregate max --output documents.trec
"""

import logging
import sys

from cort.config.collection import Aggregation
from cort.formats.runs import read_run, tag_of, write_run
from cort.retrieval.documents import as_documents
from cort.runtime import cli
from cort.runtime.sections import TrecFile

log = logging.getLogger(__name__)


class Options(Aggregation):
    """Options of this stage."""

    run: TrecFile
    """The run of passages."""
    output: TrecFile


def stage(options: Options) -> None:
    """Read, aggregate and write."""
    run = read_run(options.run)
    lines = write_run(options.output, as_documents(run, options.aggregate), tag_of(options.run) or "empty")
    log.info("%d passages of %d documents", len(run.doc_ids), lines)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
