"""Predict term weights with DeepCT, which replace the term frequencies of passages; one shard at a time.

The weight of a word is the model's prediction for its first subword, scaled and rounded. Of several occurrences the
greatest counts, and words of weight 0 are dropped (Dai & Callan, 2019). `cort/models/shards.py` explains shards and
checkpoints.

Reads:  a token-classification folder, a token cache
Writes: doc_id, terms and their weights, as parquet
Usage:  python -m cort.weigh --model base_models/deepct --tokens passages.arrow --shard 1-of-4
            --output passages.1-of-4.parquet
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cort.config import lexical
from cort.formats import tables
from cort.formats.records import Integers
from cort.formats.shards import Tokens
from cort.models.shards import Job, PassageOptions, compute_texts, refuse_others, table_writer
from cort.models.tokenizer import fingerprint
from cort.runtime.cli import main_of
from cort.runtime.sections import same_as

if TYPE_CHECKING:
    from cort.models.batching import FramedTexts
    from cort.models.weigher import Weigher

# Passages sorted by length together. Not a setting, because padding changes the last bits of the result.
BLOCK = 4_096


class Options(PassageOptions):
    """Options of this stage."""

    passage_length: int = same_as(lexical.Weigher, "passage_length")
    scale: int = same_as(lexical.Weigher, "scale")
    square_root: bool = same_as(lexical.Weigher, "square_root")


def weigh_block(
    job: Job, rows: Integers, weigher: Weigher, passages: FramedTexts, vocabulary: Sequence[str], options: Options
) -> pa.RecordBatch:
    """Weight the terms of the passages in some rows.

    :raises InputError: for a NaN or infinite weight.
    """
    import torch

    from cort.models.transformer import forward_by_length
    from cort.models.weigher import term_weights, words_of

    with torch.inference_mode():
        numbers = forward_by_length(weigher, passages.sequences(rows), job.device).float().cpu().numpy()
    ids = passages.ids(rows)
    finite = np.isfinite(numbers).all(axis=1)  # (rows,)
    refuse_others(finite, ids, options.model, f"in {job.precision} a weight that is no finite number")
    documents: list[tuple[str, list[str], list[int]]] = []
    template = passages.template
    for doc_id, row, predicted in zip(ids.to_pylist(), rows.tolist(), numbers, strict=True):
        kept = passages.tokens[row][: options.passage_length - template.extra]
        words, first = words_of(vocabulary[token] for token in kept)
        weights = predicted[len(template.before) :][first].tolist()
        weighed = term_weights(words, weights, options.scale, options.square_root)
        documents.append((doc_id, list(weighed), list(weighed.values())))
    return pa.record_batch(list(zip(*documents, strict=True)), schema=tables.TERM_WEIGHTS)


def stage(options: Options) -> None:
    """Predict the term weights of one shard and write them."""
    from cort.models.batching import FramedTexts
    from cort.models.weigher import load_vocabulary, load_weigher

    vocabulary = load_vocabulary(options.model)
    weigher, template = load_weigher(options.model, options.passage_length)
    passages = FramedTexts(Tokens(options.tokens, fingerprint(options.model)), template, options.passage_length)
    compute = partial(weigh_block, weigher=weigher, passages=passages, vocabulary=vocabulary, options=options)
    write = table_writer(options.output, tables.TERM_WEIGHTS)
    compute_texts("cort.weigh", options, weigher, passages, BLOCK, compute, write, "passages")


main = main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
