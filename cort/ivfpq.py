"""Build an IVF-PQ index of the token vectors of passages with faiss, for retrieval by late interaction (ColBERT).

`lists` is the number of lists that k-means divides the vectors into, without it the power of 2 from the square root of
their number on; `bytes` is what is stored of each vector beside its passage (8 bytes) and must divide the dimension;
`sample` is how many vectors lists and codes are made from, drawn with the seed. ColBERT's index of MS MARCO has 32,768
lists and 16 bytes.

Equal inputs give equal bytes, whatever the shards and the threads.

Reads:  shards of token vectors
Writes: a folder with lists.faiss and meta.json
Usage:  python -m cort.ivfpq --passages 1-of-2.arrow 2-of-2.arrow --bytes 16 --seed 42 --threads 8 --output ivfpq
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cort.formats.artifacts import write_artifact
from cort.formats.token_embeddings import TokenShard, open_token_shards
from cort.retrieval.graph import META_FILE
from cort.retrieval.options import check_positive
from cort.system import cli
from cort.system.errors import input_error
from cort.system.files import atomic_folder
from cort.system.options import optional, required, thread_count
from cort.system.progress import track

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of this stage."""

    passages: tuple[str, ...] = required("ARROW", "shards of token vectors, all of them")
    lists: int | None = optional(None, "that vectors are divided into", "N")
    bytes: int = optional(16, "stored of each vector", "N")
    sample: int | None = optional(None, "vectors that lists and codes are made from", "N")
    seed: int = optional(42, "of the sample and of k-means", "N")
    threads: int = thread_count()
    output: str = required("FOLDER")


class Sizes(NamedTuple):
    """Numbers of all vectors, of lists, and of vectors these are made from."""

    tokens: int
    lists: int
    sample: int


def choose_sizes(options: Options, passages: Sequence[TokenShard]) -> Sizes:
    """Choose what is not given.

    :raises InputError: too few vectors, or options that do not fit them.
    """
    from cort.retrieval.ivfpq import CODEWORDS, count_tokens, default_lists, default_sample

    tokens, dimension = count_tokens(passages), passages[0].origin.dimension
    if tokens < CODEWORDS:
        fix = "search exactly, without an index"
        raise input_error(passages[0].path, f"{tokens} token vectors", f"{CODEWORDS} or more", fix)
    if dimension % options.bytes:
        expected = f"a divisor of the dimension, {dimension}"
        raise input_error("--bytes", str(options.bytes), expected, "give one of these")
    lists = default_lists(tokens) if options.lists is None else options.lists
    sample = default_sample(tokens, lists) if options.sample is None else min(options.sample, tokens)
    least = max(lists, CODEWORDS)
    if sample < least:
        option, found = ("--lists", lists) if options.sample is None or lists > tokens else ("--sample", sample)
        expected = f"{sample} at most" if option == "--lists" else f"{least} or more"
        raise input_error(option, str(found), f"{expected}, as there are {tokens} token vectors", "change it")
    return Sizes(tokens, lists, sample)


def stage(options: Options) -> None:
    """Open the shards, draw, train, add, put the folder in place."""
    from cort.retrieval.ivfpq import ADDED_AT_ONCE, FILE, Meta, chunks, draw, fingerprint_of, library, train
    from cort.retrieval.max_similarity import TokenIndex

    faiss = library()
    check_positive(options, "bytes", *(name for name in ("lists", "sample") if getattr(options, name) is not None))
    passages = open_token_shards(options.passages)
    tokens, lists, sample = choose_sizes(options, passages)
    origin = passages[0].origin
    extent = TokenIndex(passages, origin.similarity).extent
    log.info("%d of %d vectors are divided into %d lists", sample, tokens, lists)
    drawn = draw(passages, sample, options.seed)
    index = train(drawn, origin.similarity, lists, options.bytes, options.seed, options.threads)
    for vectors, rows in track(chunks(passages, ADDED_AT_ONCE), tokens, "vectors added", size=lambda one: len(one[1])):
        index.add_with_ids(vectors, rows)
    with atomic_folder(options.output) as folder:
        faiss.write_index(index, str(folder / FILE))
        size = (folder / FILE).stat().st_size
        meta = Meta(
            model=origin.model,
            similarity=origin.similarity,
            dimension=origin.dimension,
            passages=sum(shard.table.num_rows for shard in passages),
            tokens=tokens,
            vectors=fingerprint_of(passages),
            longest=extent.longest,
            greatest=extent.greatest,
            lists=lists,
            bytes_per_vector=options.bytes,
            sample=sample,
            seed=options.seed,
            bytes={FILE: size},
        )
        write_artifact(folder / META_FILE, meta)
    log.info("%d vectors of %d dimensions, %d MB, %.1f bytes each", tokens, origin.dimension, size >> 20, size / tokens)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
