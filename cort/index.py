"""Index the passages by their terms (BM25, SPLADE), their vectors (HNSW, ONNG, IVF-PQ) or their token vectors (IVF-PQ).

Equal inputs give equal bytes for any number of shards and threads. The exception is Lucene, whose segments depend on
how threads were scheduled; rankings do not, because BM25 uses the statistics of the whole collection.

Usage: python -m cort.index bm25 --passages passages.parquet --output lucene --threads 2 --memory-mb 2000
       python -m cort.index impacts --passages 1-of-2.parquet 2-of-2.parquet --output impacts --threads 2
       python -m cort.index hnsw --passages 1-of-2.arrow 2-of-2.arrow --M 16 --ef-construction 200 --output hnsw
       python -m cort.index onng --passages 1-of-2.arrow 2-of-2.arrow --edges 100 --outgoing 10 --incoming 120
           --threads 4 --output onng
       python -m cort.index ivfpq --passages 1-of-2.arrow 2-of-2.arrow --bytes 16 --seed 42 --threads 8 --output ivfpq
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cort.formats import tables
from cort.formats.artifacts import write_artifact
from cort.formats.cleaning import convert
from cort.formats.expansions import iter_beside, iter_expanded
from cort.retrieval import anserini
from cort.retrieval.graph_build import HnswOptions, OnngOptions, build_hnsw, build_onng
from cort.retrieval.indexes import META_FILE
from cort.retrieval.options import JavaOptions
from cort.runtime.commands import Commands, main_of_commands
from cort.runtime.errors import input_error
from cort.runtime.files import atomic_folder
from cort.runtime.options import optional, options_class, required, thread_count
from cort.runtime.progress import track
from cort.settings.fields import Cleaning, General, as_key
from cort.settings.lexical import Language, LexicalIndex
from cort.settings.models import IvfPq

if TYPE_CHECKING:
    from cort.retrieval.vectors import PassageVectors

log = logging.getLogger(__name__)


# BM25


@options_class
class LuceneOptions(JavaOptions):
    """A Lucene index, built with Anserini as in its recipe for MS MARCO.

    Texts go through JsonCollection and Anserini's analyser of the language; of English, that is Porter stemming and
    Lucene's stop words. The manifest has the language, for queries. Only what BM25 needs is stored. With positions,
    document vectors and raw text, the index of 20,958 paragraphs took 23 MB instead of 3 and was half as fast to
    search, for the same run.

    Predicted queries are appended to their passage. Term weights replace the text: Anserini repeats each term as often
    as its weight says (JsonVectorCollection), which gives the texts that DeepCT's authors indexed.

    Reads:  the passages, their expansions or term weights (parquet)
    Writes: a folder with the index and manifest.json, which says how to treat queries
    """

    passages: str = required("PARQUET")
    expansions: tuple[str, ...] = optional((), "predicted queries to append to the passages", "PARQUET")
    term_weights: tuple[str, ...] = optional((), "term weights, instead of the passages' texts", "PARQUET")
    cleaning: Cleaning = as_key(
        LexicalIndex, "cleaning", "how texts and, at search time, queries are cleaned; with term weights only queries"
    )
    language: Language = as_key(LexicalIndex, "language", "of texts and, at search time, queries")
    output: str = required("FOLDER", "the index")


def texts_of(batches: Iterable[pa.RecordBatch], form: str) -> Iterator[list[dict[str, Any]]]:
    """Turn batches of (doc_id, text) into documents for JsonCollection."""
    for batch in batches:
        texts = convert(batch["text"], form).to_pylist()
        yield [
            {"id": doc_id, "contents": text} for doc_id, text in zip(batch["doc_id"].to_pylist(), texts, strict=True)
        ]


def vectors_of(batches: Iterable[pa.RecordBatch]) -> Iterator[list[dict[str, Any]]]:
    """Turn batches of (doc_id, terms, weights) into documents for JsonVectorCollection."""
    for batch in batches:
        columns = (column.to_pylist() for column in batch.columns)
        yield [
            {"id": doc_id, "vector": dict(zip(map(str, terms), weights, strict=True))}
            for doc_id, terms, weights in zip(*columns, strict=True)
        ]


def documents_of(options: LuceneOptions) -> tuple[str, Iterator[list[dict[str, Any]]]]:
    """Choose Anserini's collection class, and yield the documents of each shard."""
    if options.expansions and options.term_weights:
        raise input_error("--expansions, --term-weights", "both", "one of them", "leave one out")
    if options.term_weights:
        beside = iter_beside(options.passages, options.term_weights, tables.TERM_WEIGHTS, anserini.DOCUMENTS_PER_SHARD)
        return "JsonVectorCollection", vectors_of(weighted for _, weighted in beside)
    batches = (
        iter_expanded(options.passages, options.expansions, anserini.DOCUMENTS_PER_SHARD)
        if options.expansions
        else tables.iter_batches(options.passages, tables.PASSAGES, anserini.DOCUMENTS_PER_SHARD)
    )
    return "JsonCollection", texts_of(batches, options.cleaning)


def index_bm25(options: LuceneOptions) -> None:
    """Write the passages as temporary JSON lines, index them, and compare the counts."""
    rows = tables.count_rows(options.passages, tables.PASSAGES)
    collection, documents = documents_of(options)
    # Predicted queries are several times as long as the passages, and compress well.
    compress = bool(options.expansions)
    kind, form = ["-collection", collection, "-language", options.language], (options.cleaning, options.language)
    anserini.build(options, options.output, rows, options.passages, documents, kind, form, compress)


# Impacts


@options_class
class ImpactOptions(JavaOptions):
    """A Lucene index of impacts: integer weights of tokens, by a sparse encoder (SPLADE).

    Terms are token ids, because tokens of some vocabularies have white space in them.

    Reads:  the impacts of the passages (parquet)
    Writes: a folder with the index and manifest.json, which says how to treat queries
    """

    passages: tuple[str, ...] = required("PARQUET", "all shards of their impacts")
    output: str = required("FOLDER", "the index")


def _impacts(options: ImpactOptions) -> Iterator[pa.RecordBatch]:
    size = anserini.DOCUMENTS_PER_SHARD
    return chain.from_iterable(tables.iter_batches(file, tables.IMPACTS, size) for file in options.passages)


def index_impacts(options: ImpactOptions) -> None:
    """Build the index; it does not depend on how passages are divided into shards."""
    rows, terms = 0, 0
    for batch in _impacts(options):
        rows, terms = rows + len(batch), terms + len(batch["tokens"].flatten())
    log.info("%.1f terms per passage, which decide how long searches take", terms / max(rows, 1))
    kind = ["-collection", "JsonVectorCollection", "-impact", "-pretokenized"]
    documents = vectors_of(_impacts(options))
    anserini.build(options, options.output, rows, options.passages[0], documents, kind, (anserini.IMPACTS, ""))


# IVF-PQ


@options_class
class IvfPqOptions(IvfPq):
    """An IVF-PQ index of an encoder's vectors, or of token vectors for late interaction (ColBERT), with faiss.

    k-means divides the vectors into `lists`; their default number is the square root of the number of vectors, rounded
    up to a power of 2. A vector is stored in `bytes` bytes, a divisor of the dimension, and 8 more for its passage.
    Lists and codes are trained on vectors drawn with the seed, 64 per list and at least 65,536. ColBERT's index of
    MS MARCO has 32,768 lists and 16 bytes.

    Reads:  shards of embeddings, or of token vectors
    Writes: a folder with lists.faiss and meta.json
    """

    passages: tuple[str, ...] = required("ARROW", "all shards of embeddings, or of token vectors")
    seed: int = as_key(General, "seed", "of the sample and of k-means")
    threads: int = thread_count()
    output: str = required("FOLDER")


def choose_lists(options: IvfPqOptions, vectors: PassageVectors) -> int:
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


def index_ivfpq(options: IvfPqOptions) -> None:
    """Train lists and codes on a sample, add all vectors, and write the index."""
    from cort.retrieval import ivfpq
    from cort.retrieval.max_similarity import extent_of

    faiss = ivfpq.library()
    vectors = ivfpq.open_vectors(options.passages)
    lists = choose_lists(options, vectors)
    origin, extent, tokens = ivfpq.origin_of(vectors), extent_of(vectors), len(vectors)
    drawn = ivfpq.draw(vectors, ivfpq.sample_size(tokens, lists), options.seed)
    log.info("%d of %d vectors are divided into %d lists", len(drawn), tokens, lists)
    index = ivfpq.train(drawn, origin.similarity, lists, options.bytes, options.seed, options.threads)
    for chunk, rows in track(ivfpq.chunks(vectors), tokens, "vectors added", size=lambda added: len(added[1])):
        index.add_with_ids(chunk, rows)
    with atomic_folder(options.output) as folder:
        faiss.write_index(index, str(folder / ivfpq.FILE))
        size = (folder / ivfpq.FILE).stat().st_size
        meta = ivfpq.Meta(
            model=origin.model,
            similarity=origin.similarity,
            dimension=origin.dimension,
            passages=len(vectors.offsets) - 1,
            tokens=tokens,
            vectors=ivfpq.fingerprint_of(vectors),
            longest=extent.longest,
            greatest=extent.greatest,
            lists=lists,
            bytes_per_vector=options.bytes,
            seed=options.seed,
            bytes={ivfpq.FILE: size},
        )
        write_artifact(folder / META_FILE, meta)
    log.info("%d vectors of %d dimensions, %d MB, %.1f bytes each", tokens, origin.dimension, size >> 20, size / tokens)


COMMANDS: Commands = {
    "bm25": (LuceneOptions, index_bm25),
    "impacts": (ImpactOptions, index_impacts),
    "hnsw": (HnswOptions, build_hnsw),
    "onng": (OnngOptions, build_onng),
    "ivfpq": (IvfPqOptions, index_ivfpq),
}
main = main_of_commands(COMMANDS)

if __name__ == "__main__":
    sys.exit(main())
