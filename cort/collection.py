"""Turn a passage collection as published into the table that every other stage reads.

Reads:  passages as MS MARCO .tsv or .txt, or BEIR .jsonl, plain or .gz (see cort/formats/raw.py)
Writes: passages.parquet with doc_id and text, in the order of the file; ids occur once
Usage:  python -m cort.collection --passages collection.tsv --output passages.parquet
"""

import logging
import sys

from cort.formats.passages import write_passages
from cort.formats.raw import iter_passage_batches
from cort.system import cli
from cort.system.options import options_class, required

log = logging.getLogger(__name__)


@options_class
class Options:
    """Options of this stage."""

    passages: str = required("FILE", "MS MARCO .tsv or .txt, or BEIR .jsonl, plain or .gz")
    output: str = required("FILE", "parquet table to write")


def stage(options: Options) -> None:
    """Read the passages and write them as a table."""
    count = write_passages(options.passages, iter_passage_batches(options.passages), options.output)
    log.info("%d passages from %s", count, options.passages)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
