"""IVF-PQ indexes with faiss, of an encoder's vectors or of token vectors for late interaction (ColBERT, section 3.6).

k-means divides the vectors into lists. A vector is stored as its list and its product-quantized residual (Jégou et al.
2011, IVFADC). A search reads the `probes` lists nearest to a query, or to each of its tokens, and takes the
`candidates` vectors nearest to it. The passages of all these vectors are scored exactly, so results have the scores of
exact search. An encoder's vectors are treated as those of passages with one token.

An index is a folder with faiss' own file, which is memory-mapped, and meta.json.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from threadpoolctl import ThreadpoolController

from cort.retrieval.exact import StoredVectors
from cort.retrieval.index_meta import IndexMeta, read_meta, refuse_others
from cort.retrieval.indexes import FIX, INDEXES, load_faiss
from cort.retrieval.max_similarity import Extent, QueryVectors, TokenIndex
from cort.retrieval.rankings import IndexSearch, Results, Rows, Vectors
from cort.retrieval.vectors import PassageVectors
from cort.runtime.errors import input_error

(FILE,) = INDEXES["ivfpq"].files
# Codewords per byte; vectors sampled per list, and in total at least: as many as faiss uses for training.
CODEWORDS, DRAWN_PER_LIST, DRAWN = 256, 64, 65_536
# Changes results: the last bits of a product depend on how many vectors are added at once.
ADDED_AT_ONCE = 16_384


def default_lists(tokens: int) -> int:
    """Return the square root of `tokens`, rounded up to a power of 2: 32,768 for MS MARCO, as in ColBERT."""
    return 1 << max(math.ceil(math.log2(max(tokens, 1)) / 2), 0)


def sample_size(tokens: int, lists: int) -> int:
    """Return the number of vectors to train lists and codes on."""
    return min(tokens, max(DRAWN_PER_LIST * lists, DRAWN))


def draw_vectors(vectors: PassageVectors, number: int, seed: int) -> Vectors:
    """Draw a stratified sample: a vector from each of `number` equal strata; shape (number, dimension)."""
    strata = np.arange(number) + np.random.default_rng(seed).random(number)
    places = np.minimum((strata * (len(vectors) / number)).astype(np.int64), len(vectors) - 1)
    return vectors[places].astype(np.float32)


def chunks(vectors: PassageVectors) -> Iterator[tuple[Vectors, Rows]]:
    """Yield all vectors and the rows of their passages, `ADDED_AT_ONCE` at a time."""
    start = 0
    for chunk in vectors.copies(ADDED_AT_ONCE):
        places = np.arange(start, start + len(chunk))
        yield chunk, np.searchsorted(vectors.offsets, places, side="right") - 1
        start += len(chunk)


def train(sample: Vectors, similarity: str, lists: int, bytes_per_vector: int, seed: int, threads: int) -> Any:
    """Train the lists and codewords of an index without vectors."""
    faiss = load_faiss()
    faiss.omp_set_num_threads(threads)
    dimension = sample.shape[1]
    # Among unit vectors, the nearest is the one with the largest product.
    metric = faiss.METRIC_INNER_PRODUCT if similarity == "dot" else faiss.METRIC_L2
    flat = faiss.IndexFlat(dimension, metric)
    index = faiss.IndexIVFPQ(flat, dimension, lists, bytes_per_vector, int(math.log2(CODEWORDS)), metric)
    for clustering in (index.cp, index.pq.cp):
        clustering.seed = seed % 2**31
        # faiss warns if there are fewer.
        clustering.min_points_per_centroid = 1
    index.train(sample)
    return index


#: what scores candidates exactly
Scoring: TypeAlias = StoredVectors | TokenIndex


@dataclass(frozen=True)
class IvfPq:
    """An open index, and the passages that it was built from.

    :ivar candidates: nearest vectors to take per vector of a query.
    """

    index: Any
    meta: IndexMeta
    passages: Scoring
    candidates: int

    def ids(self, rows: Rows) -> list[str]:
        """Look up doc_ids by row."""
        return self.passages.ids(rows)

    def search(self, query: Vectors | QueryVectors, width: float, depth: int) -> Results:
        """Rank the passages that the index finds for a vector, or for the tokens of a query, in one thread of faiss."""
        faiss = load_faiss()
        faiss.omp_set_num_threads(1)
        torch.set_num_threads(1)
        vectors = query.vectors if isinstance(query, QueryVectors) else query[None]
        rows: Rows = np.zeros(0, np.int64)
        if len(vectors):
            parameters = faiss.SearchParametersIVF(nprobe=min(int(width), self.index.nlist))
            most = min(self.candidates, self.meta.vectors)
            _, nearest = self.index.search(vectors.astype(np.float32), most, params=parameters)
            rows = np.unique(nearest[nearest >= 0])
        best: Results = self.passages.best_of(query, rows, depth)  # type: ignore[arg-type]  # of its own kind of query
        return best


class IvfPqSearch(IndexSearch):
    """An open index with the number of lists to read."""

    def search(self, queries: Any, depth: int) -> list[Results]:
        """Rank passages for each query, a vector or a `QueryVectors`, several queries at a time."""
        with one_thread_each():
            return super().search(queries, depth)


@cache
def _libraries() -> ThreadpoolController:
    # It takes longer to find them than to search.
    return ThreadpoolController()


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Compute each product of `IvfPq.search` in the calling thread."""
    threads = torch.get_num_threads()
    try:
        with _libraries().limit(limits=1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(threads)


def open_ivfpq(folder: str | Path, passages: Scoring, candidates: int) -> IvfPq:
    """Open an index of the vectors of these passages.

    :param candidates: as of `IvfPq`.
    :raises InputError: if the index is of other vectors or damaged.
    """
    faiss = load_faiss()
    folder = Path(folder)
    meta = read_meta(folder, "ivfpq")
    refuse_others(folder, meta, passages.vectors)
    path = folder / FILE
    try:
        index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP)
    except (RuntimeError, MemoryError) as error:
        reason = str(error).splitlines()[0]
        raise input_error(path, f"an index that cannot be read ({reason})", "a complete index", FIX) from error
    # By default, threads read all lists of a search once more beforehand, which takes twice as long as the search.
    faiss.downcast_InvertedLists(index.invlists).prefetch_nthread = 0
    if isinstance(passages, TokenIndex) and meta.extent:
        passages.extent = Extent(*meta.extent)
    return IvfPq(index, meta, passages, candidates)
