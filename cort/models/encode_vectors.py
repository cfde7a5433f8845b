"""One vector per passage or query, by an encoder.

Vectors are normalised in single precision, so the inner product ranks as the angular similarity does.

Reads:  an encoder folder, a token cache; of queries also a shard of the passages
Writes: an embedding shard (Arrow IPC)
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from cort.config.models import Vectors
from cort.formats import shards
from cort.formats.records import Integers
from cort.formats.shards import Tokens, precision_of_queries
from cort.models.layout import model_fingerprint
from cort.models.light import static_encoder
from cort.models.shards import Job, PassageOptions, compute_texts, refuse_others
from cort.models.tokenizer import fingerprint
from cort.runtime.errors import shorten
from cort.runtime.sections import ArrowFile, Maybe, same_as

if TYPE_CHECKING:
    from cort.models.encoder import Encoder
    from cort.models.modules import Texts


log = logging.getLogger(__name__)

BLOCK = 4_096

# How far from 1 the length of a normalized vector may be; half precision moves a vector by 0.0005. Searches rely on the
# bound in the file.
TOLERANCE = 1e-3


class Options(PassageOptions):
    """Options of this stage."""

    kind: Literal["passage", "query"]
    storage: shards.Storage = same_as(Vectors, "storage")
    passages: Maybe[ArrowFile] = None
    """Of queries: a shard of the passages, whose precision they get."""
    output: ArrowFile


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


def stage(options: Options) -> None:
    """Encode each text as one vector."""
    encoder: Any = static_encoder(options.model)
    if encoder is None:
        from cort.models.encoder import load_encoder

        encoder = load_encoder(options.model, options.precision)
    texts = encoder.texts(Tokens(options.tokens, fingerprint(options.model)), options.kind)
    model = model_fingerprint(options.model)
    if options.passages is not None:
        stored = shards.open_shards([options.passages], model=model)[0].precision
        options = options.model_copy(update={"precision": precision_of_queries(stored, options.precision)})

    def write(batches: Iterator[pa.RecordBatch], count: int, precision: str) -> None:
        blocks = count_zeros(options.tokens, map(shards.from_batch, batches))
        made: dict[str, Any] = {"model": model, "dimension": encoder.dimension, "count": count}
        made |= {"storage": options.storage, "longest": 1 + 2 * TOLERANCE if encoder.unit_length else None}
        shards.write_shard(options.output, blocks, **made, precision=precision)

    compute = partial(encode_block, encoder=encoder, texts=texts, storage=options.storage)
    compute_texts(__name__, options, encoder, texts, BLOCK, compute, write)
