"""Encode passages to a vector per token by a late-interaction model, one shard of the blocks at a time (ColBERT).

As in `encode`, a shard is a run of whole blocks, so that vectors do not depend on the number of shards, and one that
was ended goes on after its last finished block. Vectors are stored in half precision, without those of the tokens that
do not count.

Reads a re-ranker folder and a token cache; writes a shard of token vectors (Arrow IPC).

Usage: python -m cort.encode_tokens --model rerankers/late/best --tokens passages.arrow --shard 1-of-4
              --output passages.1-of-4.arrow
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cort.formats.blocks import FinishedBlocks, ShardOptions, shard_blocks
from cort.formats.token_embeddings import to_batch, write_token_shard
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

    from cort.models.late_interaction import InteractingTexts, LateInteraction

log = logging.getLogger(__name__)

# Passages whose tokens are in memory at once; part of the result, as padding changes the last bits.
BLOCK = 1_024


def encode_block(
    rows: tuple[int, int], model: LateInteraction, texts: InteractingTexts, device: torch.device, precision: str
) -> pa.RecordBatch:
    """Encode rows from the first to before the second: ids and vectors of their tokens.

    :param precision: of the model, for messages.
    :raises InputError: a number that is not finite, or too great for half precision.
    """
    start, end = rows
    vectors, _, counts = texts.vectors(model, np.arange(start, end), device)
    ids = texts.tokens.ids.slice(start, end - start).combine_chunks()
    with np.errstate(over="ignore"):
        stored = vectors.astype(np.float16)  # (tokens, dimension)
    finite = np.isfinite(stored).all(axis=1)  # (tokens,)
    if not finite.all():
        token = int((~finite).argmax())
        passage = shorten(ids[int(np.searchsorted(np.cumsum(counts), token, side="right"))].as_py())
        found = f"in {precision} a token vector of the text {passage} with {float(np.abs(vectors[token]).max()):.4g}"
        fix = "use precision fp32 and similarity cosine, or train the model again"
        raise input_error(texts.tokens.path, found, "finite numbers up to 65504", fix)
    return to_batch(ids, stored, counts)


@dataclass(frozen=True, kw_only=True)
class Options(ShardOptions):
    """Options of this stage."""

    model: str = required("FOLDER", "a re-ranker of the kind late_interaction")
    tokens: str = required("ARROW")
    precision: Precision = optional("fp32", "of the transformer")
    threads: int = thread_count()
    output: str = required("ARROW")


def stage(options: Options) -> None:
    """Encode and write."""
    from cort.models.late_interaction import PASSAGE, load_token_encoder, origin_of
    from cort.models.transformer import choose_device, identity, resume

    model, template = load_token_encoder(options.model)
    tokens = Tokens(options.tokens, fingerprint(options.model))
    texts = model.texts(tokens, template, PASSAGE)
    log_truncation(log, options.tokens, tokens.lengths, model.settings.max_length - template.extra)
    blocks = shard_blocks(len(tokens), options.shard, BLOCK)
    count = sum(end - start for start, end in blocks)
    with lease() as leased:
        device = choose_device(options.threads, leased)
        decisive = {"precision": options.precision, "device": device.type}
        identify = partial(identity, "cort.encode_tokens", decisive, [options.tokens], options.model)
        finished = FinishedBlocks(options.checkpoints, identify)
        model.place(device, options.precision)

        def make(rows: tuple[int, int]) -> pa.RecordBatch:
            return encode_block(rows, model, texts, device, options.precision)

        numbered = [(start // BLOCK, (start, end)) for start, end in blocks]
        with Counter(count, "texts") as counter:
            resume(model, finished, device, counter)
            batches = finished.each(numbered, make, counter)
            write_token_shard(options.output, batches, origin_of(options.model, model.settings), count)
    finished.remove(number for number, _ in numbered)
    log.info("encoded the tokens of %d of %d texts on %s in %s", count, len(tokens), device, options.precision)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
