"""Turn texts into token ids once per tokenizer; training, encoding and re-ranking read the ids.

Reads a passages or queries table and a model folder's tokenizer; writes a token cache (Arrow IPC).

Usage: python -m cort.tokenize --tokenizer base_models/small --texts passages.parquet --output passages.arrow
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from cort.formats import tables, tokens
from cort.formats.cleaning import FORMS, convert
from cort.models.tokenizer import fingerprint, load_tokenizer
from cort.system import cli
from cort.system.progress import track

log = logging.getLogger(__name__)

ROWS = 8_192


def schema_of(path: str) -> pa.Schema:
    """Tell a passages table from a queries table by its first column."""
    return tables.PASSAGES if "doc_id" in pq.read_schema(path).names else tables.QUERIES


def token_batches(folder: str, texts: str, form: str) -> Iterator[tuple[pa.Array, list[list[int]]]]:
    """Yield (ids, token ids without special tokens) in the order of the table."""
    tokenizer = load_tokenizer(folder)
    schema = schema_of(texts)
    total = -(-tables.count_rows(texts, schema) // ROWS)
    for batch in track(tables.iter_batches(texts, schema, ROWS), total, f"batches of {ROWS} texts"):
        converted = convert(batch["text"], form).to_pylist()
        encodings = tokenizer.encode_batch_fast(converted, add_special_tokens=False)
        yield batch[schema.names[0]], [encoding.ids for encoding in encodings]


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = cli.make_parser("cort.tokenize", __doc__)
    parser.add_argument("--tokenizer", required=True, metavar="FOLDER", help="model folder with tokenizer.json")
    parser.add_argument("--texts", required=True, metavar="PARQUET", help="passages or queries")
    parser.add_argument("--cleaning", choices=FORMS, default="raw", help="what is done to the texts first")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", required=True, metavar="ARROW")
    return parser


def stage(args: argparse.Namespace) -> None:
    """Tokenize and write."""
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if args.threads > 1 else "false"
    os.environ["RAYON_NUM_THREADS"] = str(args.threads)
    batches = token_batches(args.tokenizer, args.texts, args.cleaning)
    rows = tokens.write_tokens(args.output, batches, fingerprint(args.tokenizer))
    cache = tokens.Tokens(args.output)
    log.info("%d texts, %d tokens, %.1f on average", rows, cache.lengths.sum(), cache.lengths.sum() / max(rows, 1))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())
