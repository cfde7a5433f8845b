"""Weigh the words of passages, as DeepCT does to replace their term frequencies, one shard of the blocks at a time.

The weight of a word is the model's number for its first subword, times a scale and rounded; of several occurrences the
greatest counts, and words that weigh less than 1 are left out (Dai & Callan, 2019). The passages are cut into blocks of
fixed size and a shard is a run of whole blocks: the number of shards changes no weight. With a folder of checkpoints,
finished blocks are kept there until the shard is whole: a shard that was ended goes on after its last one.

Reads a token-classification folder and a token cache; writes doc_id, terms and their weights, as parquet.

Usage: python -m cort.weigh --model base_models/deepct --tokens passages.arrow --shard 1-of-4
              --output passages.1-of-4.parquet
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cort.formats import tables
from cort.formats.blocks import FinishedBlocks, ShardOptions, shard_blocks
from cort.formats.tokens import Tokens
from cort.formats.weighted import Weighted, to_batch
from cort.models.settings import Precision
from cort.models.tokenizer import fingerprint
from cort.retrieval.options import check_positive
from cort.system import cli
from cort.system.devices import lease
from cort.system.errors import input_error, shorten
from cort.system.options import optional, required, thread_count
from cort.system.progress import Counter

if TYPE_CHECKING:
    import torch

    from cort.models.weigher import Weigher, Words

log = logging.getLogger(__name__)

# Passages sorted by length together. Part of the result, as padding changes the last bits: not a setting.
BLOCK = 4_096


@dataclass(frozen=True, kw_only=True)
class Options(ShardOptions):
    """Options of this stage."""

    model: str = required("FOLDER")
    tokens: str = required("ARROW", "token cache of the passages")
    passage_length: int = optional(128, "tokens, special ones included")
    scale: int = optional(100, "weight of a word that the model gives 1")
    square_root: bool = optional(False, "take the square root of the model's numbers first")
    precision: Precision = optional("fp32")
    threads: int = thread_count()
    output: str = required("PARQUET")


def weigh_block(
    block: tuple[int, int], weigher: Weigher, words: Words, device: torch.device, options: Options
) -> pa.RecordBatch:
    """Weigh the passages of the rows from the first to before the second.

    :raises InputError: a weight that is not finite.
    """
    import torch

    from cort.models.transformer import forward_by_length
    from cort.models.weigher import term_weights

    rows = np.arange(*block)
    with torch.inference_mode():
        numbers = forward_by_length(weigher, words.sequences(rows), device).float().cpu().numpy()  # (rows, length)
    ids = words.tokens.ids.slice(block[0], len(rows)).to_pylist()
    found = []
    for doc_id, row, own in zip(ids, rows.tolist(), numbers, strict=True):
        terms, first = words.of(row)
        weights = own[first]
        if not np.isfinite(weights).all():
            place = (
                f"in {options.precision} the weight {weights[~np.isfinite(weights)][0]} in passage {shorten(doc_id)}"
            )
            raise input_error(options.model, place, "finite numbers", "use precision fp32 or another model")
        weighed = term_weights(terms, weights.tolist(), options.scale, options.square_root)
        found.append(Weighted(doc_id, list(weighed), list(weighed.values())))
    return to_batch(found)


def stage(options: Options) -> None:
    """Weigh and write."""
    from cort.models.transformer import choose_device, identity, resume
    from cort.models.weigher import Words, load_vocabulary, load_weigher

    check_positive(options, "scale")
    vocabulary = load_vocabulary(options.model)
    weigher, template = load_weigher(options.model, options.passage_length)
    tokens = Tokens(options.tokens, fingerprint(options.model))
    words = Words(tokens, template, vocabulary, options.passage_length)
    blocks = shard_blocks(len(tokens), options.shard, BLOCK)
    count = sum(end - start for start, end in blocks)
    with lease() as leased, tables.open_writer(options.output, tables.TERM_WEIGHTS) as writer:
        device = choose_device(options.threads, leased)
        decisive = {name: getattr(options, name) for name in ("passage_length", "scale", "square_root", "precision")}
        decisive["device"] = device.type
        identify = partial(identity, "cort.weigh", decisive, [options.tokens], options.model)
        finished = FinishedBlocks(options.checkpoints, identify)
        weigher.place(device, options.precision)
        make = partial(weigh_block, weigher=weigher, words=words, device=device, options=options)
        numbered = [(start // BLOCK, (start, end)) for start, end in blocks]
        kept = 0
        with Counter(count, "passages") as counter:
            resume(weigher, finished, device, counter)
            for batch in finished.each(numbered, make, counter):
                writer.write_batch(batch)
                kept += len(pa.compute.list_flatten(batch["terms"]))
    finished.remove(number for number, _ in numbered)
    log.info("%d weighted terms of %d of %d passages on %s in %s", kept, count, len(tokens), device, options.precision)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
