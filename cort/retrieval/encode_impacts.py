"""Weights of the vocabulary's tokens, by a sparse encoder, as integers (impacts).

As in the runs of SPLADE with Anserini, a weight is multiplied by 100 and rounded. A query keeps its 1,024 greatest
weights, because Lucene searches for no more terms.

Reads:  the folder of a sparse encoder, a token cache
Writes: id, token ids and their impacts (parquet)
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from cort.formats import tables
from cort.formats.records import Integers
from cort.formats.shards import Tokens, precision_of_queries, read_precision
from cort.models.shards import TOKEN_BLOCK, Job, PassageOptions, compute_texts, refuse_others, table_writer
from cort.models.tokenizer import fingerprint
from cort.retrieval.impacts import MOST_TERMS, impacts_of
from cort.runtime.sections import Maybe, ParquetFile

if TYPE_CHECKING:
    from cort.models.modules import Texts
    from cort.models.sparse_encoder import SparseEncoder


class Options(PassageOptions):
    """Options of this stage."""

    kind: Literal["passage", "query"]
    passages: Maybe[ParquetFile] = None
    """Of queries: a shard of the passages, whose precision they get."""


def encode_impact_block(
    job: Job, rows: Integers, encoder: SparseEncoder, texts: Texts, most: int | None
) -> pa.RecordBatch:
    """Encode rows as ids and impacts, of at most `most` tokens each.

    :raises InputError: for NaN or infinite weights.
    """
    import torch

    with torch.inference_mode():
        weights = texts.encode(encoder, rows, job.device).cpu().numpy()  # (rows, vocabulary)
    ids = texts.ids(rows)
    found = f"in {job.precision} a weight that is no finite number"
    refuse_others(np.isfinite(weights).all(axis=1), ids, texts.tokens.path, found)
    encoded = [impacts_of(row, most) for row in weights]
    return pa.record_batch([ids, *map(list, zip(*encoded, strict=True))], schema=tables.IMPACTS)


def stage(options: Options) -> None:
    """Encode each text as the impacts of tokens."""
    from cort.models.sparse_encoder import load_sparse_encoder

    encoder = load_sparse_encoder(options.model, options.precision)
    texts = encoder.texts(Tokens(options.tokens, fingerprint(options.model)), options.kind)
    if options.passages is not None:
        precision = precision_of_queries(read_precision(options.passages), options.precision)
        options = options.model_copy(update={"precision": precision})
    most = MOST_TERMS if options.kind == "query" else None
    compute = partial(encode_impact_block, encoder=encoder, texts=texts, most=most)
    write = table_writer(options.output, tables.IMPACTS)
    compute_texts(__name__, options, encoder, texts, TOKEN_BLOCK, compute, write)
