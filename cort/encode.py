"""Encode passages or queries to unit vectors, one shard of the blocks at a time (CoRT, section 3.4).

The texts are cut into blocks of fixed size and a shard is a run of whole blocks, so the vectors do not depend on the
number of shards. Normalised in single precision, so that an inner product ranks as the angular similarity does. With a
folder of checkpoints, finished blocks are kept there until the shard is whole: a shard that was ended goes on after its
last one, also if the blocks are now divided into another number of shards.

Reads an encoder folder and a token cache; writes an embedding shard (Arrow IPC).

Usage: python -m cort.encode --model encoders/cort/best --tokens passages.arrow --kind passage --shard 1-of-4
              --output passages.1-of-4.arrow
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cort.formats.blocks import FinishedBlocks
from cort.formats.embeddings import STORAGE, from_batch, to_batch, write_shard
from cort.formats.tokens import Tokens
from cort.models.tokenizer import fingerprint
from cort.system import cli
from cort.system.devices import lease
from cort.system.errors import input_error, shorten
from cort.system.progress import track

if TYPE_CHECKING:
    import torch

    from cort.models.encoder import Encoder, Texts

log = logging.getLogger(__name__)

BLOCK = 4_096
# Padded tokens that go through the transformer at once: few stay in a CPU's cache, many fill a GPU, more pad more
# (in length order .1 % of SQuAD's passages at 1,024, 2 % at 16,384, 7 % at 65,536; 67 % as they come). Part of the
# result, as padding changes the last bits: not a setting.
TOKEN_BUDGETS = {"cpu": 1_024, "cuda": 16_384}
# Vectors of unit length are that far from it at most; half precision would move them by 0.0005.
TOLERANCE = 1e-3


def shard_blocks(rows: int, shard: str) -> list[tuple[int, int]]:
    """Return the row ranges of the blocks of shard "i-of-n": whole blocks, in order, as even as possible."""
    match = re.fullmatch(r"(\d+)-of-(\d+)", shard)
    number, shards = (int(part) for part in match.groups()) if match else (0, 0)
    if not 1 <= number <= shards:
        raise input_error("--shard", repr(shard), "i-of-n with 1 <= i <= n", "fix it")
    blocks = -(-rows // BLOCK)
    first, last = blocks * (number - 1) // shards, blocks * number // shards
    return [(block * BLOCK, min((block + 1) * BLOCK, rows)) for block in range(first, last)]


def encode_block(
    rows: tuple[int, int], encoder: Encoder, texts: Texts, device: torch.device, precision: str, storage: str
) -> pa.RecordBatch:
    """Encode rows from the first to before the second: ids and vectors, of length 1 if their angles are what counts.

    :param precision: of the encoder, for messages.
    :raises InputError: a vector that is not finite, or that has no length.
    """
    import torch
    from torch.nn import functional

    start, end = rows
    with torch.inference_mode():
        vectors = texts.encode(encoder, np.arange(start, end), device, TOKEN_BUDGETS[device.type]).float()  # (rows, e)
    if encoder.settings.unit_length:
        vectors = functional.normalize(vectors, dim=-1)
    ids = texts.tokens.ids.slice(start, end - start).combine_chunks()
    lengths = vectors.norm(dim=-1)  # (rows,)
    right = (lengths - 1).abs() < TOLERANCE if encoder.settings.unit_length else lengths.isfinite()  # (rows,)
    if not bool(right.all()):
        row = int((~right).nonzero()[0])
        found = f"in {precision} a vector of length {float(lengths[row]):.4g} of the text {shorten(ids[row].as_py())}"
        expected = "length 1" if encoder.settings.unit_length else "finite numbers"
        raise input_error(texts.tokens.path, found, expected, "use precision fp32 or train the encoder again")
    return to_batch(ids, vectors.cpu().numpy(), storage)


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
    parser.add_argument("--checkpoints", metavar="FOLDER", help="keep finished blocks here until the shard is whole")
    parser.add_argument("--output", required=True, metavar="ARROW")
    return parser


def stage(args: argparse.Namespace) -> None:
    """Encode and write."""
    from cort.models.cache_key import identity
    from cort.models.encoder import load_encoder, texts_of
    from cort.models.transformer import choose_device, model_fingerprint

    encoder, template = load_encoder(args.model)
    tokens = Tokens(args.tokens, fingerprint(args.model))
    texts = texts_of(tokens, template, encoder.settings, args.kind)
    blocks = shard_blocks(len(tokens), args.shard)
    count = sum(end - start for start, end in blocks)
    with lease() as leased:
        device = choose_device(args.threads, leased)
        options = {"kind": args.kind, "precision": args.precision, "storage": args.storage, "device": device.type}
        identify = partial(identity, "cort.encode", options, [args.tokens], args.model)
        finished = FinishedBlocks(args.checkpoints, identify)
        make = partial(
            encode_block,
            encoder=encoder.place(device, args.precision),
            texts=texts,
            device=device,
            precision=args.precision,
            storage=args.storage,
        )
        numbered = [(start // BLOCK, (start, end)) for start, end in blocks]
        write_shard(
            args.output,
            map(from_batch, track(finished.each(numbered, make), len(blocks), f"blocks of {BLOCK} texts")),
            model=model_fingerprint(args.model),
            dimension=encoder.settings.dimension,
            count=count,
            storage=args.storage,
        )
    finished.remove(number for number, _ in numbered)
    log.info("encoded %d of %d texts on %s in %s", count, len(tokens), device, args.precision)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())
