"""Read documents from ir_datasets, Hugging Face, a folder or a file, and divide them into passages.

Reads:  the documents
Writes: passages.parquet with doc_id and text, in the order of the source; JSON of what was read and left out; JSON of
        the files it came from, with their checksums; with --generate, a table of queries and the passages below them
Usage:  python -m cort.import_collection --folder docs --words 150 --overlap 50 --headings True
            --output passages.parquet --output-counts imported.json --output-sources sources.json
"""

import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cort.formats.artifacts import write_artifact
from cort.formats.lines import iter_record_batches
from cort.formats.passages import write_passages
from cort.formats.tables import PASSAGES, open_writer
from cort.settings.collection import Fields, Passages
from cort.settings.config import SOURCES
from cort.sources.headed import REMEDIES, Headed, Origin, headed_passages
from cort.sources.opened import Source, open_source, with_checksums
from cort.system import cli
from cort.system.errors import input_error
from cort.system.options import optional, options_class, required, thread_count

log = logging.getLogger(__name__)

HEADED = pa.schema([*PASSAGES, ("queries", pa.list_(pa.string()))])


@options_class
class Options(Fields):
    """Options of this stage; one of the first four names the source."""

    documents: str | None = optional(None, "file of documents, in the formats of cort.collection", "FILE")
    folder: str | None = optional(None, "folder of documents", "FOLDER")
    irds: str | None = optional(None, "collection in ir_datasets", "NAME")
    hf: str | None = optional(None, "collection on Hugging Face, or in a folder of that layout", "NAME@COMMIT")
    words: int | None = optional(None, "divide documents into passages of at most N words", "N")
    overlap: int = optional(Passages.overlap, "words that a passage repeats at most from the one before", "N")
    headings: bool = optional(Passages.headings, "begin each passage with title and headings")
    generate: Origin | None = optional(None, "leave out of the passages what becomes a query")
    output_candidates: str | None = optional(None, "with --generate, parquet table of queries to write", "FILE")
    output: str = required("FILE", "parquet table to write")
    output_counts: str = required("FILE", "JSON of what was read and left out")
    output_sources: str = required("FILE", "JSON of the files that were read")
    threads: int = thread_count(help="processes that parse the files of a folder")


def passages_of(source: Source, options: Options, counts: dict[str, int]) -> Iterator[tuple[int, Headed]]:
    """Stream the passages with the numbers of their documents, which are counted."""
    for number, document in enumerate(source.documents(), 1):
        counts["documents"] += 1
        counts["documents without text"] += not document.text.strip()
        for passage in headed_passages(document, options.generate, options.words, options.overlap, options.headings):
            yield number, passage
    if not counts["documents"]:
        skipped = ", ".join(f"{count} {reason}" for reason, count in source.skipped.items())
        found = f"no documents (skipped: {skipped})" if skipped else "no documents"
        raise input_error(source.name, found, "one or more", "name another source")


def apart(
    batches: Iterable[pa.RecordBatch], source: Source, origin: Origin | None, writer: pq.ParquetWriter | None
) -> Iterator[pa.RecordBatch]:
    """Stream the passages as they are indexed, and write the queries above them, each with the id of a passage.

    :raises InputError: at the end, if there is none, though queries are to be generated.
    """
    written = 0
    for batch in batches:
        queries = batch["queries"]
        if writer:
            columns = [batch["doc_id"].take(pc.list_parent_indices(queries)), pc.list_flatten(queries)]
            writer.write_batch(pa.record_batch(columns, schema=PASSAGES))
            written += len(columns[0])
        yield batch.select(PASSAGES.names)
    if origin and not written:
        raise input_error(source.name, f"no {origin} with text below them", "some", REMEDIES[origin])


def _named(options: Options) -> tuple[str, str]:
    """Return the kind and the name of the source."""
    named = [(kind, name) for kind in SOURCES if (name := getattr(options, kind)) is not None]
    if len(named) != 1:
        found = " and ".join(f"--{kind}" for kind, _ in named) or "no source"
        raise input_error("command line", found, f"one of {', '.join(f'--{kind}' for kind in SOURCES)}", "name one")
    return named[0]


def stage(options: Options) -> None:
    """Read the documents and write their passages."""
    fields = {name: value for name in ("id", "title", "text") if (value := getattr(options, name)) is not None}
    source = open_source(*_named(options), fields, options.threads)
    counts: dict[str, int] = {"documents": 0, "documents without text": 0, "passages": 0}
    table = open_writer(options.output_candidates, PASSAGES) if options.output_candidates else nullcontext()
    with table as writer:
        batches = iter_record_batches(passages_of(source, options, counts), HEADED)
        passages = apart(batches, source, options.generate, writer)
        counts["passages"] = write_passages(source.name, passages, options.output)
    counts |= {f"files: {reason}": number for reason, number in sorted(source.skipped.items())}
    write_artifact(options.output_counts, counts)
    write_artifact(options.output_sources, with_checksums(source.files()))
    log.info("%s", ", ".join(f"{name} {count}" for name, count in counts.items()))


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
