"""Copy the queries and judgements of a split from ir_datasets or Hugging Face into files that `cort.split` reads.

Reads:  the queries and judgements
Writes: queries as BEIR .jsonl, judgements as TREC qrels, JSON of the files they came from, with their checksums
Usage:  python -m cort.import_split --irds beir/scifact/test --output-queries queries.jsonl --output-qrels qrels.tsv
            --output-sources sources.json
"""

import sys

from cort.config.collection import HubCollection, IrSplit
from cort.formats.artifacts import write_artifact
from cort.formats.judgements import write_judged
from cort.runtime import cli
from cort.runtime.checksums import describe_inputs
from cort.runtime.errors import input_error
from cort.runtime.sections import AnyFile, Maybe, Section, Text, same_as
from cort.sources import hugging_face, irds


class Options(Section):
    """Options of this stage; one of the first two names the source."""

    irds: Maybe[Text] = same_as(IrSplit, "irds", default=None)
    hf: Maybe[Text] = same_as(HubCollection, "hf", default=None)
    part: Maybe[Text] = None
    """With --hf, the name of its split, or SOURCE#SPLIT if another dataset has the judgements."""
    output_queries: AnyFile
    """BEIR .jsonl to write."""
    output_qrels: AnyFile
    """TREC qrels to write."""
    output_sources: AnyFile
    """JSON of the files that were read."""


def stage(options: Options) -> None:
    """Copy queries and judgements."""
    if (options.irds is None) == (options.hf is None) or (options.hf is None) != (options.part is None):
        raise input_error("command line", "not one source", "--irds, or --hf with --part", "name one")
    outputs = options.output_queries, options.output_qrels
    if name := options.irds:
        write_judged(*outputs, irds.iter_queries(name), irds.iter_qrels(name))
        inputs = irds.describe(name, ("queries", "qrels"))
    else:
        source, part = str(options.hf), str(options.part)
        write_judged(*outputs, hugging_face.iter_queries(source), hugging_face.iter_qrels(source, part))
        inputs = describe_inputs(hugging_face.files(source, part))
    write_artifact(options.output_sources, {"inputs": inputs})


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
