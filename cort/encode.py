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

import logging
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from cort.formats.blocks import FinishedBlocks, ShardOptions, shard_blocks
from cort.formats.embeddings import Storage, from_batch, to_batch, write_shard
from cort.formats.tokens import Tokens
from cort.models.settings import Precision
from cort.models.tokenizer import fingerprint
from cort.models.truncation import log_truncation
from cort.system import cli
from cort.system.devices import lease
from cort.system.errors import input_error, shorten
from cort.system.options import optional, required, thread_count
from cort.system.progress import Counter

if TYPE_CHECKING:
    import torch

    from cort.models.encoder import Encoder, Texts

log = logging.getLogger(__name__)

BLOCK = 4_096
# Vectors of unit length are that far from it at most; half precision would move them by 0.0005.
TOLERANCE = 1e-3


def encode_block(
    rows: tuple[int, int], encoder: Encoder, texts: Texts, device: torch.device, precision: str, storage: str
) -> pa.RecordBatch:
    """Encode rows from the first to before the second: ids and vectors, of length 1 if their angles are what counts.

    :param precision: of the encoder, for messages.
    :raises InputError: a vector that is not finite, or that has no length.
    """
    start, end = rows
    vectors = texts.vectors(encoder, np.arange(start, end), device)  # (rows, e)
    ids = texts.tokens.ids.slice(start, end - start).combine_chunks()
    lengths = vectors.norm(dim=-1)  # (rows,)
    right = (lengths - 1).abs() < TOLERANCE if encoder.settings.unit_length else lengths.isfinite()  # (rows,)
    if not bool(right.all()):
        row = int((~right).nonzero()[0])
        found = f"in {precision} a vector of length {float(lengths[row]):.4g} of the text {shorten(ids[row].as_py())}"
        expected = "length 1" if encoder.settings.unit_length else "finite numbers"
        raise input_error(texts.tokens.path, found, expected, "use precision fp32 or train the encoder again")
    return to_batch(ids, vectors.cpu().numpy(), storage)


@dataclass(frozen=True, kw_only=True)
class Options(ShardOptions):
    """Options of this stage."""

    model: str = required("FOLDER")
    tokens: str = required("ARROW")
    kind: Literal["passage", "query"] = required()
    precision: Precision = optional("fp32", "of the transformer")
    storage: Storage = optional("fp32", "of the vectors")
    threads: int = thread_count()
    output: str = required("ARROW")


def stage(options: Options) -> None:
    """Encode and write."""
    from cort.models.encoder import load_encoder, texts_of
    from cort.models.transformer import choose_device, identity, model_fingerprint, resume

    encoder, template = load_encoder(options.model)
    tokens = Tokens(options.tokens, fingerprint(options.model))
    texts = texts_of(tokens, template, encoder.settings, options.kind)
    log_truncation(log, options.tokens, tokens.lengths, texts.max_length - template.extra)
    blocks = shard_blocks(len(tokens), options.shard, BLOCK)
    count = sum(end - start for start, end in blocks)
    with lease() as leased:
        device = choose_device(options.threads, leased)
        decisive = {name: getattr(options, name) for name in ("kind", "precision", "storage")} | {"device": device.type}
        identify = partial(identity, "cort.encode", decisive, [options.tokens], options.model)
        finished = FinishedBlocks(options.checkpoints, identify)
        encoder.place(device, options.precision)

        def make(rows: tuple[int, int]) -> pa.RecordBatch:
            return encode_block(rows, encoder, texts, device, options.precision, options.storage)

        numbered = [(start // BLOCK, (start, end)) for start, end in blocks]
        model, dimension = model_fingerprint(options.model), encoder.settings.dimension
        with Counter(count, "texts") as counter:
            resume(encoder, finished, device, counter)
            vectors = map(from_batch, finished.each(numbered, make, counter))
            write_shard(options.output, vectors, model=model, dimension=dimension, count=count, storage=options.storage)
    finished.remove(number for number, _ in numbered)
    log.info("encoded %d of %d texts on %s in %s", count, len(tokens), device, options.precision)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
