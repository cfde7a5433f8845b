"""Read documents from ir_datasets, Hugging Face, a folder or a file, and divide them into passages.

Reads:  the documents
Writes: passages.parquet with doc_id and text, in the order of the source; JSON of what was read and left out; JSON of
        the files it came from, with their checksums
Usage:  python -m cort.import_collection --folder docs --words 150 --overlap 50 --headings True
            --output passages.parquet --output-counts imported.json --output-sources sources.json
"""

import logging
import sys
from collections.abc import Iterator

from cort.formats.artifacts import write_artifact
from cort.formats.lines import iter_record_batches
from cort.formats.passages import write_passages
from cort.formats.raw import EMPTY
from cort.formats.records import Text
from cort.formats.tables import PASSAGES
from cort.settings.collection import Fields, Passages
from cort.settings.config import SOURCES
from cort.sources.opened import Source, open_source, with_checksums
from cort.sources.passages import divide
from cort.system import cli
from cort.system.errors import input_error
from cort.system.options import optional, options_class, required, thread_count

log = logging.getLogger(__name__)


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
    output: str = required("FILE", "parquet table to write")
    output_counts: str = required("FILE", "JSON of what was read and left out")
    output_sources: str = required("FILE", "JSON of the files that were read")
    threads: int = thread_count(help="processes that parse the files of a folder")


def passages_of(source: Source, options: Options, counts: dict[str, int]) -> Iterator[tuple[int, Text]]:
    """Stream the passages with the numbers of their documents, and count both."""
    for number, document in enumerate(source.documents(), 1):
        counts["documents"] += 1
        if options.words is None:
            text = document.text.strip()
            counts["documents without text"] += not text
            yield number, Text(document.doc_id, text or EMPTY)
            continue
        before = counts["passages"]
        for passage in divide(document, options.words, options.overlap, options.headings):
            counts["passages"] += 1
            yield number, passage
        counts["documents without text"] += counts["passages"] == before
    if not counts["documents"]:
        skipped = ", ".join(f"{count} {reason}" for reason, count in source.skipped.items())
        found = f"no documents (skipped: {skipped})" if skipped else "no documents"
        raise input_error(source.name, found, "one or more", "name another source")


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
    batches = iter_record_batches(passages_of(source, options, counts), PASSAGES)
    counts["passages"] = write_passages(source.name, batches, options.output)
    counts |= {f"files: {reason}": number for reason, number in sorted(source.skipped.items())}
    write_artifact(options.output_counts, counts)
    write_artifact(options.output_sources, with_checksums(source.files()))
    log.info("%s", ", ".join(f"{name} {count}" for name, count in counts.items()))


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
