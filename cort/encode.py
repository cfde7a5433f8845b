"""Encode passages or queries to unit vectors, one shard of the blocks at a time (CoRT, section 3.4).

The texts are cut into blocks of fixed size and a shard is a run of whole blocks, so the vectors do not depend on the
number of shards. Normalised in single precision, so that an inner product ranks as the angular similarity does.

Reads an encoder folder and a token cache; writes an embedding shard (Arrow IPC).

Usage: python -m cort.encode --model encoders/cort/best --tokens passages.arrow --kind passage --shard 1-of-4
              --output passages.1-of-4.arrow
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cort import cli
from cort.devices import lease
from cort.errors import input_error
from cort.formats.embeddings import STORAGE, Matrix, write_shard
from cort.formats.tokens import Tokens
from cort.progress import track
from cort.tokenization import fingerprint

if TYPE_CHECKING:
    import torch

    from cort.encoder import Encoder, Texts

log = logging.getLogger(__name__)

BLOCK = 4_096
# Part of the result, as padding changes the last bits: not a setting.
TOKEN_BUDGET = 8_192


def shard_blocks(rows: int, shard: str) -> list[tuple[int, int]]:
    """Return the row ranges of the blocks of shard "i-of-n": whole blocks, in order, as even as possible."""
    match = re.fullmatch(r"(\d+)-of-(\d+)", shard)
    number, shards = (int(part) for part in match.groups()) if match else (0, 0)
    if not 1 <= number <= shards:
        raise input_error("--shard", repr(shard), "i-of-n with 1 <= i <= n", "mend it")
    blocks = -(-rows // BLOCK)
    first, last = blocks * (number - 1) // shards, blocks * number // shards
    return [(block * BLOCK, min((block + 1) * BLOCK, rows)) for block in range(first, last)]


def encode_blocks(
    encoder: Encoder, texts: Texts, blocks: list[tuple[int, int]], device: torch.device, precision: str
) -> Iterator[tuple[pa.Array, Matrix]]:
    """Yield (ids, vectors of shape (rows, e)) block by block, of length 1 if their angles are what counts."""
    from torch.nn import functional

    from cort.models import inference

    for start, end in track(blocks, len(blocks), f"blocks of {BLOCK} texts"):
        with inference(device, precision):
            vectors = texts.encode(encoder, np.arange(start, end), device, TOKEN_BUDGET).float()  # (rows, e)
        ids = texts.tokens.ids.slice(start, end - start).combine_chunks()
        if encoder.settings.unit_length:
            vectors = functional.normalize(vectors, dim=-1)
        yield ids, vectors.cpu().numpy()


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = cli.make_parser("cort.encode", __doc__)
    parser.add_argument("--model", required=True, metavar="FOLDER")
    parser.add_argument("--tokens", required=True, metavar="ARROW")
    parser.add_argument("--kind", choices=("passage", "query"), required=True)
    parser.add_argument("--shard", default="1-of-1", metavar="I-of-N")
    parser.add_argument("--precision", choices=("fp32", "bf16", "fp16"), default="fp32", help="of the transformer")
    parser.add_argument("--storage", choices=sorted(STORAGE), default="fp32", help="of the vectors")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", required=True, metavar="ARROW")
    return parser


def stage(args: argparse.Namespace) -> None:
    """Encode and write."""
    from cort.encoder import load_encoder, texts_of
    from cort.models import choose_device, model_fingerprint

    encoder, template = load_encoder(args.model)
    tokens = Tokens(args.tokens, fingerprint(args.model))
    texts = texts_of(tokens, template, encoder.settings, args.kind)
    blocks = shard_blocks(len(tokens), args.shard)
    count = sum(end - start for start, end in blocks)
    with lease() as leased:
        device = choose_device(args.threads, leased)
        write_shard(
            args.output,
            encode_blocks(encoder.to(device), texts, blocks, device, args.precision),
            model=model_fingerprint(args.model),
            dimension=encoder.settings.dimension,
            count=count,
            storage=args.storage,
        )
    log.info("encoded %d of %d texts on %s in %s", count, len(tokens), device, args.precision)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())
