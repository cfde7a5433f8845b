"""One vector per token of each passage, by a late-interaction model.

Vectors are stored in half precision; tokens that do not count have none.

Reads:  a re-ranker folder of the kind late_interaction, a token cache
Writes: a shard of token vectors (Arrow IPC)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cort.formats import shards
from cort.formats.records import Integers
from cort.formats.shards import Tokens
from cort.models.shards import TOKEN_BLOCK, Job, PassageOptions, compute_texts, refuse_others
from cort.models.tokenizer import fingerprint
from cort.runtime.sections import ArrowFile

if TYPE_CHECKING:
    from cort.models.late_interaction import InteractingTexts, LateInteraction


class Options(PassageOptions):
    """Options of this stage."""

    output: ArrowFile


def encode_token_block(job: Job, rows: Integers, model: LateInteraction, texts: InteractingTexts) -> pa.RecordBatch:
    """Encode rows as ids and token vectors.

    :raises InputError: for NaN or infinite values, also in half precision.
    """
    vectors, _, counts = texts.vectors(model, rows, job.device)
    ids = texts.ids(rows)
    with np.errstate(over="ignore"):
        stored = vectors.astype(np.float16)  # (tokens, dimension)
    finite = np.isfinite(stored).all(axis=1)  # (tokens,)
    wrong = np.bincount(np.repeat(np.arange(len(rows)), counts)[~finite], minlength=len(rows)) > 0  # (rows,)
    found = f"in {job.precision} a token vector with {float(np.abs(vectors).max(initial=0)):.4g}"
    refuse_others(~wrong, ids, texts.tokens.path, found, "finite numbers up to 65504")
    return shards.token_vector_batch(ids, stored, counts)


def stage(options: Options) -> None:
    """Encode each text as a vector per token."""
    from cort.models.late_interaction import load_late_interaction, origin_of

    model = load_late_interaction(options.model, options.precision)
    texts = model.texts(Tokens(options.tokens, fingerprint(options.model)), "passage")

    def write(batches: Iterator[pa.RecordBatch], count: int, precision: str) -> None:
        shards.write_token_shard(options.output, batches, origin_of(options.model, model), count, precision)

    compute = partial(encode_token_block, model=model, texts=texts)
    compute_texts(__name__, options, model, texts, TOKEN_BLOCK, compute, write)
