"""Encode texts: to one unit vector each (CoRT, section 3.4), a vector per token (ColBERT), or token weights (SPLADE).

Vectors do not depend on the number of shards, and an interrupted shard resumes after its last finished block, even if
the number of shards has changed since (`cort/models/shards.py`).

Usage: python -m cort.encode vectors --model encoders/cort/best --tokens passages.arrow --kind passage --shard 1-of-4
           --output passages.1-of-4.arrow
       python -m cort.encode tokens --model rerankers/late/best --tokens passages.arrow --shard 1-of-4
           --output passages.1-of-4.arrow
       python -m cort.encode impacts --model encoders/splade/best --tokens passages.arrow --kind passage --shard 1-of-4
           --output passages.1-of-4.parquet
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from cort.formats import shards, tables
from cort.formats.records import Integers
from cort.formats.shards import Tokens, precision_of_queries, read_precision
from cort.models.layout import model_fingerprint
from cort.models.light import static_encoder
from cort.models.shards import Job, PassageOptions, compute_texts, refuse_others, table_writer
from cort.models.tokenizer import fingerprint
from cort.retrieval.impacts import MOST_TERMS, quantised
from cort.runtime.commands import Commands, main_of_commands
from cort.runtime.errors import shorten
from cort.runtime.options import optional, options_class, required
from cort.settings import models
from cort.settings.fields import as_key

if TYPE_CHECKING:
    from cort.models.encoder import Encoder
    from cort.models.late_interaction import InteractingTexts, LateInteraction
    from cort.models.modules import Texts
    from cort.models.sparse_encoder import SparseEncoder

log = logging.getLogger(__name__)

BLOCK = 4_096
# Smaller, because the vectors of all tokens of a block, or the weights of the vocabulary for each of its texts, are in
# memory at once. Not a setting: padding affects the last bits.
TOKEN_BLOCK = 1_024
# Allowed deviation from unit length; half precision would move a vector by 0.0005.
TOLERANCE = 1e-3


@options_class
class EncodeOptions(PassageOptions):
    """Options of both commands."""

    tokens: str = required("ARROW")
    output: str = required("ARROW")


@options_class
class VectorOptions(EncodeOptions):
    """One vector per passage or query, by an encoder.

    Vectors are normalised in single precision, so the inner product ranks as the angular similarity does.

    Reads:  an encoder folder, a token cache; of queries also a shard of the passages
    Writes: an embedding shard (Arrow IPC)
    """

    kind: Literal["passage", "query"] = required()
    storage: shards.Storage = as_key(models.Encoder, "storage")
    passages: str | None = optional(None, "of queries: a shard of the passages, whose precision they get", "ARROW")


@options_class
class TokenOptions(EncodeOptions):
    """One vector per token of each passage, by a late-interaction model.

    Vectors are stored in half precision; tokens that do not count have none.

    Reads:  a re-ranker folder of the kind late_interaction, a token cache
    Writes: a shard of token vectors (Arrow IPC)
    """


@options_class
class ImpactOptions(EncodeOptions):
    """Weights of the vocabulary's tokens, by a sparse encoder, as integers (impacts).

    As in the runs of SPLADE with Anserini, a weight is multiplied by 100 and rounded. A query keeps its 1,024 greatest
    weights, because Lucene searches for no more terms.

    Reads:  the folder of a sparse encoder, a token cache
    Writes: id, token ids and their impacts (parquet)
    """

    kind: Literal["passage", "query"] = required()
    passages: str | None = optional(None, "of queries: a shard of the passages, whose precision they get", "PARQUET")
    output: str = required("PARQUET")


def encode_block(job: Job, rows: Integers, encoder: Encoder, texts: Texts, storage: shards.Storage) -> pa.RecordBatch:
    """Encode rows as ids and vectors, of length 1 or 0 if the encoder normalizes.

    :raises InputError: for NaN or infinite values, or vectors of another length.
    """
    vectors, ids = texts.vectors(encoder, rows, job.device), texts.ids(rows)  # (rows, e)
    lengths = np.linalg.norm(vectors, axis=1)  # (rows,)
    # Static embeddings of unknown symbols, and of an empty text, are zeros, which no normalization changes.
    unit = (np.abs(lengths - 1) < TOLERANCE) | (lengths == 0)  # (rows,)
    wanted = unit if encoder.unit_length else np.isfinite(lengths)
    found = f"in {job.precision} a vector of length {lengths[int(wanted.argmin())]:.4g}"
    expected = "length 1" if encoder.unit_length else "finite numbers"
    refuse_others(wanted, ids, texts.tokens.path, found, expected)
    return shards.vector_batch(ids, vectors, storage)


def count_zeros(
    source: str, blocks: Iterable[tuple[pa.Array, shards.Matrix]]
) -> Iterator[tuple[pa.Array, shards.Matrix]]:
    """Pass on blocks of ids and vectors; at the end, warn if vectors are zeros, of which each scores 0."""
    count, first = 0, ""
    for ids, vectors in blocks:
        zeros = np.flatnonzero(~vectors.any(axis=1))
        if len(zeros) and not count:
            first = shorten(ids[int(zeros[0])].as_py())
        count += len(zeros)
        yield ids, vectors
    if count:
        log.warning("%s: the vectors of %d texts are zero and score 0, the first is %s", source, count, first)


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


def encode_vectors(options: VectorOptions) -> None:
    """Encode each text as one vector."""
    encoder: Any = static_encoder(options.model)
    if encoder:
        options = replace(options, precision="fp32")
    else:
        from cort.models.encoder import load_encoder

        encoder = load_encoder(options.model, options.precision)
    texts = encoder.texts(Tokens(options.tokens, fingerprint(options.model)), options.kind)
    model = model_fingerprint(options.model)
    if options.passages is not None:
        stored = shards.open_shards([options.passages], model)[0].precision
        options = replace(options, precision=precision_of_queries(stored, options.precision))

    def write(batches: Iterator[pa.RecordBatch], count: int, precision: str) -> None:
        blocks = count_zeros(options.tokens, map(shards.from_batch, batches))
        made: dict[str, Any] = {"model": model, "dimension": encoder.dimension, "count": count}
        made |= {"storage": options.storage, "longest": 1 + 2 * TOLERANCE if encoder.unit_length else None}
        shards.write_shard(options.output, blocks, **made, precision=precision)

    compute = partial(encode_block, encoder=encoder, texts=texts, storage=options.storage)
    compute_texts("cort.encode vectors", options, encoder, texts, BLOCK, compute, write)


def encode_tokens(options: TokenOptions) -> None:
    """Encode each text as a vector per token."""
    from cort.models.late_interaction import load_late_interaction, origin_of

    model = load_late_interaction(options.model, options.precision)
    texts = model.texts(Tokens(options.tokens, fingerprint(options.model)), "passage")

    def write(batches: Iterator[pa.RecordBatch], count: int, precision: str) -> None:
        shards.write_token_shard(options.output, batches, origin_of(options.model, model), count, precision)

    compute = partial(encode_token_block, model=model, texts=texts)
    compute_texts("cort.encode tokens", options, model, texts, TOKEN_BLOCK, compute, write)


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
    encoded = [quantised(row, most) for row in weights]
    return pa.record_batch([ids, *map(list, zip(*encoded, strict=True))], schema=tables.IMPACTS)


def encode_impacts(options: ImpactOptions) -> None:
    """Encode each text as the impacts of tokens."""
    from cort.models.sparse_encoder import load_sparse_encoder

    encoder = load_sparse_encoder(options.model, options.precision)
    texts = encoder.texts(Tokens(options.tokens, fingerprint(options.model)), options.kind)
    if options.passages is not None:
        precision = precision_of_queries(read_precision(options.passages), options.precision)
        options = replace(options, precision=precision)
    most = MOST_TERMS if options.kind == "query" else None
    compute = partial(encode_impact_block, encoder=encoder, texts=texts, most=most)
    write = table_writer(options.output, tables.IMPACTS)
    compute_texts("cort.encode impacts", options, encoder, texts, TOKEN_BLOCK, compute, write)


COMMANDS: Commands = {
    "vectors": (VectorOptions, encode_vectors),
    "tokens": (TokenOptions, encode_tokens),
    "impacts": (ImpactOptions, encode_impacts),
}
main = main_of_commands(COMMANDS)

if __name__ == "__main__":
    sys.exit(main())
