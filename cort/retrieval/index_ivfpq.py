"""An IVF-PQ index of an encoder's vectors, or of token vectors for late interaction (ColBERT), with faiss.

k-means divides the vectors into `lists`; their default number is the square root of the number of vectors, rounded
up to a power of 2. A vector is stored in `bytes` bytes, a divisor of the dimension, and 8 more for its passage.
Lists and codes are trained on vectors drawn with the seed, 64 per list and at least 65,536. ColBERT's index of
MS MARCO has 32,768 lists and 16 bytes.

Reads:  shards of embeddings, or of token vectors
Writes: a folder with lists.faiss and meta.json
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cort.config.fields import Seed
from cort.config.models import IvfPq
from cort.retrieval.indexes import load_faiss
from cort.runtime.errors import input_error
from cort.runtime.files import atomic_folder
from cort.runtime.progress import track
from cort.runtime.sections import ArrowFile, FolderPath, Several, Threads, same_as

if TYPE_CHECKING:
    from cort.retrieval.vectors import PassageVectors


log = logging.getLogger(__name__)


class Options(IvfPq):
    """Options of this stage."""

    passages: Several[ArrowFile]
    """All shards of embeddings, or of token vectors."""
    seed: int = same_as(Seed, "seed")
    """Of the sample and of k-means."""
    threads: Threads = 1
    output: FolderPath


def choose_lists(options: Options, vectors: PassageVectors) -> int:
    """Return the number of lists; unset, it gets its default.

    :raises InputError: for too few vectors, or options that do not suit them.
    """
    from cort.retrieval.ivfpq import CODEWORDS, default_lists

    if len(vectors) < CODEWORDS:
        fix = "search exactly, without an index"
        raise input_error(vectors.source, f"{len(vectors)} vectors", f"{CODEWORDS} or more", fix)
    if vectors.dimension % options.bytes:
        expected = f"a divisor of the dimension, {vectors.dimension}"
        raise input_error("--bytes", options.bytes, expected, "choose one")
    lists = default_lists(len(vectors)) if options.lists is None else options.lists
    if lists > len(vectors):
        raise input_error("--lists", lists, f"{len(vectors)} at most, the number of vectors", "lower it")
    return lists


def stage(options: Options) -> None:
    """Train lists and codes on a sample, add all vectors, and write the index."""
    from cort.retrieval import ivfpq
    from cort.retrieval.index_meta import write_meta
    from cort.retrieval.max_similarity import extent_of
    from cort.retrieval.vectors import open_vectors

    faiss = load_faiss()
    vectors = open_vectors(options.passages, None)
    lists = choose_lists(options, vectors)
    origin, extent, tokens = vectors.origin, extent_of(vectors), len(vectors)
    drawn = ivfpq.draw_vectors(vectors, ivfpq.sample_size(tokens, lists), options.seed)
    log.info("%d of %d vectors are divided into %d lists", len(drawn), tokens, lists)
    index = ivfpq.train(drawn, origin.similarity, lists, options.bytes, options.seed, options.threads)
    for chunk, rows in track(ivfpq.chunks(vectors), tokens, "vectors added", size=lambda added: len(added[1])):
        index.add_with_ids(chunk, rows)
    with atomic_folder(options.output) as folder:
        faiss.write_index(index, str(folder / ivfpq.FILE))
        settings = {"lists": lists, "bytes_per_vector": options.bytes, "seed": options.seed}
        meta = write_meta(folder, "ivfpq", vectors, tokens, settings, extent)
    size = sum(meta.bytes.values())
    log.info("%d vectors of %d dimensions, %d MB, %.1f bytes each", tokens, origin.dimension, size >> 20, size / tokens)
