"""Read a collection from files, a folder, ir_datasets or Hugging Face, and write its passages as a table.

Reads:  files of passages as they are (cort/formats/passages.py), or documents, which `--words` divides into passages
Writes: passages.parquet with doc_id and text, in the order of the source; ids occur once. JSON of what was read, left
        out or empty; JSON of the files it came from, with their checksums; with --generate, a table of queries and the
        passages below them
Usage:  python -m cort.collection --passages collection.tsv --output passages.parquet
        python -m cort.collection --folder docs --words 150 --overlap 50 --headings True
            --output passages.parquet --output-counts imported.json --output-sources sources.json
"""

import logging
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cort.config.collection import Fields, Folder, HubCollection, IrCollection, Passages
from cort.formats.artifacts import write_artifact
from cort.formats.passages import REPEATED, iter_passage_batches, write_passages
from cort.formats.tables import PASSAGES, open_writer
from cort.runtime import cli
from cort.runtime.checksums import describe_inputs
from cort.runtime.errors import input_error
from cort.runtime.sections import AnyFile, FolderPath, Maybe, Several, Text, Threads, same_as
from cort.sources.files import iter_file_documents
from cort.sources.folder import Ids
from cort.sources.headed import Division, Origin
from cort.sources.opened import Source, open_source

log = logging.getLogger(__name__)

SOURCES = ("passages", "documents", "folder", "irds", "hf")


class Options(Fields):
    """Options of this stage; one of the first five names the source."""

    passages: Several[AnyFile] = ()
    """Files of passages."""
    documents: Several[AnyFile] = ()
    """Files of documents, in the same formats."""
    folder: Maybe[FolderPath] = None
    """Folder of documents."""
    ids: Maybe[Ids] = same_as(Folder, "ids")
    irds: Maybe[Text] = same_as(IrCollection, "irds", default=None)
    hf: Maybe[Text] = same_as(HubCollection, "hf", default=None)
    words: Maybe[int] = same_as(Passages, "words", default=None)
    """Divide documents into passages of at most N words."""
    overlap: int = same_as(Passages, "overlap")
    headings: bool = same_as(Passages, "headings")
    generate: Maybe[Origin] = None
    """Leave out of the passages what becomes a query."""
    output_candidates: Maybe[AnyFile] = None
    """With --generate, parquet table of queries to write."""
    output: AnyFile
    """Parquet table to write."""
    output_counts: Maybe[AnyFile] = None
    """JSON to write, of what was read and left out."""
    output_sources: Maybe[AnyFile] = None
    """JSON to write, of the files that were read."""
    threads: Threads = 1
    """Processes that read the files of a folder, and divide documents."""


def apart(
    batches: Iterable[pa.RecordBatch], source: Source, writer: pq.ParquetWriter | None
) -> Iterator[pa.RecordBatch]:
    """Stream the passages as they are indexed, and write the queries above them, each with the id of a passage.

    :raises InputError: at the end, if there are no passages.
    """
    passages = 0
    for batch in batches:
        above = batch["queries"]
        if writer:
            columns = [batch["doc_id"].take(pc.list_parent_indices(above)), pc.list_flatten(above)]
            writer.write_batch(pa.record_batch(columns, schema=PASSAGES))
        passages += len(batch)
        yield batch.select(PASSAGES.names)
    if not passages:
        skipped = ", ".join(f"{count} {reason}" for reason, count in source.skipped.items())
        found = f"no documents (skipped: {skipped})" if skipped else "no documents"
        raise input_error(source.name, found, "one or more", "name another source")


def _source(options: Options, fields: dict[str, Any]) -> Source:
    named = [kind for kind in SOURCES if getattr(options, kind)]
    if len(named) != 1:
        found = " and ".join(f"--{kind}" for kind in named) or "no source"
        raise input_error("command line", found, f"one of {', '.join(f'--{kind}' for kind in SOURCES)}", "name one")
    if paths := options.passages or options.documents:
        doubts = Counter[str]()
        documents = iter_file_documents(paths, fields, doubts)
        return Source(", ".join(paths), documents, lambda: describe_inputs(paths), doubts)
    return open_source(named[0], getattr(options, named[0]), fields, options.ids, options.threads)


def stage(options: Options) -> None:
    """Read the documents and write their passages."""
    fields = {name: value for name in ("id", "title", "text") if (value := getattr(options, name))}
    source, counts = _source(options, fields), dict.fromkeys(("documents", "documents without text", "passages"), 0)
    if options.passages:
        parts = ((path, iter_passage_batches(path, fields, source.skipped)) for path in options.passages)
        counts |= write_passages(parts, options.output)
        counts["documents"] = counts["passages"] + counts.get(REPEATED, 0)
    else:
        how = Division(options.generate, options.words, options.overlap, options.headings)
        table = open_writer(options.output_candidates, PASSAGES) if options.output_candidates else nullcontext()
        with table as writer:
            batches = how.batches(source.documents, options.threads, counts)
            written = write_passages([(source.name, apart(batches, source, writer))], options.output)
        counts["passages"] = written["passages"]
        counts |= {name: number for name, number in written.items() if name == REPEATED}
    counts |= {
        reason if reason.startswith("rows") else f"files: {reason}": number
        for reason, number in sorted(source.skipped.items())
    }
    counts |= source.left_out()
    if options.output_counts:
        write_artifact(options.output_counts, counts)
    if options.output_sources:
        write_artifact(options.output_sources, {"inputs": source.inputs()})
    log.info("%s: %s", source.name, ", ".join(f"{name} {count}" for name, count in counts.items()))


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
