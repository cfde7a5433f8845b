"""Turn texts into token ids once per tokenizer, for training, encoding and re-ranking.

With --shard, only a part of the texts; with --shards, what such jobs wrote is joined. The bytes do not depend on the
number of shards.

Reads:  a table of passages or queries, and the tokenizer of a model folder; with --shards, all shards
Writes: a token cache (Arrow IPC)
Usage:  python -m cort.tokenize --tokenizer base_models/small --texts passages.parquet --output passages.arrow
        python -m cort.tokenize --tokenizer base_models/small --texts passages.parquet --shard 1-of-2 --output 1.arrow
        python -m cort.tokenize --tokenizer base_models/small --texts passages.parquet --shards 1.arrow 2.arrow
            --output passages.arrow
"""

import logging
import os
import sys
from collections.abc import Iterator
from itertools import zip_longest

import pyarrow as pa

from cort.formats import tables
from cort.formats.cleaning import Form, convert
from cort.formats.shards import TOKENS, Tokens, shard_range, write_tokens
from cort.models.layout import read_prompts
from cort.models.tokenizer import fingerprint, load_tokenizer, refusing
from cort.settings.models import BaseModel
from cort.system import cli
from cort.system.errors import input_error
from cort.system.options import optional, options_class, required, thread_count
from cort.system.progress import track

log = logging.getLogger(__name__)

ROWS = 8_192


def schema_of(texts: str) -> pa.Schema:
    """Tell whether a table has passages or queries."""
    return tables.PASSAGES if tables.has_column(texts, "doc_id") else tables.QUERIES


def token_batches(
    folder: str, texts: str, form: Form, shard: str = "1-of-1"
) -> Iterator[tuple[pa.Array, list[list[int]]]]:
    """Yield (ids, token ids without special tokens) in the order of the table; a prompt may precede each text.

    :param shard: "i-of-n", complete row groups of the table, which are a multiple of `ROWS`.
    """
    tokenizer, prompts, schema = load_tokenizer(folder), read_prompts(folder), schema_of(texts)
    before, after = prompts["passage" if schema is tables.PASSAGES else "query"]
    batches = tables.iter_batches(texts, schema, ROWS, lambda groups: range(*shard_range(groups, shard, "--shard")))
    total = -(-tables.count_rows(texts, schema) // ROWS) if shard == "1-of-1" else None
    for batch in track(batches, total, f"batches of {ROWS} texts"):
        converted = [f"{before}{text}{after}" for text in convert(batch["text"], form).to_pylist()]
        with refusing(folder):
            encodings = tokenizer.encode_batch_fast(converted, add_special_tokens=False)
        yield batch[schema.names[0]], [encoding.ids for encoding in encodings]


def joined(options: "Options") -> Iterator[tuple[pa.Array, pa.ListArray]]:
    """Yield the batches of all shards.

    :raises InputError: if they are not those of the texts, in order.
    """
    schema, tokenizer = schema_of(options.texts), fingerprint(options.tokenizer)
    batches = (batch for path in options.shards for batch in Tokens(path, tokenizer).batches())
    expected = tables.iter_batches(options.texts, pa.schema([schema[0]]), ROWS)
    for own, texts in zip_longest(batches, expected):
        if own is None or texts is None or not own[0].equals(texts[0]):
            source, found = ", ".join(options.shards), "tokens of other texts, or in another order"
            raise input_error(source, found, f"all shards of {options.texts}", TOKENS.again())
        yield own


@options_class
class Options:
    """Options of this stage."""

    tokenizer: str = required("FOLDER", "model folder with tokenizer.json")
    texts: str = required("PARQUET", "passages or queries")
    cleaning: Form = optional(BaseModel.cleaning, "how the texts are cleaned first")
    shard: str = optional("1-of-1", "tokenize this part of the texts", "I-of-N")
    shards: tuple[str, ...] = optional((), "join these instead, all shards in order", "ARROW")
    threads: int = thread_count()
    output: str = required("ARROW")


def stage(options: Options) -> None:
    """Tokenize the texts and write their token ids."""
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if options.threads > 1 else "false"
    os.environ["RAYON_NUM_THREADS"] = str(options.threads)
    named = (options.tokenizer, options.texts, options.cleaning, options.shard)
    batches = joined(options) if options.shards else token_batches(*named)
    rows = write_tokens(options.output, batches, fingerprint(options.tokenizer))
    cache = Tokens(options.output)
    log.info("%d texts, %d tokens, %.1f on average", rows, cache.lengths.sum(), cache.lengths.sum() / max(rows, 1))


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
