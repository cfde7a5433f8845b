"""Copy the queries and judgements of a split from ir_datasets or Hugging Face into files that `cort.split` reads.

Reads:  the queries and judgements
Writes: queries as BEIR .jsonl, judgements as TREC qrels, JSON of the files they came from, with their checksums
Usage:  python -m cort.import_split --irds beir/scifact/test --output-queries queries.jsonl --output-qrels qrels.tsv
            --output-sources sources.json
"""

import json
import logging
import sys

from cort.formats.artifacts import write_artifact
from cort.sources.opened import open_split, with_checksums
from cort.system import cli
from cort.system.errors import input_error
from cort.system.files import atomic_file
from cort.system.options import optional, options_class, required

log = logging.getLogger(__name__)


@options_class
class Options:
    """Options of this stage; one of the first two names the source."""

    irds: str | None = optional(None, "queries and judgements in ir_datasets", "NAME")
    hf: str | None = optional(None, "collection on Hugging Face, or in a folder of that layout", "NAME@COMMIT")
    part: str | None = optional(None, "with --hf, the name of its split", "NAME")
    output_queries: str = required("FILE", "BEIR .jsonl to write")
    output_qrels: str = required("FILE", "TREC qrels to write")
    output_sources: str = required("FILE", "JSON of the files that were read")


def stage(options: Options) -> None:
    """Copy queries and judgements."""
    if (options.irds is None) == (options.hf is None) or (options.hf is None) != (options.part is None):
        raise input_error("command line", "not one source", "--irds, or --hf with --part", "name one")
    split = open_split(options.irds, options.hf, options.part or "")
    counts = [0, 0]
    with atomic_file(options.output_queries) as queries, atomic_file(options.output_qrels) as qrels:
        # Judgements first: a name without any is refused before queries are read.
        with open(qrels, "w", encoding="utf-8", newline="\n") as file:
            for qrel in split.qrels():
                counts[1] += 1
                file.write(f"{qrel.query_id}\t0\t{qrel.doc_id}\t{qrel.relevance}\n")
        with open(queries, "w", encoding="utf-8", newline="\n") as file:
            for query in split.queries():
                counts[0] += 1
                file.write(json.dumps({"_id": query.id, "text": query.text}, ensure_ascii=False) + "\n")
    write_artifact(options.output_sources, with_checksums(split.files()))
    log.info("%d queries and %d judgements", *counts)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
