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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from cort.formats import shards, tables
from cort.formats.shards import Tokens, precision_of_queries, read_precision
from cort.models.shards import Job, PassageOptions, compute_shard, table_writer
from cort.models.tokenizer import fingerprint
from cort.models.truncation import log_truncation
from cort.retrieval.impacts import MOST_TERMS, quantised
from cort.runtime.commands import Commands, main_of_commands
from cort.runtime.errors import input_error, shorten
from cort.runtime.options import optional, options_class, required
from cort.settings import models
from cort.settings.fields import as_key

if TYPE_CHECKING:
    import torch

    from cort.models.encoder import Encoder, Texts
    from cort.models.late_interaction import InteractingTexts, LateInteraction
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


def encode_block(
    rows: tuple[int, int], encoder: Encoder, texts: Texts, device: torch.device, precision: str, storage: str
) -> pa.RecordBatch:
    """Encode the rows [start, end) as ids and vectors, of length 1 or 0 if the encoder normalizes.

    :param precision: of the encoder, for messages.
    :raises InputError: for NaN or infinite values, or vectors of another length.
    """
    start, end = rows
    vectors = texts.vectors(encoder, np.arange(start, end), device)  # (rows, e)
    ids = texts.tokens.ids.slice(start, end - start).combine_chunks()
    lengths = vectors.norm(dim=-1)  # (rows,)
    # Static embeddings of unknown symbols, and of an empty text, are zeros, which no normalization changes.
    unit = ((lengths - 1).abs() < TOLERANCE) | (lengths == 0)  # (rows,)
    right = unit if encoder.unit_length else lengths.isfinite()
    if not bool(right.all()):
        row = int((~right).nonzero()[0])
        found = f"in {precision} a vector of length {float(lengths[row]):.4g} of the text {shorten(ids[row].as_py())}"
        expected = "length 1" if encoder.unit_length else "finite numbers"
        raise input_error(texts.tokens.path, found, expected, "use precision fp32 or train the encoder again")
    return shards.vector_batch(ids, vectors.cpu().numpy(), storage)


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


def encode_token_block(
    rows: tuple[int, int], model: LateInteraction, texts: InteractingTexts, device: torch.device, precision: str
) -> pa.RecordBatch:
    """Encode the rows [start, end) as ids and token vectors.

    :param precision: of the model, for messages.
    :raises InputError: for NaN or infinite values, also in half precision.
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
    return shards.token_vector_batch(ids, stored, counts)


def encode_vectors(options: VectorOptions) -> None:
    """Encode each text as one vector."""
    from cort.models.encoder import load_encoder, texts_of
    from cort.models.layout import model_fingerprint

    encoder = load_encoder(options.model, options.precision)
    tokens = Tokens(options.tokens, fingerprint(options.model))
    texts = texts_of(tokens, encoder, options.kind)
    log_truncation(log, options.tokens, tokens.lengths, texts.max_length - texts.template.extra)
    model, dimension = model_fingerprint(options.model), encoder.dimension
    if options.passages is not None:
        stored = shards.open_shards([options.passages], model)[0].precision
        options = replace(options, precision=precision_of_queries(stored, options.precision))
    elif encoder.transformer is None and options.precision == "auto":
        options = replace(options, precision="fp32")

    def prepare(job: Job) -> Callable[[tuple[int, int]], pa.RecordBatch]:
        job.place(encoder)
        return lambda rows: encode_block(rows, encoder, texts, job.device, job.precision, options.storage)

    def write(batches: Iterator[pa.RecordBatch], count: int, precision: str) -> None:
        shards.write_shard(
            options.output,
            count_zeros(options.tokens, map(shards.from_batch, batches)),
            model=model,
            dimension=dimension,
            count=count,
            storage=options.storage,
            precision=precision,
        )

    decisive, files = ("kind", "storage"), [options.tokens]
    shard, lengths = options.shard, texts.lengths(np.arange(len(tokens)))
    done = compute_shard(
        "cort.encode vectors", options, shard, lengths, BLOCK, prepare, write, decisive, files, items="texts"
    )
    log.info("encoded %s", done)


def encode_tokens(options: TokenOptions) -> None:
    """Encode each text as a vector per token."""
    from cort.models.late_interaction import load_late_interaction, origin_of

    model = load_late_interaction(options.model, options.precision)
    tokens = Tokens(options.tokens, fingerprint(options.model))
    texts = model.texts(tokens, "passage")
    log_truncation(log, options.tokens, tokens.lengths, texts.max_length - texts.template.extra)

    def prepare(job: Job) -> Callable[[tuple[int, int]], pa.RecordBatch]:
        job.place(model)
        return lambda rows: encode_token_block(rows, model, texts, job.device, job.precision)

    def write(batches: Iterator[pa.RecordBatch], count: int, precision: str) -> None:
        shards.write_token_shard(options.output, batches, origin_of(options.model, model), count, precision)

    files, shard, lengths = [options.tokens], options.shard, texts.lengths(np.arange(len(tokens)))
    done = compute_shard(
        "cort.encode tokens", options, shard, lengths, TOKEN_BLOCK, prepare, write, (), files, items="texts"
    )
    log.info("encoded %s", done)


def encode_impact_block(
    rows: tuple[int, int], encoder: SparseEncoder, texts: Texts, device: torch.device, most: int | None
) -> pa.RecordBatch:
    """Encode the rows [start, end) as ids and impacts, of at most `most` tokens each.

    :raises InputError: for NaN or infinite weights.
    """
    import torch

    start, end = rows
    with torch.inference_mode():
        weights = texts.encode(encoder, np.arange(start, end), device).cpu().numpy()  # (rows, vocabulary)
    ids = texts.tokens.ids.slice(start, end - start).combine_chunks()
    finite = np.isfinite(weights).all(axis=1)  # (rows,)
    if not finite.all():
        found = f"a weight that is no finite number, of the text {shorten(ids[int(finite.argmin())].as_py())}"
        raise input_error(texts.tokens.path, found, "finite numbers", "use precision fp32 or train the encoder again")
    encoded = [quantised(row, most) for row in weights]
    columns = [ids, *([impacts[column] for impacts in encoded] for column in (0, 1))]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, tables.IMPACTS.types, strict=True)]
    return pa.record_batch(arrays, schema=tables.IMPACTS)


def encode_impacts(options: ImpactOptions) -> None:
    """Encode each text as the impacts of tokens."""
    from cort.models.encoder import texts_of
    from cort.models.sparse_encoder import load_sparse_encoder

    encoder = load_sparse_encoder(options.model, options.precision)
    tokens = Tokens(options.tokens, fingerprint(options.model))
    texts = texts_of(tokens, encoder, options.kind)
    log_truncation(log, options.tokens, tokens.lengths, texts.max_length - texts.template.extra)
    most = MOST_TERMS if options.kind == "query" else None
    if options.passages is not None:
        precision = precision_of_queries(read_precision(options.passages), options.precision)
        options = replace(options, precision=precision)

    def prepare(job: Job) -> Callable[[tuple[int, int]], pa.RecordBatch]:
        job.place(encoder)
        return lambda rows: encode_impact_block(rows, encoder, texts, job.device, most)

    shard, write = options.shard, table_writer(options.output, tables.IMPACTS)
    lengths = texts.lengths(np.arange(len(tokens)))
    files = [options.tokens]
    done = compute_shard(
        "cort.encode impacts", options, shard, lengths, TOKEN_BLOCK, prepare, write, ("kind",), files, items="texts"
    )
    log.info("encoded %s", done)


COMMANDS: Commands = {
    "vectors": (VectorOptions, encode_vectors),
    "tokens": (TokenOptions, encode_tokens),
    "impacts": (ImpactOptions, encode_impacts),
}
main = main_of_commands(COMMANDS)

if __name__ == "__main__":
    sys.exit(main())
