"""Turn texts into token ids once per tokenizer, for training, encoding and re-ranking.

Reads:  a table of passages or queries, and the tokenizer of a model folder
Writes: a token cache (Arrow IPC), and how many texts have each length (JSON)
Usage:  python -m cort.tokenize --tokenizer base_models/small --texts passages.parquet --output passages.arrow
            --output-lengths passages.lengths.json
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from cort.config.models import Cleaned
from cort.formats import tables
from cort.formats.cleaning import Form
from cort.formats.shards import Tokens, write_tokens
from cort.models.layout import read_prompts
from cort.models.tokenizer import encode, fingerprint, load_tokenizer
from cort.models.truncation import write_lengths
from cort.runtime import cli
from cort.runtime.background import ahead
from cort.runtime.progress import track
from cort.runtime.sections import ArrowFile, FolderPath, JsonFile, Maybe, ParquetFile, Section, Threads, same_as

if TYPE_CHECKING:
    from tokenizers import Encoding

log = logging.getLogger(__name__)

ROWS = 8_192


def schema_of(texts: str) -> pa.Schema:
    """Tell whether a table has passages or queries."""
    return tables.PASSAGES if tables.has_column(texts, "doc_id") else tables.QUERIES


def token_batches(folder: str, texts: str, form: Form) -> Iterator[tuple[pa.Array, pa.ListArray]]:
    """Yield (ids, token ids without special tokens) in the order of the table; a prompt may precede each text."""
    tokenizer, prompts, schema = load_tokenizer(folder), read_prompts(folder), schema_of(texts)
    around = prompts["passage" if schema is tables.PASSAGES else "query"]

    def encoded() -> Iterator[tuple[pa.Array, list[Encoding]]]:
        for batch in tables.iter_batches(texts, schema, ROWS):
            yield batch[schema.names[0]], encode(folder, tokenizer, around, batch["text"], form)

    # While all threads tokenize a batch, the one before is written.
    batches = ahead(encoded(), depth=1)
    for ids, encodings in track(batches, tables.count_rows(texts, schema), "texts", size=lambda one: len(one[0])):
        yield ids, pa.array([encoding.ids for encoding in encodings], pa.list_(pa.int32()))


class Options(Section):
    """Options of this stage."""

    tokenizer: FolderPath
    """Model folder with tokenizer.json."""
    texts: ParquetFile
    """Passages or queries."""
    cleaning: Form = same_as(Cleaned, "cleaning")
    """How the texts are cleaned first."""
    threads: Threads = 1
    output: ArrowFile
    output_lengths: Maybe[JsonFile] = None
    """How many texts have each length."""


def stage(options: Options) -> None:
    """Tokenize the texts and write their token ids."""
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if options.threads > 1 else "false"
    os.environ["RAYON_NUM_THREADS"] = str(options.threads)
    batches, started = token_batches(options.tokenizer, options.texts, options.cleaning), time.monotonic()
    rows = write_tokens(options.output, batches, fingerprint(options.tokenizer))
    speed = rows / options.threads / (time.monotonic() - started)
    lengths = Tokens(options.output).lengths
    if options.output_lengths:
        write_lengths(options.output_lengths, lengths)
    mean = lengths.sum() / max(rows, 1)
    log.info("%d texts, %d tokens, %.1f on average, %.0f texts per second and core", rows, lengths.sum(), mean, speed)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
