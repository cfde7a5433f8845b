"""Weigh the terms of passages with DeepCT, to replace their term frequencies; one shard at a time.

A word weighs what the model predicts for its first subword, scaled and rounded. Of several occurrences the greatest
counts, and words with weight 0 are left out (Dai & Callan, 2019). `cort/models/shards.py` explains shards and
checkpoints.

Reads a token-classification folder and a token cache; writes doc_id, terms and their weights as parquet.

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
from cort.formats.expansions import Weighted, to_batch
from cort.formats.tokens import Tokens
from cort.models.shards import PassageOptions, Run, write_shard
from cort.models.tokenizer import fingerprint
from cort.retrieval.options import check_positive
from cort.settings import lexical
from cort.system import cli
from cort.system.errors import input_error, shorten
from cort.system.options import optional

if TYPE_CHECKING:
    import torch

    from cort.models.batching import FramedTexts
    from cort.models.weigher import Vocabulary, Weigher

log = logging.getLogger(__name__)

# Passages that are sorted by length together. Not a setting: padding changes the last bits of the result.
BLOCK = 4_096


@dataclass(frozen=True, kw_only=True)
class Options(PassageOptions):
    """Options of this stage."""

    passage_length: int = optional(lexical.Weigher.passage_length, "tokens, special tokens included")
    scale: int = optional(lexical.Weigher.scale, "weight of a word for which the model predicts 1")
    square_root: bool = optional(lexical.Weigher.square_root, "take the square root of the predictions first")


def weigh_block(
    block: tuple[int, int],
    weigher: Weigher,
    passages: FramedTexts,
    vocabulary: Vocabulary,
    device: torch.device,
    options: Options,
) -> pa.RecordBatch:
    """Weigh the terms of the passages from the first row to before the second.

    :raises InputError: for a NaN or infinite weight.
    """
    import torch

    from cort.models.transformer import forward_by_length
    from cort.models.weigher import term_weights, words_of

    rows = np.arange(*block)
    with torch.inference_mode():
        numbers = forward_by_length(weigher, passages.sequences(rows), device).float().cpu().numpy()  # (rows, length)
    ids = passages.tokens.ids.slice(block[0], len(rows)).to_pylist()
    documents = []
    for doc_id, row, predicted in zip(ids, rows.tolist(), numbers, strict=True):
        words, first = words_of(passages, vocabulary, row)
        weights = predicted[first]
        if not np.isfinite(weights).all():
            wrong = weights[~np.isfinite(weights)][0]
            found = f"in {options.precision} the weight {wrong} in passage {shorten(doc_id)}"
            raise input_error(options.model, found, "finite numbers", "use precision fp32 or another model")
        weighed = term_weights(words, weights.tolist(), options.scale, options.square_root)
        documents.append(Weighted(doc_id, list(weighed), list(weighed.values())))
    return to_batch(documents)


def stage(options: Options) -> None:
    """Weigh and write."""
    from cort.models.batching import FramedTexts
    from cort.models.transformer import resume
    from cort.models.weigher import load_vocabulary, load_weigher

    check_positive(options, "scale")
    vocabulary = load_vocabulary(options.model)
    weigher, template = load_weigher(options.model, options.passage_length)
    tokens = Tokens(options.tokens, fingerprint(options.model))
    passages = FramedTexts(tokens, template, options.passage_length)

    def prepare(run: Run) -> partial[pa.RecordBatch]:
        weigher.place(run.device, options.precision)
        resume(weigher, run.finished, run.device, run.counter)
        return partial(
            weigh_block, weigher=weigher, passages=passages, vocabulary=vocabulary, device=run.device, options=options
        )

    decisive = ("passage_length", "scale", "square_root", "precision")
    done = write_shard("cort.weigh", options, tables.TERM_WEIGHTS, len(tokens), BLOCK, prepare, decisive)
    log.info("weighted terms: %s", done)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
